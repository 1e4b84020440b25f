"""Tools on the console: found by words, tried by a form made from their schema, and kept among the last calls."""

from __future__ import annotations

import json
from html import unescape
from urllib.parse import quote

import anyio
import pytest

from tests.console.browsing import Browser, Page, SentForm
from tests.gateway.running import RunningGateway
from toolweave import ProtocolError, connect_mcp

HIDDEN = r"\u202e\u200b"
LOOK = {"hx-request": "true"}


def names(page: Page) -> list[str]:
    """Return the tools that a list shows."""
    found = [attributes["href"] for tag, attributes in page.tags if tag == "a" and "tool-" in attributes.get("id", "")]
    return [one.partition("name=")[2] for one in found]


def tool(browser: Browser, name: str) -> tuple[Page, SentForm]:
    """Return the page of a tool, and its form."""
    page = browser.get(f"/ui/tool?name={quote(name)}")
    assert page.status == 200, page.text
    return page, page.form("/tool")


def fill(page: Page, form: SentForm, **values: str) -> dict[str, str]:
    """Return the fields of a form with some filled in, by their labels."""
    return {page.named(form, label): text for label, text in values.items()}


def result(page: Page) -> object:
    """Return the structured result that a page shows."""
    shown = page.html.partition('aria-label="Structured content">')[2].partition("</pre>")[0]
    return json.loads(unescape(shown))


@pytest.mark.slow
def test_tools_are_found_by_words_of_names_descriptions_and_servers(browser: Browser) -> None:
    every = browser.get("/ui/tools")

    assert len(names(every)) == 6
    assert "6 tools" in every.text
    assert names(browser.get("/ui/tools?q=KITCHEN+dish")) == ["kitchen_order"]
    assert names(browser.get("/ui/tools?q=fail")) == ["kitchen_fail"]
    none = browser.get("/ui/tools?q=%3Cscript%3Enone", LOOK)
    assert "No tool has all these words" in none.text
    assert "0 of 6 tools" in none.text
    assert "<html" not in none.html


def test_what_servers_say_is_escaped_and_its_hidden_characters_are_written_out(browser: Browser) -> None:
    listed, (shown, form) = browser.get("/ui/tools"), tool(browser, "kitchen_rude")
    called = browser.submit(form)

    assert f"<script>alert('described')</script> {HIDDEN} & more" in listed.text
    assert f"<script>alert('described')</script> {HIDDEN} & more" in shown.text
    assert rf"<img src=x onerror=alert('said')>{HIDDEN}\x1b[31m" in called.text
    for page in (listed, shown, called):
        assert "\u202e" not in page.html
        assert not [
            tag for tag, attributes in page.tags if tag == "img" or (tag == "script" and "src" not in attributes)
        ]


def test_a_form_is_made_from_the_schema(browser: Browser) -> None:
    page, form = tool(browser, "kitchen_order")
    kinds = {
        attributes["name"]: (tag, attributes.get("type", "text"), "required" in attributes)
        for tag, attributes in page.tags
        if tag in ("input", "select", "textarea") and attributes.get("name", "").startswith("f")
    }

    assert {
        label: kinds[page.named(form, label)] for label in form.labels.values() if label != "Arguments as JSON"
    } == {
        "dish": ("input", "text", True),
        "count": ("input", "number", False),
        "price": ("input", "number", False),
        "spicy": ("select", "text", False),
        "size": ("select", "text", False),
        "extras": ("textarea", "text", False),
        "message": ("textarea", "text", False),
    }
    assert form.fields[page.named(form, "count")] == "2"


def test_a_tool_is_called_with_what_the_form_says(browser: Browser) -> None:
    page, form = tool(browser, "kitchen_order")
    values = {"dish": "soup <&>", "price": "1.5", "spicy": "0", "size": "1", "extras": '["salt"]', "message": "a\r\nb"}

    called = browser.submit(form, **fill(page, form, **values))

    assert called.status == 200, called.text
    assert "the tool answered" in called.text
    assert result(called) == {
        "dish": "soup <&>",
        "count": 2,
        "price": 1.5,
        "spicy": True,
        "size": "large",
        "extras": ["salt"],
        "message": "a\nb",
    }
    assert called.form("/tool").fields[page.named(form, "dish")] == "soup <&>"  # to be changed and called again


