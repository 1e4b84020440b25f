"""The sign-in of a caller at an upstream that is called as it: the link, the pages, the code, and who misuses them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.connect.targets import eventually
from tests.gateway.caller_world import (
    CallerWorld,
    at_the_pages,
    code_on,
    link_in,
    names,
    principal_of,
    signed_in,
    upstream_server,
    world,
)
from tests.serve.carriers import EACH_ERA
from tests.serve.company import Browser
from toolweave import Callbacks, McpConnection, ProtocolError, connect_mcp

TEST_SECONDS = 60

pytestmark = pytest.mark.slow

LIST_CHANGED = "notifications/tools/list_changed"


def person(made: CallerWorld, user: str, pages: list[str], *, approves: bool = True) -> Callable[[Any], Any]:
    """Return a user: goes to the pages, types the code, and allows or refuses whatever else is asked."""

    async def answer(asked: Any) -> Any:
        if asked.mode == "url":
            pages.append(await at_the_pages(asked.url))
            made.signed_in_as(user)
            return {}
        if "code" in asked.schema.get("properties", {}):
            return {"code": code_on(pages[-1])}
        pages.append(asked.message)
        return {"approved": True} if approves else None

    return answer


async def sign_in(made: CallerWorld, caller: McpConnection, user: str) -> None:
    """Sign a user in, as one whose client shows texts alone."""
    page = await at_the_pages(link_in((await caller.call_tool("mail_sign_in")).text))
    made.signed_in_as(user)
    done = await caller.call_tool("mail_sign_in", {"code": code_on(page)})
    assert not done.is_error, done.text


# signing in


async def test_a_caller_without_questions_is_given_the_link_and_brings_the_code_back() -> None:
    async with world() as made:
        async with connect_mcp(made.caller("ann")) as caller:
            assert await names(caller) == ["notes_find", "mail_sign_in"]
            asked = await caller.call_tool("mail_sign_in")
            assert asked.is_error
            page = await at_the_pages(link_in(asked.text))
            made.signed_in_as("ann")
            still = await caller.call_tool("mail_sign_in")
            assert "code" in still.text
            done = await caller.call_tool("mail_sign_in", {"code": code_on(page)})
            assert not done.is_error, done.text
            assert await names(caller) == ["notes_find", "mail_whoami"]
            assert (await caller.call_tool("mail_whoami")).text == "ann"
        async with connect_mcp(made.caller("bob")) as caller:
            assert await names(caller) == ["notes_find", "mail_sign_in"]


@EACH_ERA
async def test_a_caller_with_questions_signs_in_within_its_call(era: str) -> None:
    pages: list[str] = []

    async def answer(asked: Any) -> Any:
        if asked.mode == "url":
            pages.append(await at_the_pages(asked.url))
            made.signed_in_as("ann")
            return {}
        return {"code": code_on(pages[-1])}

    async with (
        world() as made,
        connect_mcp(made.caller("ann", protocol=era), callbacks=Callbacks(elicitation=answer)) as caller,
    ):
        if era == "2026-07-28":
            assert (await caller.call_tool("mail_whoami")).text == "ann"
            return
        result = await caller.call_tool("mail_whoami")  # the client asks its user, and makes the call anew
        assert result.is_error
        assert "make this request again" in result.text
        assert (await caller.call_tool("mail_whoami")).text == "ann"


async def test_a_user_who_refuses_is_not_asked_again_within_the_call() -> None:
    async with (
        world() as made,
        connect_mcp(made.caller("ann"), callbacks=Callbacks(elicitation=lambda asked: None)) as caller,
    ):
        result = await caller.call_tool("mail_whoami")

    assert result.is_error
    assert "did not sign in" in result.text


async def test_a_sign_in_that_has_ended_is_asked_for_again() -> None:
    async with world() as made:
        token = await made.grant("ann")
        async with connect_mcp(made.caller("ann")) as caller:
            assert (await caller.call_tool("mail_whoami")).text == "ann"
            del made.host.tokens[token]
            asked = await caller.call_tool("mail_whoami")
            assert asked.is_error
            page = await at_the_pages(link_in(asked.text))
            made.signed_in_as("ann")
            done = await caller.call_tool("mail_sign_in", {"code": code_on(page)})
            assert not done.is_error, done.text
            assert (await caller.call_tool("mail_whoami")).text == "ann"


async def test_the_client_is_registered_once_for_all_callers() -> None:
    async with world() as made:
        for user in ("ann", "bob"):
            async with connect_mcp(made.caller(user)) as caller:
                page = await at_the_pages(link_in((await caller.call_tool("mail_sign_in")).text))
                assert not (await caller.call_tool("mail_sign_in", {"code": code_on(page)})).is_error
        assert made.host.paths().count("/register") == 1


async def test_a_caller_of_a_virtual_server_signs_in_for_all_of_the_gateway() -> None:
    async with world(virtual={"mine": {"servers": ["mail"]}}) as made:
        async with connect_mcp(made.caller("ann") | {"url": f"{made.url}/mine"}) as caller:
            await sign_in(made, caller, "ann")
            assert (await caller.call_tool("mail_whoami")).text == "ann"
        async with connect_mcp(made.caller("ann")) as caller:
            assert (await caller.call_tool("mail_whoami")).text == "ann"


# attacks


async def test_whoever_follows_the_link_of_another_gives_that_one_nothing() -> None:
    """The confused deputy: Eve sends her link to Ann, who signs in with her own account."""
    async with world() as made, connect_mcp(made.caller("eve")) as eve:
        page = await at_the_pages(link_in((await eve.call_tool("mail_sign_in")).text))
        made.signed_in_as("ann")
        assert "no one else" in page
        assert await names(eve) == ["notes_find", "mail_sign_in"]
        assert await made.store.records(principal=principal_of("eve")) == []
        for guess in ("", "0000 0000", "12345678", "x" * 100, "1"):
            assert (await eve.call_tool("mail_sign_in", {"code": guess})).is_error
        await eve.call_tool("mail_sign_in", {"code": "2"})
        late = await eve.call_tool("mail_sign_in", {"code": code_on(page)})
        assert late.is_error
        await eventually(lambda: not made.host.tokens)
        assert await names(eve) == ["notes_find", "mail_sign_in"]


async def test_the_code_of_one_caller_is_worth_nothing_to_another() -> None:
    async with (
        world() as made,
        connect_mcp(made.caller("ann")) as ann,
        connect_mcp(made.caller("eve")) as eve,
    ):
        code = code_on(await at_the_pages(link_in((await ann.call_tool("mail_sign_in")).text)))
        await eve.call_tool("mail_sign_in")
        assert (await eve.call_tool("mail_sign_in", {"code": code})).is_error
        assert not (await ann.call_tool("mail_sign_in", {"code": code})).is_error


async def test_a_link_is_good_once_and_its_redirect_for_one_browser() -> None:
    async with world() as made, connect_mcp(made.caller("ann")) as caller:
        link = link_in((await caller.call_tool("mail_sign_in")).text)
        first, other = Browser(), Browser()
        for browser in (first, other, other):  # looking changes nothing: previews look, too
            page = (await browser.send(link)).body.decode()
        token = re.search(r'name="token" value="([^"]+)"', page)
        assert token is not None
        assert (await first.send(link, form={"token": token[1]}, site="same-origin")).status == 403
        assert (await first.send(link, form={}, site="same-origin")).status == 403
        cross = await other.send(link, form={"token": token[1]}, origin="https://evil.example")
        assert cross.status == 403
        led = await other.send(link, form={"token": token[1]}, site="same-origin")
        assert led.status == 303
        assert (await other.send(link)).status == 404
        assert (await first.send(link, form={"token": token[1]}, site="same-origin")).status == 404
        back = await signed_in(led.headers["location"])
        assert (await first.send(back)).status == 403
        assert (await first.send(f"{made.base}/auth/callback?code=x&state=made-up")).status == 400
        assert (await first.send(f"{made.base}/auth/callback")).status == 400
        assert (await first.send(f"{made.base}/auth/sign-in/made-up")).status == 404
        assert (await first.send(f"{made.base}/auth/else")).status == 404
        done = await other.send(back)
        assert done.status == 200
        assert "frame-ancestors 'none'" in done.headers["content-security-policy"]
        assert (await other.send(back)).status in (400, 403)


async def test_the_pages_show_what_goes_wrong_and_nothing_of_a_lure() -> None:
    async with world() as made, connect_mcp(made.caller("ann")) as caller:
        made.host.redirect = {"code": None, "error": "access_denied", "error_description": "<b>call 555</b>"}
        page = await at_the_pages(link_in((await caller.call_tool("mail_sign_in")).text))
        assert "did not work" in page
        assert "<b>call" not in page
        made.host.redirect = {"iss": "https://evil.example", "error_description": "call 555", "error": "x"}
        page = await at_the_pages(link_in((await caller.call_tool("mail_sign_in")).text))
        assert "555" not in page


# within other requests


async def test_a_call_that_waited_for_the_sign_in_is_judged_like_any_other() -> None:
    """What its tool is was not known when the call was made: rules about it are asked once it is."""
    pages: list[str] = []
    async with world(middleware=[{"name": "approval"}]) as made:
        asked = Callbacks(elicitation=person(made, "ann", pages, approves=False))
        async with connect_mcp(made.caller("ann"), callbacks=asked) as caller:
            result = await caller.call_tool("mail_whoami")
            assert await names(caller) == ["notes_find", "mail_whoami"]

    assert "mail_whoami" in pages[-1]
    assert result.is_error
    assert "not made" in result.text


async def test_a_prompt_leads_to_the_sign_in_and_is_given_after_it() -> None:
    pages: list[str] = []
    async with world() as made:
        asked = Callbacks(elicitation=person(made, "ann", pages))
        async with connect_mcp(made.caller("ann"), callbacks=asked) as caller:
            assert "Hello from mail" in str(await caller.get_prompt("mail_greet"))
        async with connect_mcp(made.caller("bob")) as caller:
            with pytest.raises(ProtocolError, match="/auth/sign-in/"):
                await caller.get_prompt("mail_greet")
            with pytest.raises(ProtocolError, match="x_greet"):
                await caller.get_prompt("x_greet")


async def test_a_resource_whose_sign_in_has_ended_leads_to_another_one() -> None:
    pages: list[str] = []
    async with world() as made:
        token = await made.grant("ann")
        asked = Callbacks(elicitation=person(made, "ann", pages))
        async with connect_mcp(made.caller("ann"), callbacks=asked) as caller:
            assert "the mail of ann" in str(await caller.read_resource("mail://inbox"))
            del made.host.tokens[token]
            assert "the mail of ann" in str(await caller.read_resource("mail://inbox"))


async def test_a_tool_that_needs_more_scopes_leads_to_a_sign_in_that_asks_for_them() -> None:
    pages: list[str] = []
    upstream = upstream_server()

    @upstream.tool(scopes=["mail.send"])
    def send() -> str:
        """Send."""
        return "sent"

    async with world(upstream=upstream) as made:
        await made.grant("ann", scope="mail.read")
        asked = Callbacks(elicitation=person(made, "ann", pages))
        async with connect_mcp(made.caller("ann"), callbacks=asked) as caller:
            assert (await caller.call_tool("mail_whoami")).text == "ann"
            assert (await caller.call_tool("mail_send")).text == "sent"
            assert await names(caller) == ["notes_find", "mail_whoami", "mail_send"]
        (asked_for,) = made.host.authorizations()
        assert set(asked_for["scope"].split()) == {"mail.read", "mail.send"}

        await made.grant("bob", scope="mail.read")
        async with connect_mcp(made.caller("bob")) as caller:
            refused = await caller.call_tool("mail_send")
            page = await at_the_pages(link_in(refused.text))
            made.signed_in_as("bob")
            assert "mail_sign_in" in await names(caller)
            done = await caller.call_tool("mail_sign_in", {"code": code_on(page)})
            assert not done.is_error, done.text
            assert (await caller.call_tool("mail_send")).text == "sent"


# who is told


@EACH_ERA
async def test_a_caller_is_told_of_the_changes_of_its_own_lists_and_nobody_else_is(era: str) -> None:
    async with (
        world() as made,
        connect_mcp(made.caller("ann", protocol=era)) as ann,
        connect_mcp(made.caller("bob", protocol=era)) as bob,
    ):
        told: dict[str, list[str]] = {"ann": [], "bob": []}
        for user, caller in (("ann", ann), ("bob", bob)):
            caller.on("notification", lambda one, user=user: told[user].append(one[0]))
            caller.on("tools_changed", lambda change: None)
            assert "mail_sign_in" in await names(caller)
        told["ann"].clear()
        await sign_in(made, bob, "bob")
        await eventually(lambda: LIST_CHANGED in told["bob"])
        assert "mail_sign_in" in await names(ann)
        assert told["ann"] == []


async def test_a_caller_is_not_told_of_the_lists_that_another_one_has_in_the_handshake_era() -> None:
    async with world() as made:
        await made.grant("bob")
        async with (
            connect_mcp(made.caller("ann", protocol="2025-11-25")) as ann,
            connect_mcp(made.caller("bob", protocol="2025-11-25")) as bob,
        ):
            told: dict[str, list[str]] = {"ann": [], "bob": []}
            for user, caller in (("ann", ann), ("bob", bob)):
                caller.on("notification", lambda one, user=user: told[user].append(one[0]))
                await names(caller)
            for heard in told.values():
                heard.clear()
            # The call opens a connection in bob's era, where the result of his tool is wrapped.
            assert (await bob.call_tool("mail_whoami")).text == "bob"
            await eventually(lambda: LIST_CHANGED in told["bob"])
            await names(ann)
            assert told["ann"] == []


async def test_a_legacy_caller_is_told_when_the_page_was_visited_to_its_end() -> None:
    async with world() as made:
        asked = Callbacks(elicitation=lambda one: None)
        caller_of = made.caller("ann", protocol="2025-11-25")
        async with connect_mcp(caller_of, callbacks=asked) as caller:
            told: list[tuple[str, Any]] = []
            caller.on("notification", told.append)
            with pytest.raises(ProtocolError) as caught:
                await caller.call_tool("mail_sign_in")
            data: Any = caught.value.data
            (page,) = data["elicitations"]
            await at_the_pages(page["url"])
            # Lists may change as well: signed in, the caller reaches a connection of its own.
            await eventually(lambda: "notifications/elicitation/complete" in dict(told))

    completed = [params for method, params in told if method == "notifications/elicitation/complete"]
    assert completed == [{"elicitationId": page["elicitationId"]}]


@EACH_ERA
async def test_updates_of_a_resource_of_its_own_reach_the_caller(era: str) -> None:
    upstream = upstream_server()
    async with world(upstream=upstream) as made:
        await made.grant("ann")
        async with connect_mcp(made.caller("ann", protocol=era)) as caller:
            updated: list[Any] = []
            end = await caller.subscribe_resource("mail://inbox", updated.append)
            upstream.changes.resource_updated("mail://inbox")
            await eventually(lambda: bool(updated))
            end()

    assert updated[0].uri == "mail://inbox"
