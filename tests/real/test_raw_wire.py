"""The raw lister itself, against a server of twenty lines: it must be a witness one can believe."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.real.raw_wire import RawWireError, canonical, list_tools

SERVER = """
import json, sys
mode = sys.argv[1]
def say(request, **answer):
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    method, params = request.get("method"), request.get("params", {})
    if method == "server/discover":
        if mode == "modern":
            print("a line that is no JSON", flush=True)
            say(request, result={"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
        elif mode == "dies":
            sys.exit(3)
        else:
            say(request, error={"code": -32601, "message": "no"})
    elif method == "initialize":
        print(json.dumps({"jsonrpc": "2.0", "id": "mine", "method": "roots/list"}), flush=True)
        assert json.loads(sys.stdin.readline())["error"]["code"] == -32601
        say(request, result={"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {}})
    elif method == "tools/list":
        assert ("_meta" in params) == (mode == "modern")
        cursor = params.get("cursor")
        page = {None: (["a"], ""), "": (["b"], "last"), "last": (["c"], "" if mode == "loops" else None)}[cursor]
        tools = [{"name": name, "inputSchema": {"type": "object"}, "x-unknown": 1.0} for name in page[0]]
        say(request, result={"tools": tools, **({} if page[1] is None else {"nextCursor": page[1]})})
"""


def _entry(mode: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-c", SERVER, mode]}


def test_every_page_is_followed_and_unknown_members_are_kept(tmp_path: Path) -> None:
    listing = list_tools(_entry("modern"), cwd=tmp_path, timeout=30)
    assert [tool["name"] for tool in listing.tools] == ["a", "b", "c"]
    assert listing.tools[0]["x-unknown"] == 1.0
    assert (listing.protocol_version, listing.probe, listing.pages) == ("2026-07-28", "answered", 3)
    assert listing.noise == ["a line that is no JSON"]


@pytest.mark.parametrize("mode, probe", [("legacy", "refused -32601"), ("dies", "died")])
def test_a_server_that_refuses_the_probe_or_dies_of_it_is_asked_the_old_way(
    tmp_path: Path, mode: str, probe: str
) -> None:
    listing = list_tools(_entry(mode), cwd=tmp_path, timeout=30)
    assert (listing.protocol_version, listing.probe) == ("2025-06-18", probe)
    assert listing.requests == ["roots/list"]
    assert len(listing.tools) == 3


def test_a_loop_of_cursors_ends(tmp_path: Path) -> None:
    assert list_tools(_entry("loops"), cwd=tmp_path, timeout=30).pages == 3


def test_a_server_that_cannot_be_listed_shows_its_last_words(tmp_path: Path) -> None:
    entry = {"command": sys.executable, "args": ["-c", "raise SystemExit('the dog ate it')"]}
    with pytest.raises(RawWireError, match=r"ended with 1 before answering initialize.*the dog ate it"):
        list_tools(entry, cwd=tmp_path, timeout=30)


def test_values_that_python_takes_for_equal_are_told_apart() -> None:
    assert len({canonical(value) for value in (1, 1.0, True)}) == 3
    assert canonical({"a": 1, "b": 2}) == canonical({"b": 2, "a": 1})
