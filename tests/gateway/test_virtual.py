"""Virtual servers: views of one gateway's servers, each under a path, with names and instructions of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.connect.targets import eventually
from tests.gateway.running import gateway, until, upstream, write_gateway_config
from toolweave import ProtocolError, connect_mcp
from toolweave.errors import ConfigError
from toolweave.gateway import load_gateway_config

TEST_SECONDS = 120

ERAS = ["legacy", "2026-07-28"]

VIEWS: dict[str, Any] = {
    "virtual": {
        "readers": {
            "title": "For readers",
            "instructions": "Read only.",
            "servers": ["a"],
            "include": ["who", "a_ad*"],
            "rename": {"a:who": "name_of_a"},
        },
        "all.but-one": {"exclude": ["a_*"], "prefix": "x_"},
    }
}


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
async def test_each_virtual_server_offers_its_own_view(tmp_path: Path, era: str) -> None:
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a"), "b": upstream(tmp_path, "b")}, VIEWS)
    with gateway(tmp_path, config) as running:
        assert running.said["virtual"] == {name: f"{running.base}/mcp/{name}" for name in VIEWS["virtual"]}
        async with (
            connect_mcp(running.entry("/mcp/readers", protocol=era), name="r") as readers,
            connect_mcp(running.entry("/mcp/all.but-one", protocol=era), name="x") as others,
            connect_mcp(running.entry(protocol=era), name="g") as everything,
        ):
            assert sorted((await readers.list_tools()).names) == ["a_add", "name_of_a"]
            assert sorted((await others.list_tools()).names) == ["x_b_add", "x_b_fail", "x_b_hold", "x_b_who"]
            assert len((await everything.list_tools()).names) == 8
            assert (readers.server_info["name"], readers.instructions) == ("readers", "Read only.")
            assert (await readers.call_tool("name_of_a")).structured_content["name"] == "a"
            assert (await others.call_tool("x_b_add", {"a": 1, "b": 1})).structured_content == {"sum": 2}
            for hidden in ("a_fail", "a_who", "b_who"):
                with pytest.raises(ProtocolError) as caught:
                    await readers.request("tools/call", {"name": hidden, "arguments": {}})
                assert caught.value.code == -32602


@pytest.mark.slow
def test_a_view_that_names_tools_in_vain_is_warned_of(tmp_path: Path) -> None:
    section = {
        "virtual": {
            "few": {"servers": ["a"], "include": ["a_add", "nope", "ad*"], "rename": {"nosuch": "y"}},
            "same": {"servers": ["a"], "include": ["add", "who"], "rename": {"a_add": "x", "a_who": "x"}},
            "every-server": {"include": ["a_add", "who"], "rename": {"b_who": "someone"}},
        }
    }
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a"), "b": upstream(tmp_path, "b")}, section)
    with gateway(tmp_path, config) as running:
        until(lambda: len(running.status()["warnings"]) == 3, "the warnings")

        assert set(running.status()["warnings"]) == {
            "gateway.virtual.few.include: 'nope' is not a tool of its servers",
            "gateway.virtual.few.rename: 'nosuch' is not a tool of its servers",
            "gateway.virtual.same: 'a_who' and 'a_add' would both be 'x'; one gets another name",
        }


def test_what_is_no_virtual_server_is_not_found(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a")}, VIEWS)
    with gateway(tmp_path, config) as running:
        for path in ("/mcp/nobody", "/mcp/readers/more", "/mcp/", "/mcps", "/mcp/../mcp/nobody"):
            expected = 404 if path != "/mcp/" else 400
            assert running.spoken("POST", path, {}, {"accept": "*/*"}).status == expected, path
        elsewhere = {"host": "evil.example"}
        assert running.spoken("POST", "/mcp/readers", {}, elsewhere).status == 421
        assert running.spoken("POST", "/mcp/readers", {}, {"origin": "https://evil.example"}).status == 403


@pytest.mark.slow
async def test_virtual_servers_come_change_and_go_with_the_config(tmp_path: Path) -> None:
    servers = {"a": upstream(tmp_path, "a")}
    config = write_gateway_config(tmp_path, servers, {"virtual": {"v": {"include": ["who", "hold"]}}})
    with gateway(tmp_path, config) as running:
        async with connect_mcp(running.entry("/mcp/v"), name="v") as before, anyio.create_task_group() as tasks:
            held: list[Any] = []

            async def hold() -> None:
                held.append(await before.call_tool("a_hold", {"name": "x"}))

            tasks.start_soon(hold)
            await eventually((tmp_path / "x.running").exists)
            virtual = {"v": {"include": ["add"]}, "w": {}}
            write_gateway_config(tmp_path, servers, {"virtual": virtual})
            await eventually(lambda: running.spoken("GET", "/mcp/w").status != 404, 30)
            async with connect_mcp(running.entry("/mcp/v"), name="v") as after:
                assert (await after.list_tools()).names == ("a_add",)
            (tmp_path / "x.release").touch()
            await eventually(lambda: held)
            assert held[0].text == "held by version 1"
        write_gateway_config(tmp_path, servers, {"virtual": {"w": {}}})
        await eventually(lambda: running.spoken("GET", "/mcp/v").status == 404, 30)
        assert [one["name"] for one in running.status()["virtual"]] == ["w"]


WRONG: list[tuple[Any, str]] = [
    ({"virtual": {"a/b": {}}}, "at most 64 letters"),
    ({"virtual": {"v": {"inclde": []}}}, "no setting 'inclde'; did you mean .include"),
    ({"virtual": {"v": {"include": "x", "rename": {"a": 1}}}}, "must be"),
    ({"virtual": []}, "must be an object"),
    ({"virtual": {f"v{n}": {} for n in range(501)}}, "more than 500"),
    ({"vitual": {}}, "no setting 'vitual'"),
    ({"required": ["z"]}, "names the server 'z'"),
    ({"rest": "yes"}, "'gateway.rest'"),
    ([], "must be an object"),
]


@pytest.mark.parametrize("section, message", WRONG)
def test_a_section_that_is_wrong_is_refused_with_its_place(tmp_path: Path, section: Any, message: str) -> None:
    path = write_gateway_config(tmp_path, {"a": {"command": "x"}}, {"placeholder": 1})
    path.write_text(path.read_text().replace('{"placeholder": 1}', json.dumps(section)))

    with pytest.raises(ConfigError, match=message) as caught:
        load_gateway_config(path)
    assert caught.value.path == str(path)


def test_a_gateway_section_comes_from_one_file_and_warns_of_unknown_servers(tmp_path: Path) -> None:
    one = write_gateway_config(tmp_path, {"a": {"command": "x"}}, {"virtual": {"v": {"servers": ["b"]}}}, "one.json")
    two = write_gateway_config(tmp_path, {"b": {"command": "y"}}, {"name": "n"}, "two.json")
    three = write_gateway_config(tmp_path, {"b": {"command": "y"}}, name="three.json")

    assert "server 'b' is not in the config" in load_gateway_config(one).warnings[0]
    assert load_gateway_config([one, three]).warnings == ()
    assert list(load_gateway_config([one, three], names=["b"]).servers.servers) == ["b"]
    with pytest.raises(ConfigError, match="only one file"):
        load_gateway_config([one, two])
    assert load_gateway_config({"mcpServers": {"a": {"command": "x"}}, "gateway": {"name": "n"}}).name == "n"


@pytest.mark.slow
async def test_rules_of_the_config_hold_for_the_gateway_and_for_each_virtual_server(tmp_path: Path) -> None:
    servers = {"a": upstream(tmp_path, "a")}
    no_hold = [{"name": "access_rules", "rules": [{"effect": "deny", "names": ["a_hold"]}, {"effect": "allow"}]}]
    no_fail = [{"name": "access_rules", "rules": [{"effect": "deny", "names": ["a_fail"]}, {"effect": "allow"}]}]
    section = {"middleware": no_hold, "virtual": {"v": {"middleware": no_fail}}}
    config = write_gateway_config(tmp_path, servers, section)
    with gateway(tmp_path, config) as running:
        async with (
            connect_mcp(running.entry(), name="g") as everything,
            connect_mcp(running.entry("/mcp/v"), name="v") as view,
        ):
            assert sorted((await everything.list_tools()).names) == ["a_add", "a_fail", "a_who"]
            assert sorted((await view.list_tools()).names) == ["a_add", "a_who"]

        write_gateway_config(tmp_path, servers, {"middleware": [{"name": "acess_rules"}]})
        change = running.admin("POST", "/reload", {})
        assert (change.status, "did you mean 'access_rules'" in change.json["error"]) == (422, True)

        write_gateway_config(tmp_path, servers, {"middleware": no_fail})
        assert running.admin("POST", "/reload", {}).status == 200
        async with connect_mcp(running.entry(), name="g") as changed:
            assert sorted((await changed.list_tools()).names) == ["a_add", "a_hold", "a_who"]


def test_the_example_of_the_documentation_is_a_config() -> None:
    config = load_gateway_config(Path(__file__).parent.parent.parent / "docs_src" / "gateway.json")

    assert list(config.virtual) == ["readers", "maths"]
    assert (config.name, config.required, config.warnings) == ("company", ("notes",), ())


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
async def test_a_virtual_server_has_the_prompts_and_resources_of_its_servers_alone(tmp_path: Path, era: str) -> None:
    servers = {"a": upstream(tmp_path, "a"), "b": upstream(tmp_path, "b")}
    config = write_gateway_config(tmp_path, servers, {"virtual": {"v": {"servers": ["b"]}}})
    with gateway(tmp_path, config) as running:
        async with (
            connect_mcp(running.entry("/mcp/v", protocol=era), name="v") as view,
            connect_mcp(running.entry(protocol=era), name="g") as everything,
        ):
            assert {one.uri for one in await everything.list_resources()} == {"state://a", "state://b"}
            assert {one.uri for one in await view.list_resources()} == {"state://b"}
            assert {one.name for one in await view.list_prompts()} == {"b_greet"}
            assert (await view.read_resource("state://b"))[0].text == "b"
            with pytest.raises(ProtocolError):
                await view.read_resource("state://a")
            with pytest.raises(ProtocolError):
                await view.get_prompt("a_greet")