def test_fields_that_are_wrong_are_named_and_nothing_is_called(browser: Browser) -> None:
    page, form = tool(browser, "kitchen_order")
    values = {"dish": "soup", "count": "many", "price": "dear", "extras": "[", "size": "9"}

    called = browser.submit(form, **fill(page, form, **values))

    assert (called.status, "It was not called." in called.text) == (422, True)
    for text in ("a whole number is expected", "it is not JSON", "one of the values is expected"):
        assert text in called.text
    invalid = [attributes["name"] for _, attributes in called.tags if attributes.get("aria-invalid") == "true"]
    assert sorted(invalid) == sorted(page.named(form, label) for label in ("count", "price", "extras", "size"))
    assert called.form("/tool").fields[page.named(form, "count")] == "many"


@pytest.mark.slow
def test_all_arguments_may_be_given_as_json(browser: Browser) -> None:
    page, _ = tool(browser, "kitchen_order")
    form = page.forms[-1]

    right = browser.submit(form, json='{"dish": "pie", "count": 1}')
    wrong = browser.submit(form, json="[1]")
    missing = browser.submit(form, json="")

    assert '"dish": "pie"' in right.text
    assert (wrong.status, "a JSON object is expected" in wrong.text) == (422, True)
    assert (missing.status, "dish" in missing.text) == (200, True)  # its server says what is missing


@pytest.mark.slow
def test_a_form_of_a_definition_that_has_changed_is_not_used(browser: Browser) -> None:
    _, form = tool(browser, "kitchen_who")

    page = browser.submit(form, seen="0")

    assert (page.status, "has changed" in page.text) == (422, True)


def test_pictures_are_drawn_and_broken_ones_are_told(browser: Browser) -> None:
    _, form = tool(browser, "kitchen_picture")

    page = browser.submit(form)

    pictures = [attributes for tag, attributes in page.tags if tag == "img"]
    assert [one["src"].partition(",")[0] for one in pictures] == ["data:image/png;base64"]
    assert pictures[0]["alt"]
    assert "[image: its base64 is broken]" in page.text
    assert "[image: image/svg+xml" in page.text


def test_the_rules_of_the_gateway_hold_for_the_console(browser: Browser) -> None:
    _, form = tool(browser, "kitchen_secret")

    page = browser.submit(form)

    assert "Unknown tool" in page.text
    assert "Structured" not in page.text


def test_a_tool_that_is_not_there_is_told(browser: Browser) -> None:
    page = browser.get("/ui/tool?name=%3Cnone%3E")

    assert (page.status, "Tool '<none>' was not found" in page.text) == (404, True)


def test_prompts_and_resources_are_listed(browser: Browser) -> None:
    page = browser.get("/ui/offers")

    for text in ("1 prompt, 1 resource, 0 templates", "greet", "arguments: whom", "notes://all", "All notes."):
        assert text in page.text


def test_the_last_calls_are_kept_without_values(browser: Browser) -> None:
    page, form = tool(browser, "kitchen_fail")
    browser.submit(form, **fill(page, form, secret="a-value-of-an-argument"))
    browser.submit(tool(browser, "kitchen_who")[1])

    calls, failed = browser.get("/ui/calls"), browser.get("/ui/calls?only=failed")

    rows = calls.html.partition("<tbody>")[2].split("<tr>")[1:]
    mine = next(one for one in rows if "kitchen_fail" in one)
    for text in ("tool_error", "it failed on purpose", "console", "string(22)", "toolweave console"):
        assert text in mine
    assert "a-value-of-an-argument" not in calls.html
    assert any("kitchen_who" in one and ">ok<" in one for one in rows)
    assert "kitchen_who" not in failed.text
    assert "kitchen_fail" in failed.text


async def call_what_is_not_there(running: RunningGateway) -> None:
    """Call a tool that a gateway does not have, as any client."""
    async with connect_mcp(running.entry(), name="stranger") as connection:
        with pytest.raises(ProtocolError):
            await connection.request(
                "tools/call", {"name": "made_<b>up", "arguments": {"key": "a-value-of-an-argument"}}
            )


@pytest.mark.slow
def test_a_call_that_the_gateway_refuses_is_kept_with_its_code(running: RunningGateway, browser: Browser) -> None:
    anyio.run(call_what_is_not_there, running)

    calls = browser.get("/ui/calls?only=failed")

    (row,) = (one for one in calls.html.partition("<tbody>")[2].split("<tr>") if "made_" in one)
    for text in ("made_&lt;b&gt;up", "error -32602", "anonymous", "string(22)"):
        assert text in row
    assert "a-value-of-an-argument" not in calls.html
