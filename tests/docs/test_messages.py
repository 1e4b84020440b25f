"""docs/messages.md: no message is missing, each is with the page that has its cure, and real errors are found."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import pytest

from tests.architecture.source import modules
from tests.docs.cures import CODES, CURES
from tests.docs.messages import all_messages, cure_of, is_in, message_tables
from tests.docs.pages import CHECKOUT
from tests.docs.test_troubleshooting import MESSAGES
from toolweave import Agent, Limits, ScriptedModel, ToolRegistry, errors, tool
from toolweave.agent import RunResult
from toolweave.config import server_config
from toolweave.models import model_from
from toolweave.oauth import OAuth
from toolweave.state import open_store

CODE = re.compile(
    r"(?:invalid|unsupported|unauthorized|temporarily|insufficient|expired|access|authorization|slow|use_dpop|server)_"
    r"(?:request|client|grant|grant_type|response_type|scope|target|token|unavailable|denied|pending|down|nonce|error)"
)


def pattern_of(text: str) -> re.Pattern[str]:
    """Return what matches a message with values in place of its gaps."""
    return re.compile(".*".join(map(re.escape, text.split("..."))), re.DOTALL)


def found(text: str) -> bool:
    """Whether the text of an error, or of a page with `...` for values, is a message of this page."""
    text = text.partition(", such as")[0]  # examples of values
    known = [one.text.partition(", such as")[0] for one in all_messages()]
    return any(pattern_of(one).search(text) or pattern_of(text).search(one) for one in known)


def test_every_message_has_a_page_with_its_cure_and_every_page_has_messages() -> None:
    used = {cure_of(one.module).title for one in all_messages()}  # a module without a page fails here

    assert used == {cure.title for cure in CURES}


def test_a_cure_names_modules_that_exist_and_each_once() -> None:
    names = {module.name.partition(".")[2] for module in modules()}
    prefixes = [prefix for cure in CURES for prefix in cure.modules]

    assert len(set(prefixes)) == len(prefixes)
    missing = [one for one in prefixes if not any(is_in(name, one) for name in names)]
    assert not missing


def test_every_class_of_errors_has_messages_on_the_page() -> None:
    named = {one.error for one in all_messages()}
    # the first two are bases; the third is made of a `ToolError` that has its text already
    classes = {
        name
        for name, one in inspect.getmembers(errors, inspect.isclass)
        if issubclass(one, Exception) and name not in {"ToolweaveError", "ServerError", "ToolExecutionError"}
    }

    assert classes <= named


def test_every_message_of_troubleshooting_is_on_the_page() -> None:
    assert not [message for message in MESSAGES if not found(message)]


def test_every_code_of_oauth_in_the_source_has_a_meaning() -> None:
    rooms = ("toolweave.oauth", "toolweave.serve._auth", "toolweave.serve._oauth_server")
    texts = {
        node.value
        for module in modules()
        if module.name.startswith(rooms)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value)
    }

    assert texts - {"access_token"} == CODES.keys() & texts


@pytest.mark.parametrize(("column", "page"), [("stop_reason", "agents.md"), ("kind", "models.md")])
def test_every_reason_and_kind_of_failure_is_explained(column: str, page: str) -> None:
    text = (CHECKOUT / "docs" / page).read_text(encoding="utf-8")
    table = text.partition(f"| {column} |")[2].partition("\n\n")[0]
    shown = set(re.findall(r"`([a-z_]+)`", "".join(line.split("|")[1] for line in table.splitlines()[2:])))
    if column == "kind":
        documented = re.search(r"kind: One of (.*?)status:", inspect.getdoc(errors.ModelError) or "", re.DOTALL)
        assert documented
        assert shown == set(re.findall(r'"([a-z_]+)"', documented[1]))
    else:
        assert shown == set(get_args(get_type_hints(RunResult)["stop_reason"]))


@tool
def area(width: float) -> float:
    """Return the area of a square."""
    return width * width


RAISED: dict[str, Callable[[], Any]] = {
    "an entry with a wrong key": lambda: server_config({"comand": "x"}, name="x"),
    "a wrong type in an entry": lambda: server_config({"command": "x", "args": 3}, name="x"),
    "a limit below zero": lambda: Limits(tool_calls=-1),
    "an agent with a wrong policy": lambda: Agent(ScriptedModel([]), confirm="sometimes"),  # pyright: ignore[reportArgumentType]
    "a model without a provider": lambda: model_from("gpt-5.1"),
    "a store of an unknown kind": lambda: open_store("mongodb://x"),
    "a sign-in without time": lambda: OAuth(timeout=-1),
    "a tool that is there already": lambda: ToolRegistry([area, area]),
}


@pytest.mark.parametrize("what", RAISED)
def test_the_text_of_a_raised_error_is_found_on_the_page(what: str) -> None:
    with pytest.raises((errors.ToolweaveError, ValueError, TypeError)) as raised:
        RAISED[what]()

    assert found(str(raised.value)), str(raised.value)


def test_a_text_with_values_and_choices_becomes_messages_with_gaps() -> None:
    texts = {one.text for one in all_messages()}

    assert "has both 'command' and 'url'; say which with 'transport'" in texts
    assert any(text.startswith("no tool ...") for text in texts)
    assert any("a sign-in is required: ..., then try again" in text for text in texts)
    assert any("call `toolweave.oauth.sign_in` with the same settings" in text for text in texts)
    assert "PKCE with S256 is required" in texts  # its class takes a code first
    assert "the body is too large, or did not come in time" in texts


def test_a_pattern_that_the_source_looks_for_is_not_a_message() -> None:
    assert not [one.text for one in all_messages() if "(?" in one.text]


def test_a_message_has_one_row_with_all_its_classes() -> None:
    section = "".join(message_tables()).partition("## A server does not start\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `its process ended` |")]

    assert rows == ["| `its process ended` | `ConnectError`, `ConnectionLostError` |"]


@pytest.mark.parametrize(
    "line",
    [
        "folder 'tools' is left out: it leads out of 'served'",  # a line of `problems`
        "a function of 'tools/a.py' is left out: its parameter has no JSON form",
        "check the path of the URL: most servers answer at /mcp, older ones at /sse",  # a hint that a function returns
        "its input schema has 300 kB; parts nested more than 5 levels deep are left open",  # of a conversion of OpenAPI
        "the token endpoint answers with a form, not with JSON",  # an oddity that is kept as a line
        "missing required property 'dish'",
        (
            "server 'b': toolweave.lock has its pins as 'a', so nothing is compared; rename them there, or run "
            "`toolweave pin b`"
        ),
    ],
)
def test_a_line_of_problems_and_a_hint_are_on_the_page(line: str) -> None:
    assert any(pattern_of(one.text).fullmatch(line) for one in all_messages() if len(one.text) > len(line) // 3)


def test_a_text_of_several_rooms_names_all_classes_in_each_of_its_rows() -> None:
    rows = [line for line in "".join(message_tables()).splitlines() if line.startswith("| `a number of seconds` |")]

    assert len(rows) > 1
    assert set(rows) == {"| `a number of seconds` | `ConfigError`, `TypeError` |"}
