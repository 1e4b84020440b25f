"""Approval of calls by the caller's user, in both eras."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from tests.middleware.company import Json, caller, company, token_of
from tests.serve.carriers import EACH_CARRIER, EACH_ERA, connected
from tests.serve.lines import Peer
from toolweave import Callbacks, tool
from toolweave.errors import RequestError
from toolweave.middleware import OfferSelection, UserApproval
from toolweave.serve import McpServer, create_mcp_server
from toolweave.tools import CallContext

LEGACY = "2025-11-25"
ACCEPT: Json = {"action": "accept", "content": {}}
KEY = "toolweave.approval"


@EACH_CARRIER
@pytest.mark.parametrize("answer", ["accept", "decline"])
async def test_the_user_is_asked_before_a_destructive_call(carrier: str, era: str, answer: str) -> None:
    asked: list[str] = []

    def ask(request: Any) -> Any:
        asked.append(request.message)
        return {} if answer == "accept" else None

    server = company(UserApproval())
    async with connected(server, carrier, era, callbacks=Callbacks(elicitation=ask)) as connection:
        read = await connection.call_tool("find", {"text": "it"})
        assert asked == []
        wiped = await connection.call_tool("change", {"text": "x", "amount": 3})

    assert read.text == "found it"
    assert len(asked) == 1
    assert "change" in asked[0]
    assert '"amount": 3' in asked[0]
    assert wiped.is_error is (answer == "decline")
    assert wiped.text == ("changed x" if answer == "accept" else "the call was not made: the user did not allow it")


@EACH_ERA
async def test_a_client_that_cannot_ask_is_refused(era: str) -> None:
    async with connected(company(UserApproval()), era=era) as connection:
        result = await connection.call_tool("wipe", {})

    assert result.is_error
    assert "cannot ask" in result.text


@EACH_CARRIER
async def test_a_tool_that_asks_itself_is_approved_once(carrier: str, era: str) -> None:
    asked: list[str] = []
    form = {"type": "object", "properties": {"name": {"type": "string"}}}

    @tool
    async def rename(ctx: CallContext) -> str:
        """Rename something."""
        first = await ctx.elicit("From?", form)
        second = await ctx.elicit("To?", form)
        return f"{(first.content or {})['name']} is {(second.content or {})['name']}"

    def ask(request: Any) -> Any:
        asked.append(request.message)
        return {"name": request.message} if "?" in request.message and "Allow" not in request.message else {}

    server = create_mcp_server("names", tools=[rename], middleware=[UserApproval()])
    async with connected(server, carrier, era, callbacks=Callbacks(elicitation=ask)) as connection:
        result = await connection.call_tool("rename", {})

    assert result.text == "From? is To?"
    assert [one.split("?")[0][:5] for one in asked] == ["Allow", "From", "To"]


@EACH_ERA
async def test_only_what_is_selected_needs_approval(era: str) -> None:
    server = company(UserApproval(only=[OfferSelection(names=["find"])]))
    async with connected(server, era=era) as connection:
        assert (await connection.call_tool("wipe", {})).text == "wiped"
        assert (await connection.call_tool("find", {})).is_error


async def test_a_question_is_shortened_and_made_printable() -> None:
    server = company(UserApproval(message="{tool}: {arguments}"))

    result = await caller().call(server, "change", {"text": "\x1b[2J" + "x" * 10_000})

    said = result["inputRequests"][KEY]["params"]["message"]
    assert said.startswith("change: ")
    assert len(said) < 700
    assert "\x1b" not in said


class TestModernRounds:
    """Rounds of input, as a client makes them."""

    async def first(self, server: McpServer, peer: Peer, **arguments: Any) -> Json:
        result = await peer.call(server, "change", arguments)
        assert result["resultType"] == "input_required"
        assert list(result["inputRequests"]) == [KEY]
        return result

    async def again(self, server: McpServer, peer: Peer, state: str, answer: Json = ACCEPT, **arguments: Any) -> Json:
        return await peer.call(server, "change", arguments, requestState=state, inputResponses={KEY: answer})

    async def test_the_call_is_made_with_the_answer(self) -> None:
        server = company(UserApproval())
        asked = await self.first(server, caller(), text="a")

        made = await self.again(server, caller(), asked["requestState"], text="a")

        assert made["content"][0]["text"] == "changed a"

    async def test_an_answer_without_a_question_approves_nothing(self) -> None:
        result = await caller().call(company(UserApproval()), "change", {}, inputResponses={KEY: ACCEPT})

        assert result["resultType"] == "input_required"

    @pytest.mark.parametrize("other", ["arguments", "caller", "state", "server"])
    async def test_an_approval_is_of_one_call_of_one_caller(self, other: str) -> None:
        server = company(UserApproval())
        asked = await self.first(server, caller(token_of("ada")), text="a")
        peer = caller(token_of("bob" if other == "caller" else "ada"))
        state = asked["requestState"] + ("x" if other == "state" else "")
        used = company(UserApproval()) if other == "server" else server

        with pytest.raises(RequestError) as caught:
            await self.again(used, peer, state, text="b" if other == "arguments" else "a")

        assert caught.value.code == -32602

    async def test_replicas_with_the_same_keys_go_on_with_each_others_approvals(self) -> None:
        keys = ("k" * 32,)
        asked = await self.first(company(UserApproval(state_keys=keys)), caller(), text="a")

        made = await self.again(company(UserApproval(state_keys=keys)), caller(), asked["requestState"], text="a")

        assert made["content"][0]["text"] == "changed a"

    @pytest.mark.parametrize("answer", [{"action": "perhaps"}, 7, {}])
    async def test_an_answer_that_is_none_is_refused(self, answer: Any) -> None:
        server = company(UserApproval())
        asked = await self.first(server, caller(), text="a")

        with pytest.raises(RequestError, match=r"toolweave\.approval"):
            await self.again(server, caller(), asked["requestState"], answer, text="a")

    async def test_an_unknown_tool_is_not_asked_about(self) -> None:
        with pytest.raises(RequestError, match="Unknown tool"):
            await caller().call(company(UserApproval()), "nothing")


async def test_a_legacy_user_who_does_not_answer_or_a_client_that_refuses_is_a_refusal() -> None:
    async def never(method: str) -> Json:
        await anyio.sleep_forever()
        return {}

    slow = caller(version=LEGACY, answer=never)
    deaf = caller(version=LEGACY)

    def odd_answer(method: str) -> Json:
        return {"action": "perhaps"}

    wrong = caller(version=LEGACY, answer=odd_answer)

    late = await slow.call(company(UserApproval(patience_seconds=0.01)), "wipe")
    refused = await deaf.call(company(UserApproval()), "wipe")
    odd = await wrong.call(company(UserApproval()), "wipe")

    assert "within 0.01 s" in late["content"][0]["text"]
    assert "nobody is there" in refused["content"][0]["text"]
    assert [one["isError"] for one in (late, refused, odd)] == [True] * 3
