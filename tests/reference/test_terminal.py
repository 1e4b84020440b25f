"""The reference servers from the terminal: `toolweave tools` and `toolweave call` as a person types them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.real.raw_wire import Era, RawListing, canonical
from tests.reference.servers import BROKEN

pytestmark = pytest.mark.reference

Entries = Mapping[str, dict[str, Any]]
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def config(entries: Entries, tmp_path: Path) -> Path:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {**BROKEN, **entries}}))
    return path


def _toolweave(*args: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("toolweave")), *map(str, args)]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=120, check=False
    )


def test_tools_lists_what_the_raw_wire_lists_and_names_the_broken_servers(
    config: Path, entries: Entries, raw_listing: Callable[[str, Era], RawListing]
) -> None:
    done = _toolweave("tools", "--config", config, "--json")
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert {name: server["state"] for name, server in printed["servers"].items()} == {
        **dict.fromkeys(BROKEN, "failed"),
        **dict.fromkeys(entries, "ready"),
    }
    assert "AttributeError" in json.dumps(printed["servers"]["dies"]["error"])
    for name in entries:
        witness = raw_listing(name, "auto")
        assert printed["servers"][name]["protocol_version"] == witness.protocol_version
        assert printed["servers"][name]["tools"] == len(witness.tools)
        ours = [tool for tool in printed["tools"] if tool["server"] == name]
        assert [tool["tool"] for tool in ours] == [tool["name"] for tool in witness.tools]
        assert [canonical(tool["input_schema"]) for tool in ours] == [
            canonical(tool["inputSchema"]) for tool in witness.tools
        ]


def test_with_strict_a_failed_server_is_exit_code_3(config: Path) -> None:
    assert _toolweave("tools", "--config", config, "--json", "--strict").returncode == 3


@pytest.mark.parametrize(
    "tool, arguments, expected",
    [
        ("everything_get-sum", ["a:=2", "b:=3"], "The sum of 2 and 3 is 5."),
        ("filesystem_read_text_file", ["path={work}/a.txt"], "first line\nsecond line"),
        ("memory_search_nodes", ["query=nobody"], '"entities": []'),
        (
            "sequential-thinking_sequentialthinking",
            ["thought=a", "nextThoughtNeeded:=false", "thoughtNumber:=1", "totalThoughts:=1"],
            '"thoughtHistoryLength": 1',
        ),
        ("time_convert_time", ["source_timezone=UTC", "time=12:00", "target_timezone=Asia/Tokyo"], "+9.0h"),
        ("git:git_log", ["repo_path={work}"], "Message: The first one"),
        ("fetch/fetch", ["url={website}/page.html"], "A loom **weaves** cloth."),
        ("sqlite_read_query", ["query=select word from t"], "weave"),
    ],
)
def test_call_prints_the_answer(
    config: Path, work: Path, website: str, tool: str, arguments: list[str], expected: str
) -> None:
    filled = [argument.format(work=work, website=website) for argument in arguments]
    done = _toolweave("call", "--config", config, tool, *filled)
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout


def test_a_tools_own_error_is_exit_code_1(config: Path) -> None:
    done = _toolweave("call", "--config", config, "--json", "time_get_current_time", "timezone=Nope/Zone")
    assert done.returncode == 1, done.stderr
    printed = json.loads(done.stdout)
    assert printed["is_error"]
    assert "Nope/Zone" in printed["content"][0]["text"]


def test_structured_content_is_printed_as_json(config: Path) -> None:
    done = _toolweave("call", "--config", config, "--json", "everything_get-structured-content", "location=Chicago")
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["structured_content"]) == {"temperature", "conditions", "humidity"}


def test_an_image_is_saved_where_it_is_wanted(config: Path, tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    done = _toolweave("call", "--config", config, "everything_get-tiny-image", "--save", folder)
    assert done.returncode == 0, done.stderr
    (image,) = folder.iterdir()
    assert image.suffix == ".png"
    assert image.read_bytes().startswith(PNG)


def test_an_ad_hoc_command_and_an_ad_hoc_url_need_no_config(everything: dict[str, Any]) -> None:
    where = ["--url", everything["url"]] if "url" in everything else ["--", everything["command"], *everything["args"]]
    done = _toolweave("tools", "--json", *where)
    assert done.returncode == 0, done.stderr
    assert "echo" in {tool["tool"] for tool in json.loads(done.stdout)["tools"]}


def test_resources_and_prompts_are_shown(config: Path) -> None:
    resources = _toolweave("resources", "--config", config, "--server", "everything", "--json")
    prompts = _toolweave("prompts", "--config", config, "--server", "everything", "--json")
    assert resources.returncode == prompts.returncode == 0, resources.stderr + prompts.stderr
    assert "demo://resource/static/document/features.md" in resources.stdout
    assert "completable-prompt" in prompts.stdout


def test_doctor_shows_the_last_words_of_the_server_that_dies(config: Path) -> None:
    done = _toolweave("doctor", "--config", config)
    assert "AttributeError: 'Server' object has no attribute 'list_resources'" in done.stdout + done.stderr
