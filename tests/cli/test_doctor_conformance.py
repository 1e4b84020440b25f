"""`toolweave doctor --conformance`: seventeen boxes for any server, and no harm done by looking."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli import odd_server
from tests.cli.command import Done, write_config
from tests.servers.fixtures import fault_command, sdk_command
from toolweave.cli._conformance.report import BOXES
from toolweave.cli.demo.numbers import numbers_server
from toolweave.cli.demo.serving import serving_http

Cli = Callable[..., Done]

TITLES = [box.title for box in BOXES]
SAFE = {"readOnlyHint": True}
NOTES = [sys.executable, "-m", "toolweave.cli.demo.notes"]
NUMBERS = [sys.executable, "-m", "toolweave.cli.demo.numbers"]


def tool(name: str = "look", **members: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    return {
        "name": name,
        "description": "Look at a city.",
        "inputSchema": {**schema, "additionalProperties": False},
        "annotations": SAFE,
        **members,
    }


def text(words: str, **members: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}], **members}


def examined(cli: Cli, script: dict[str, Any], *options: str) -> tuple[Done, list[dict[str, Any]]]:
    """Examine the scripted server; returns how the command ended and its boxes."""
    done = cli(
        "doctor", "--conformance", "--json", *options, "--", sys.executable, odd_server.__file__, json.dumps(script)
    )
    (server,) = done.json["servers"].values()
    return done, server["boxes"]


def box(boxes: list[dict[str, Any]], number: int) -> tuple[str, str]:
    found = boxes[number - 1]
    assert found["number"] == number
    return found["outcome"], found["reason"]


@pytest.mark.slow
@pytest.mark.requirement("R106")
def test_there_are_seventeen_boxes_in_the_order_of_the_checklist(cli: Cli) -> None:
    done = cli("doctor", "--conformance", "--json", "--", *NUMBERS)

    (server,) = done.json["servers"].values()
    assert [found["number"] for found in server["boxes"]] == list(range(1, 18))
    assert [found["title"] for found in server["boxes"]] == TITLES
    assert {found["outcome"] for found in server["boxes"]} <= {"pass", "warn", "fail", "not applicable"}
    assert all(found["reason"] for found in server["boxes"])
    assert server["protocol_version"] == "2026-07-28"
    assert done.code == 0


@pytest.mark.slow
@pytest.mark.requirement("R106")
def test_a_table_shows_each_box_with_its_reason(cli: Cli) -> None:
    done = cli("doctor", "--conformance", "--", *sdk_command())

    rows = {int(found[2]): found[1] for found in re.finditer(r"^([✓!✗–]) (\d+) ", done.out, re.MULTILINE)}
    assert list(rows) == list(range(1, 18))
    assert rows[1] == "✓"
    assert rows[10] == "✗"
    assert "an unknown tool: a result with isError; error -32602 is expected" in done.out
    assert done.code == 1


@pytest.mark.slow
@pytest.mark.requirement("R106")
def test_every_kind_of_target_is_examined(cli: Cli, folder: Path) -> None:
    config = write_config(folder, {"one": NOTES, "two": NUMBERS})

    with serving_http(numbers_server(pause=0)) as url:
        assert len(cli("doctor", "--conformance", "--json", "--url", url).json["servers"]) == 1
    assert list(cli("doctor", "--conformance", "--json", "--config", config).json["servers"]) == ["one", "two"]
    only = cli("doctor", "--conformance", "--json", "--config", config, "--server", "two").json["servers"]
    assert {name: server["protocol_version"] for name, server in only.items()} == {"two": "2026-07-28"}


@pytest.mark.slow
def test_a_server_that_cannot_be_reached_is_exit_code_3_and_costs_the_others_nothing(cli: Cli, folder: Path) -> None:
    config = write_config(folder, {"good": NOTES, "dies": fault_command("exits_at_once")})

    done = cli("doctor", "--conformance", "--json", "--config", config)

    assert done.code == 0
    assert done.json["servers"]["dies"]["boxes"] == []
    assert "exit code 3" in done.json["servers"]["dies"]["error"]
    assert len(done.json["servers"]["good"]["boxes"]) == 17
    assert cli("doctor", "--conformance", "--config", config, "--strict").code == 3
    assert cli("doctor", "--conformance", "--config", config, "--server", "dies").code == 3


def test_call_without_conformance_is_wrong_usage(cli: Cli) -> None:
    assert cli("doctor", "--call", "--", *NOTES).code == 2


TOOLS: list[tuple[str, dict[str, Any]]] = [
    ("reads", tool("reads")),
    ("writes", tool("writes", annotations={})),
    ("open", tool("open", annotations={}, inputSchema={"type": "object"})),
    ("destroys", tool("destroys", annotations={"destructiveHint": True})),
]


@pytest.mark.parametrize(
    "options, called, refused",
    [
        ((), {"reads"}, {"reads", "writes"}),
        (("--call",), {"reads", "writes", "open", "destroys"}, {"reads", "writes", "destroys"}),
    ],
)
def test_only_what_is_safe_is_called(cli: Cli, options: tuple[str, ...], called: set[str], refused: set[str]) -> None:
    script = {"tools": [definition for _, definition in TOOLS], "calls": {"*": text("no such thing", isError=True)}}
    command = [sys.executable, str(Path(__file__).with_name("noting.py")), odd_server.__file__, json.dumps(script)]

    calls = Path("calls.txt")
    done = cli("doctor", "--conformance", "--json", *options, "--", *command, str(calls.absolute()))

    assert done.code in (0, 1)
    made = {tuple(line.split(" ", 2)[1:]) for line in calls.read_text().splitlines() if line.startswith("called ")}
    made.discard(("toolweave_doctor_no_such_tool", "{}"))
    fits = {name: "{}" if name == "open" else '{"city": "example"}' for name, _ in TOOLS}
    assert {name for name, arguments in made if arguments == fits[name]} == called
    assert {name for name, arguments in made if arguments != fits[name]} == refused


TRACEBACK = "Traceback (most recent call last):\n  ..."
GOOD = {"look": text("missing required property: city", isError=True)}


@pytest.mark.parametrize(
    "number, outcome, reason, script",
    [
        (1, "fail", "'look' is listed 2 times", {"tools": [tool(), tool()]}),
        (1, "fail", "tool 2 has no name", {"tools": [tool(), {"inputSchema": {"type": "object"}}]}),
        (1, "warn", "'a b' has characters", {"tools": [tool("a b")]}),
        (1, "not applicable", "it lists no tools", {}),
        (2, "warn", "'look' has no description", {"tools": [tool(description="")]}),
        (2, "fail", "'look': the description is not a string", {"tools": [tool(description=5)]}),
        (3, "fail", "'look': no inputSchema", {"tools": [tool(inputSchema=None)]}),
        (3, "fail", "'look': the root needs type 'object'", {"tools": [tool(inputSchema={"type": "string"})]}),
        (3, "fail", "not a valid JSON Schema", {"tools": [tool(inputSchema={"type": "object", "required": 5})]}),
        (3, "fail", "points outside", {"tools": [tool(inputSchema={"type": "object", "$ref": "http://h/x"})]}),
        (4, "pass", "additionalProperties: false", {"tools": [tool()]}),
        (4, "warn", "'look' accepts any other", {"tools": [tool(inputSchema={"type": "object"})]}),
        (5, "fail", "'look': title is not a string", {"tools": [tool(title=5)]}),
        (
            5,
            "fail",
            "annotations.readOnlyHint is not a boolean",
            {"tools": [tool(annotations={"readOnlyHint": "yes"})]},
        ),
        (5, "fail", "annotations is not an object", {"tools": [tool(annotations=[])]}),
        (5, "fail", "an icon has no src", {"tools": [tool(icons=[{"src": "http://h/i.png"}])]}),
        (5, "fail", "an icon has no src", {"tools": [tool(icons={})]}),
        (5, "fail", "type 'object' at its root", {"tools": [tool(outputSchema={"type": "array"})]}),
        (5, "fail", "outputSchema is not a schema", {"tools": [tool(outputSchema=[])]}),
        (5, "fail", "not a valid JSON Schema", {"tools": [tool(outputSchema={"type": "object", "required": 5})]}),
        (6, "pass", "results seen", {"tools": [tool()], "calls": {"look": text("Oslo")}}),
        (
            6,
            "fail",
            "wrapped once more, as result.result",
            {"tools": [tool()], "calls": {"look": {"result": text("x")}}},
        ),
        (6, "fail", "no list 'content'", {"tools": [tool()], "calls": {"look": {"structuredContent": {}}}}),
        (6, "not applicable", "no call", {"tools": [tool(inputSchema={"type": "object"}, annotations={})]}),
        (7, "fail", "no type", {"tools": [tool()], "calls": {"look": {"content": [{"text": "x"}]}}}),
        (7, "fail", "unknown type 'video'", {"tools": [tool()], "calls": {"look": {"content": [{"type": "video"}]}}}),
        (
            7,
            "fail",
            "type 'image' has no data and no mimeType",
            {"tools": [tool()], "calls": {"look": {"content": [{"type": "image"}]}}},
        ),
        (
            7,
            "fail",
            "an embedded resource needs a uri",
            {"tools": [tool()], "calls": {"look": {"content": [{"type": "resource", "resource": {"uri": "a:b"}}]}}},
        ),
        (8, "pass", "1 wrong calls were refused", {"tools": [tool()], "calls": GOOD}),
        (8, "fail", "accepted as if nothing was wrong", {"tools": [tool()], "calls": {"look": text("Oslo")}}),
        (8, "fail", "isError is not a boolean", {"tools": [tool()], "calls": {"look": text("x", isError="yes")}}),
        (
            8,
            "warn",
            "error -32602; a model sees only results",
            {"tools": [tool()], "calls": {"look": {"error": {"code": -32602, "message": "city is missing"}}}},
        ),
        (
            9,
            "fail",
            "structuredContent is missing",
            {"tools": [tool(outputSchema={"type": "object"})], "calls": {"look": text("x")}},
        ),
        (
            9,
            "fail",
            "does not fit",
            {
                "tools": [tool(outputSchema={"type": "object", "required": ["n"]})],
                "calls": {"look": text("{}", structuredContent={})},
            },
        ),
        (
            9,
            "warn",
            "no text block repeats it",
            {
                "tools": [tool(outputSchema={"type": "object"})],
                "calls": {"look": text("fine", structuredContent={"n": 1})},
            },
        ),
        (
            9,
            "pass",
            "1 structured results fit",
            {
                "tools": [tool(outputSchema={"type": "object"})],
                "calls": {"look": text('{"n": 1}', structuredContent={"n": 1})},
            },
        ),
        (10, "pass", "distinguish", {"tools": [tool()]}),
        (
            10,
            "fail",
            "an unknown tool: error -32601; error -32602 is expected",
            {"methods": {"tools/call": {"error": {"code": -32601, "message": "?"}}}},
        ),
        (10, "fail", "an unknown method: a result", {"methods": {"toolweave/no-such-method": {}}}),
        (
            11,
            "fail",
            "the error has no message",
            {"methods": {"tools/call": {"error": {"code": -32602, "message": ""}}}},
        ),
        (
            11,
            "warn",
            "'Internal error' does not name",
            {"methods": {"tools/call": {"error": {"code": -32602, "message": "Internal error"}}}},
        ),
        (
            12,
            "fail",
            "an unknown tool: a stack trace",
            {
                "methods": {
                    "tools/call": {"error": {"code": -32602, "message": "Traceback (most recent call last):\n x"}}
                }
            },
        ),
        (
            12,
            "fail",
            "a stack trace",
            {
                "methods": {
                    "tools/call": {
                        "error": {
                            "code": -32602,
                            "message": "no such tool: x",
                            "data": {
                                "stack": "Error: no\n    at run (/srv/app.js:10:5)\n    at main (/srv/app.js:2:1)"
                            },
                        }
                    }
                }
            },
        ),
        (12, "pass", "none in", {"tools": [tool()], "calls": GOOD}),
        (13, "pass", "1 refusals name the property", {"tools": [tool()], "calls": GOOD}),
        (
            13,
            "warn",
            "names none of city",
            {"tools": [tool()], "calls": {"look": text("these do not fit", isError=True)}},
        ),
        (14, "pass", "1 tool on 1 page", {"tools": [tool()]}),
        (14, "warn", "is ignored", {"methods": {"tools/list": {"tools": [tool()]}}}),
        (
            14,
            "fail",
            "names a next page still",
            {"methods": {"tools/list": {"tools": [tool()], "nextCursor": "again"}}},
        ),
        (15, "pass", "declared and true: tools", {"tools": [tool()]}),
        (15, "fail", "resources are declared, but", {"handshake": {"capabilities": {"tools": {}, "resources": {}}}}),
        (
            15,
            "fail",
            "prompts are not declared, but prompts/list lists some",
            {"methods": {"prompts/list": {"prompts": [{"name": "x"}]}}},
        ),
        (15, "warn", "error -32601 is expected", {"methods": {"prompts/list": {"prompts": []}}}),
        (
            15,
            "fail",
            "tools.listChanged is not a boolean",
            {"handshake": {"capabilities": {"tools": {"listChanged": 1}}}},
        ),
        (15, "fail", "no member 'levels'", {"handshake": {"capabilities": {"tools": {}, "logging": {"levels": []}}}}),
        (16, "pass", "3 reports", {"tools": [tool()], "calls": GOOD, "progress": [1, 2, 3]}),
        (16, "fail", "from 2 to 2", {"tools": [tool()], "calls": GOOD, "progress": [1, 2, 2]}),
        (16, "not applicable", "no call that was made", {"tools": [tool()], "calls": GOOD}),
    ],
    ids=lambda value: str(value) if isinstance(value, (int, str)) else "",
)
@pytest.mark.requirement("R106")
def test_what_a_server_does_wrong_is_found_in_its_box(
    cli: Cli, folder: Path, number: int, outcome: str, reason: str, script: dict[str, Any]
) -> None:
    done, boxes = examined(cli, script)

    found, said = box(boxes, number)
    assert (found, reason in said) == (outcome, True), said
    assert done.code == (1 if any(one["outcome"] == "fail" for one in boxes) else 0)


@pytest.mark.parametrize(
    "outcome, reason, methods",
    [
        ("pass", "1 listed, one was read", {"resources/read": {"uris": {"notes://1": "text"}}}),
        ("fail", "no absolute URI: 'notes'", {"resources/list": {"resources": [{"uri": "notes", "name": "n"}]}}),
        ("fail", "(a:b) has no name", {"resources/list": {"resources": [{"uri": "a:b"}]}}),
        ("fail", "answered as if it were there", {"resources/read": {"contents": [{"uri": "a:b", "text": "x"}]}}),
        ("fail", "contents need a uri", {"resources/read": {"contents": [{"uri": "a:b"}]}}),
        ("fail", "the response has no contents", {"resources/read": {"contents": []}}),
        ("fail", "cannot be read", {"resources/read": {"error": {"code": -32602, "message": "no"}}}),
    ],
)
@pytest.mark.requirement("R106", "R101")
def test_resources_are_read_by_their_uris(
    cli: Cli, folder: Path, outcome: str, reason: str, methods: dict[str, Any]
) -> None:
    listed: dict[str, Any] = {"resources/list": {"resources": [{"uri": "notes://1", "name": "note"}]}}
    script: dict[str, Any] = {"handshake": {"capabilities": {"resources": {}}}, "methods": {**listed, **methods}}
    _, boxes = examined(cli, script)

    found, said = box(boxes, 17)
    assert (found, reason in said) == (outcome, True), said
