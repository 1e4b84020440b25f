"""Redaction of what patterns find, in results, errors, notifications and arguments."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.middleware.company import Json, caller
from tests.serve.carriers import EACH_CARRIER, connected
from tests.serve.talking import talking
from toolweave import ImageContent, ToolError, tool
from toolweave.errors import RequestError
from toolweave.middleware import OfferSelection, Redaction
from toolweave.serve import McpServer, create_mcp_server, prompt, resource
from toolweave.tools import CallContext

MAIL = "ada@example.org"
MASKED = "[redacted email]"
EMAIL = Redaction(patterns={"email": ""})


def mails(*middleware: Any, **options: Any) -> McpServer:
    @tool
    def text(said: str = MAIL) -> str:
        """Return a text."""
        return f"write to {said}"

    @tool
    def structured() -> dict[str, Any]:
        """Return a value."""
        return {"people": [{"mail": MAIL, "age": 36, "ok": True, "none": None}]}

    @tool
    def fails() -> str:
        """Fail."""
        raise ToolError(f"no mail for {MAIL}", data={"who": MAIL})

    @tool
    async def steps(ctx: CallContext) -> str:
        """Report and log."""
        await ctx.progress(1, 2, f"reading {MAIL}")
        await ctx.log("error", {"mail": MAIL})
        return "done"

    @prompt
    def letter() -> str:
        """Write."""
        return f"Dear {MAIL}"

    @resource("mail://one")
    def one() -> str:
        """Read."""
        return MAIL

    return create_mcp_server(
        "mails",
        tools=[text, structured, fails, steps],
        prompts=[letter],
        resources=[one],
        middleware=middleware,
        logging=True,
        **options,
    )


@EACH_CARRIER
async def test_nothing_that_a_pattern_finds_reaches_a_client(carrier: str, era: str) -> None:
    told: list[str | None] = []
    async with connected(mails(EMAIL), carrier, era) as connection:
        text = await connection.call_tool("text", {})
        structured = await connection.call_tool("structured", {})
        failed = await connection.call_tool("fails", {})
        await connection.call_tool("steps", {}, on_progress=lambda one: told.append(one.message))
        letter = await connection.get_prompt("letter")
        read = await connection.read_resource("mail://one")

    assert text.text == f"write to {MASKED}"
    assert structured.structured_content == {"people": [{"mail": MASKED, "age": 36, "ok": True, "none": None}]}
    assert MAIL not in str(structured.raw)
    assert MAIL not in str((failed, failed.raw))
    assert MASKED in failed.text
    assert told == [f"reading {MASKED}"]
    assert MAIL not in str((letter, read))
    assert MASKED in str(letter)
    assert MASKED in str(read)


async def test_log_messages_and_errors_are_redacted() -> None:
    peer = caller(version="2025-11-25", conversation="one")
    await peer.call(mails(EMAIL), "steps")

    async def refusing(request: Any, call_next: Any) -> Json:
        raise RequestError(f"no {MAIL}", code=-32000, data={"mail": [MAIL]})

    with pytest.raises(RequestError) as caught:
        await caller().call(mails(EMAIL, refusing), "text")

    logged = [params["data"] for method, params in peer.notifications if method == "notifications/message"]
    assert logged == [{"mail": MASKED}]
    assert (caught.value.message, caught.value.data) == (f"no {MASKED}", {"mail": [MASKED]})


async def test_arguments_are_redacted_before_the_tool_gets_them_if_asked_to() -> None:
    both = mails(Redaction(patterns={"email": ""}, arguments=True, results=False))
    results = mails(EMAIL)

    hidden = await caller().call(both, "text", {"said": "b@example.org"})
    kept = await caller().call(both, "text", {})
    shown = await caller().call(results, "text", {"said": "[redacted email]"})

    assert hidden["content"][0]["text"] == f"write to {MASKED}"
    assert kept["content"][0]["text"] == f"write to {MAIL}"
    assert shown["content"][0]["text"] == f"write to {MASKED}"


async def test_results_of_tasks_are_redacted_however_they_are_got() -> None:
    server = mails(EMAIL, tasks={"text": "optional"})
    async with talking(server) as talk:
        created = await talk.ask("tools/call", {"name": "text", "arguments": {}})
        identifier = created["taskId"]
        await talk.send("subscriptions/listen", {"notifications": {"taskIds": [identifier]}})
        await talk.until(lambda: any(one["status"] == "completed" for one in talk.of("notifications/tasks")))
        got = await talk.ask("tasks/get", {"taskId": identifier})
        told = talk.of("notifications/tasks")

    assert got["taskId"] == identifier
    assert MASKED in str(got["result"])
    assert MAIL not in str((got, told))


async def test_patterns_of_ones_own_and_another_replacement() -> None:
    server = mails(Redaction(patterns={"word": r"\bwrite\b", "email": ""}, replacement="<{name}>"))

    result = await caller().call(server, "text")

    assert result["content"][0]["text"] == "<word> to <email>"


async def test_only_what_is_selected_is_redacted() -> None:
    server = mails(Redaction(patterns={"email": ""}, only=[OfferSelection(names=["structured"])]))

    assert MAIL in str(await caller().call(server, "text"))
    assert MAIL not in str(await caller().call(server, "structured"))


async def test_what_is_encoded_and_what_goes_back_is_left_as_it_is() -> None:
    @tool
    def picture() -> ImageContent:
        """Return an image."""
        return ImageContent(data=base64.b64encode(b"\x89PNG" + b"0" * 60).decode(), mime_type="image/png")

    server = create_mcp_server(
        "pictures", tools=[picture], middleware=[Redaction(patterns={"any": r"[A-Za-z0-9+/]{4}"})]
    )

    result = await caller().call(server, "picture")

    assert base64.b64decode(result["content"][0]["data"]).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("name", "found", "left"),
    [
        ("email", "ada.l+x@mail.example.co.uk", "ada at example"),
        ("card", "4111 1111 1111 1111", "1234 5678"),
        ("jwt", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl", "eyJ.a.b"),
        ("private_key", "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", "-----BEGIN CERT-----"),
        ("aws_key", "AKIAABCDEFGHIJKLMNOP", "AKIA"),
        ("github_token", "ghp_" + "a1B2" * 9, "ghp_short"),
        ("slack_token", "xoxb-1234567890-abcdef", "xoxb"),
    ],
)
async def test_patterns_with_a_name(name: str, found: str, left: str) -> None:
    server = mails(Redaction(patterns={name: ""}))

    result = await caller().call(server, "text", {"said": f"{found} and {left}"})

    assert result["content"][0]["text"] == f"write to [redacted {name}] and {left}"


@pytest.mark.parametrize(("patterns", "said"), [({"mine": ""}, "is empty"), ({"mine": "("}, "pattern 'mine'")])
def test_a_pattern_that_is_none_is_refused(patterns: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Redaction(patterns=patterns)
