"""The stdio test servers do what they say, seen by a raw client."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.servers.fixtures import echo_command, fault_command, http_command
from tests.servers.raw import raw_stdio


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_a_legacy_server_answers_with_its_own_revision_and_its_shapes(version: str) -> None:
    with raw_stdio(echo_command("--version", version)) as raw:
        assert raw.initialize("2025-11-25")["protocolVersion"] == version
        add = next(tool for tool in raw.tool_list() if tool["name"] == "add")
        assert ("outputSchema" in add) == (version >= "2025-06-18")
        assert ("annotations" in add) == (version >= "2025-03-26")
        assert ("structuredContent" in raw.call("add", a=1, b=2)) == (version >= "2025-06-18")


def test_a_modern_server_wants_the_envelope_and_stamps_results() -> None:
    with raw_stdio(echo_command("--era", "modern"), modern=True) as raw:
        discovered = raw.ask("server/discover")
        assert discovered["supportedVersions"] == ["2026-07-28"]
        assert discovered["resultType"] == "complete"
        page = raw.ask("tools/list")
        assert page["ttlMs"] == 0
        assert page["cacheScope"] == "private"
        assert page["resultType"] == "complete"
        assert raw.call("echo", text="hi")["content"] == [{"type": "text", "text": "hi"}]
        raw.modern = False
        assert raw.ask("tools/list")["error"]["code"] == -32602
        assert raw.ask("initialize", protocolVersion="2025-11-25")["error"]["data"]["supported"] == ["2026-07-28"]
        wrong = {"io.modelcontextprotocol/protocolVersion": "2027-01-01"}
        raw.modern = True
        assert raw.ask("tools/list", _meta=wrong)["error"]["code"] == -32022
        assert raw.ask("ping")["error"]["code"] == -32601


def test_a_dual_server_speaks_both_eras() -> None:
    with raw_stdio(echo_command("--era", "dual")) as raw:
        raw.modern = True
        assert "2025-11-25" in raw.ask("server/discover")["supportedVersions"]
        assert raw.call("echo", text="a")["resultType"] == "complete"
    with raw_stdio(echo_command("--era", "dual")) as raw:
        raw.initialize()
        assert "resultType" not in raw.call("echo", text="a")


@pytest.mark.parametrize(("probe", "code"), [("error-32601", -32601), ("error-32602", -32602)])
def test_a_refused_probe_leaves_the_handshake_usable(probe: str, code: int) -> None:
    with raw_stdio(echo_command("--probe", probe)) as raw:
        raw.modern = True
        assert raw.ask("server/discover")["error"]["code"] == code
        raw.modern = False
        assert raw.initialize()["serverInfo"]["name"] == "echo"


def test_a_probe_may_be_fatal_or_silent_or_answered_by_a_legacy_server() -> None:
    with raw_stdio(echo_command("--probe", "exit"), modern=True) as raw:
        raw.request("server/discover")
        assert raw.line() is None
        assert raw.process.wait(5) == 1
    with raw_stdio(echo_command("--probe", "silent"), modern=True) as raw:
        raw.request("server/discover")
        raw.modern = False
        assert raw.initialize()["protocolVersion"] == "2025-11-25"
    with raw_stdio(echo_command("--probe", "ok"), modern=True) as raw:
        assert raw.ask("server/discover")["supportedVersions"] == ["2025-11-25"]


def test_lists_are_paged_and_refuse_a_wrong_cursor() -> None:
    with raw_stdio(echo_command("--tools", 12, "--page-size", 5, "--tool-bytes", 1700)) as raw:
        raw.initialize()
        tools = raw.tool_list()
        assert len(raw.ask("tools/list")["tools"]) == 5
        assert [tool["name"] for tool in tools][-1] == "tool_00012"
        assert 1600 < len(json.dumps(tools[-1])) < 1800
        assert raw.ask("tools/list", cursor="nonsense")["error"]["code"] == -32602


def test_tools_return_every_kind_of_block() -> None:
    with raw_stdio(echo_command()) as raw:
        raw.initialize()
        kinds = [block["type"] for block in raw.call("mixed")["content"]]
        assert kinds == ["text", "image", "audio", "resource_link", "resource"]
        assert raw.call("fail", message="no")["isError"] is True
        assert raw.call("echo")["isError"] is True
        assert raw.call("nothing")["error"]["code"] == -32602
        assert raw.call("rpc_error", code=-32000)["error"]["code"] == -32000
        assert raw.call("structured_only")["content"] == []
        assert len(raw.call("big", size=1000)["content"][0]["text"]) == 1000
        for tool in ("image", "audio", "resource_link", "embedded"):
            assert raw.call(tool)["content"]


def test_resources_prompts_and_completion_are_served() -> None:
    with raw_stdio(echo_command()) as raw:
        raw.initialize()
        assert len(raw.ask("resources/list")["resources"]) == 3
        assert raw.ask("resources/templates/list")["resourceTemplates"][0]["uriTemplate"] == "test://item/{id}"
        assert raw.ask("resources/read", uri="test://item/7")["contents"][0]["text"] == "item 7"
        assert raw.ask("resources/read", uri="test://none")["error"]["code"] == -32002
        assert [prompt["name"] for prompt in raw.ask("prompts/list")["prompts"]] == ["greet", "plain"]
        greeting = raw.ask("prompts/get", name="greet", arguments={"name": "Ada"})
        assert greeting["messages"][0]["content"]["text"] == "Please greet Ada."
        completed = raw.ask("completion/complete", argument={"name": "name", "value": "al"}, ref={})
        assert completed["completion"]["values"] == ["alice", "albert"]
        assert raw.ask("ping") == {}
        assert raw.ask("made/up")["error"]["code"] == -32601


def test_the_process_can_be_looked_into(tmp_path: Path) -> None:
    command = [*echo_command(), "--", "one", "two"]
    with raw_stdio(["env", "-C", str(tmp_path), "LETTER=x", *command]) as raw:
        raw.initialize()
        assert raw.call("env", names=["LETTER", "NONE"])["structuredContent"] == {"LETTER": "x", "NONE": None}
        assert "LETTER" in raw.call("env")["structuredContent"]["names"]
        assert raw.call("cwd")["content"][0]["text"] == str(tmp_path)
        seen = raw.call("args", a=[1])["structuredContent"]
        assert seen["arguments"] == {"a": [1]}
        assert seen["argv"][-2:] == ["one", "two"]


def test_slow_calls_report_progress_and_can_be_held_released_and_cancelled() -> None:
    with raw_stdio(echo_command()) as raw:
        raw.initialize()
        slow = raw.request("tools/call", name="slow", arguments={"seconds": 0, "steps": 2}, _meta={"progressToken": 1})
        assert [raw.message()["params"]["progress"] for _ in range(2)] == [1, 2]
        assert raw.answer(slow)["result"]["content"]
        held = raw.request("tools/call", name="hold", arguments={"key": "k"}, _meta={"progressToken": 2})
        assert raw.message()["params"]["message"] == "holding"
        raw.request("tools/call", name="release", arguments={"key": "k"})
        assert raw.answer(held)["result"]["content"][0]["text"] == "released"
        hanging = raw.request("tools/call", name="hang", arguments={})
        raw.send({"method": "notifications/cancelled", "params": {"requestId": hanging}})
        seen = raw.call("state")["structuredContent"]
        assert seen["cancelled"] == [hanging]
        assert seen["calls"]["hang"] == 1


def test_a_legacy_list_change_is_pushed() -> None:
    with raw_stdio(echo_command()) as raw:
        raw.initialize()
        before = len(raw.tool_list())
        grown = raw.request("tools/call", name="grow", arguments={})
        assert raw.message()["method"] == "notifications/tools/list_changed"
        assert raw.answer(grown)["result"]["content"][0]["text"] == "grown_1"
        assert len(raw.tool_list()) == before + 1
        raw.call("shrink", name="echo")
        assert "echo" not in [tool["name"] for tool in raw.tool_list()]


def test_a_modern_list_change_goes_to_listeners_only() -> None:
    with raw_stdio(echo_command("--era", "modern"), modern=True) as raw:
        raw.request("tools/call", name="grow", arguments={})
        assert "result" in raw.message()
        listening = raw.request("subscriptions/listen", notifications={"toolsListChanged": True})
        acknowledged = raw.message()
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        raw.request("tools/call", name="grow", arguments={})
        changed = raw.message()
        assert changed["method"] == "notifications/tools/list_changed"
        assert changed["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == listening
        raw.send({"method": "notifications/cancelled", "params": {"requestId": listening}})
        assert raw.call("state")["structuredContent"]["listening"] == 0


def test_crash_exits_with_seven_and_tells_why() -> None:
    with raw_stdio(echo_command(), stderr=subprocess.PIPE) as raw:
        raw.initialize()
        raw.request("tools/call", name="crash", arguments={})
        assert raw.process.wait(5) == 7
        assert raw.process.stderr is not None
        assert b"crashed on purpose" in raw.process.stderr.read()


@pytest.mark.parametrize("command", [echo_command("--help"), fault_command("bom", "--help"), http_command("--help")])
def test_every_server_has_help_without_site_packages(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, check=True)
    assert b"--era" in done.stdout
