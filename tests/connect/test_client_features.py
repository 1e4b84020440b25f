"""What a server may ask of its client, behind every transport in every revision: one set of callbacks for all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.connect.targets import (
    ASKS,
    EACH_ERA,
    EACH_WAY,
    KINDS,
    MATRIX,
    MODERN,
    VERSIONS,
    Json,
    connected,
    serving,
    state_of,
)
from toolweave import Callbacks, ProtocolError, ToolResult, connect_mcp_servers
from toolweave.connect import (
    ConnectionState,
    ElicitationRequest,
    ElicitationResult,
    Root,
    SamplingRequest,
    SamplingResult,
)

everywhere = pytest.mark.parametrize(("kind", "version"), MATRIX)
WITHOUT_STREAM = {"http-json"}
"""A legacy server that answers in JSON asks on the stream of its session."""


def asking(kind: str) -> Json:
    """Return the arguments that make a tool ask where its client listens."""
    return {"on": "session"} if kind in WITHOUT_STREAM else {}


def answer_of(result: ToolResult) -> Json:
    assert not result.is_error, result.text
    content: Any = result.raw.get("structuredContent")
    return content if content is not None else json.loads(result.text)


@everywhere
async def test_a_server_asks_for_a_completion_and_gets_the_models_words(kind: str, version: str) -> None:
    asked: list[SamplingRequest] = []

    async def sampling(request: SamplingRequest) -> SamplingResult:
        asked.append(request)
        return SamplingResult(content="Fine.", model="tiny-1", stop_reason="maxTokens")

    async with connected(
        serving(kind, version, ASKS), name="nosy", callbacks=Callbacks(sampling=sampling)
    ) as connection:
        said = answer_of(await connection.call_tool("sample", asking(kind)))

    (request,) = asked
    assert (request.server, request.system_prompt, request.max_tokens) == ("nosy", "Be brief.", 50)
    assert [(message.role, message.text) for message in request.messages] == [("user", "How do you do?")]
    content = {"type": "text", "text": "Fine."}
    assert said["result"] == {"role": "assistant", "content": content, "model": "tiny-1", "stopReason": "maxTokens"}


@everywhere
async def test_a_form_is_filled_in_with_the_schemas_defaults(kind: str, version: str) -> None:
    asked: list[ElicitationRequest] = []

    def elicitation(request: ElicitationRequest) -> Json:
        asked.append(request)
        return {"name": "Ada", "color": "red"}

    async with connected(
        serving(kind, version, ASKS), name="nosy", callbacks=Callbacks(elicitation=elicitation)
    ) as connection:
        said = answer_of(await connection.call_tool("elicit", asking(kind)))

    (request,) = asked
    assert (request.server, request.mode, request.message) == ("nosy", "form", "Who are you?")
    assert request.schema["required"] == ["name"]
    assert said["result"] == {"action": "accept", "content": {"name": "Ada", "color": "red", "size": 3}}


@everywhere
async def test_roots_are_told_and_told_anew(kind: str, version: str) -> None:
    roots = [Root(uri="file:///srv/data", name="data"), "file:///srv/more", Path("/srv/third")]
    async with connected(serving(kind, version, ASKS), callbacks=Callbacks(roots=roots)) as connection:
        first = answer_of(await connection.call_tool("list_roots", asking(kind)))
        await connection.set_roots(["file:///srv/new"])
        second = answer_of(await connection.call_tool("list_roots", asking(kind)))
        told = (await state_of(connection))["methods"].count("notifications/roots/list_changed")

    assert first["result"]["roots"] == [
        {"uri": "file:///srv/data", "name": "data"},
        {"uri": "file:///srv/more"},
        {"uri": "file:///srv/third", "name": "third"},
    ]
    assert second["result"] == {"roots": [{"uri": "file:///srv/new"}]}
    assert told == (0 if version == MODERN else 1)


@everywhere
async def test_what_is_not_offered_is_refused_and_the_connection_goes_on(kind: str, version: str) -> None:
    async with connected(serving(kind, version, ASKS)) as connection:
        for tool in ("sample", "elicit", "elicit_url", "list_roots", "ask_nonsense"):
            if version == MODERN:
                with pytest.raises(ProtocolError, match="asks for input that this client did not offer") as refused:
                    await connection.call_tool(tool, asking(kind))
                assert refused.value.code == -32021
            else:
                said = answer_of(await connection.call_tool(tool, asking(kind)))
                assert said["error"]["code"] == -32601
        declared = answer_of(await connection.call_tool("client"))["capabilities"]
        assert connection.state is ConnectionState.READY

    assert set(declared) <= {"extensions"}


@EACH_ERA
async def test_capabilities_follow_from_the_callbacks(version: str) -> None:
    callbacks = Callbacks(
        sampling=lambda request: "words", sampling_tools=True, elicitation=lambda request: None, roots=[]
    )
    async with connected(serving("stdio", version, ASKS), callbacks=callbacks) as connection:
        declared = answer_of(await connection.call_tool("client"))["capabilities"]

    assert declared["sampling"] == {"tools": {}}
    assert declared["elicitation"] == {"form": {}, "url": {}}
    assert declared["roots"] == ({} if version == MODERN else {"listChanged": True})
    assert declared.get("extensions") == ({"io.modelcontextprotocol/tasks": {}} if version == MODERN else None)


@EACH_WAY
async def test_a_sampling_callback_that_raises_costs_only_its_request(kind: str, version: str) -> None:
    def sampling(request: SamplingRequest) -> str:
        raise ValueError("the key is sk-secret")

    async with connected(serving(kind, version, ASKS), callbacks=Callbacks(sampling=sampling)) as connection:
        if version == MODERN:
            with pytest.raises(ProtocolError, match="sampling callback failed") as failed:
                await connection.call_tool("sample")
            assert failed.value.code == -32603
        else:
            said = answer_of(await connection.call_tool("sample"))
            assert said["error"] == {"code": -32603, "message": "the client's sampling callback failed"}
        assert (await connection.call_tool("echo", {"text": "on"})).text == "on"


@EACH_ERA
async def test_a_user_may_reject_a_sampling_request(version: str) -> None:
    async with connected(
        serving("stdio", version, ASKS), callbacks=Callbacks(sampling=lambda request: None)
    ) as connection:
        if version == MODERN:
            with pytest.raises(ProtocolError, match="the user rejected the sampling request"):
                await connection.call_tool("sample")
        else:
            assert answer_of(await connection.call_tool("sample"))["error"]["code"] == -1


@EACH_ERA
@pytest.mark.parametrize("offered", [True, False])
async def test_tools_reach_a_model_only_where_that_was_declared(version: str, offered: bool) -> None:
    asked: list[SamplingRequest] = []

    def sampling(request: SamplingRequest) -> str:
        asked.append(request)
        return "words"

    with serving("stdio", version, ASKS) as target:
        callbacks = Callbacks(sampling=sampling, sampling_tools=offered)
        async with connected(target, callbacks=callbacks) as connection:
            if offered:
                answer_of(await connection.call_tool("sample", {"tools": True}))
            elif version == MODERN:
                with pytest.raises(ProtocolError, match="did not declare sampling with tools"):
                    await connection.call_tool("sample", {"tools": True})
            else:
                said = answer_of(await connection.call_tool("sample", {"tools": True}))
                assert said["error"]["code"] == -32602

    assert [[tool.name for tool in request.tools] for request in asked] == ([["look"]] if offered else [])


@EACH_WAY
async def test_a_user_is_led_to_a_page(kind: str, version: str) -> None:
    asked: list[ElicitationRequest] = []

    def elicitation(request: ElicitationRequest) -> ElicitationResult:
        asked.append(request)
        return ElicitationResult.accept()

    async with connected(serving(kind, version, ASKS), callbacks=Callbacks(elicitation=elicitation)) as connection:
        said = answer_of(await connection.call_tool("elicit_url"))

    (request,) = asked
    assert (request.mode, request.url, request.schema) == ("url", "https://example.com/consent", {})
    assert said["result"] == {"action": "accept"}


@pytest.mark.parametrize("kind", ["stdio", "http-sse"])
async def test_a_call_that_needs_a_page_visited_is_made_again_after_the_visit(kind: str) -> None:
    asked: list[ElicitationRequest] = []
    heard: list[Any] = []

    def elicitation(request: ElicitationRequest) -> Json:
        asked.append(request)
        return {}

    async with connected(serving(kind, "2025-11-25", ASKS), callbacks=Callbacks(elicitation=elicitation)) as connection:
        connection.on("notification", heard.append)
        result = await connection.call_tool("needs_visit")

    assert result.text == "visited"
    assert [request.elicitation_id for request in asked] == ["visit-2"]
    assert ("notifications/elicitation/complete", {"elicitationId": "visit-2"}) in heard


@pytest.mark.parametrize("callbacks", [Callbacks(), Callbacks(elicitation=lambda request: None)])
async def test_a_call_that_needs_a_visit_nobody_makes_fails_with_the_servers_words(callbacks: Callbacks) -> None:
    async with connected(serving("stdio", "2025-11-25", ASKS), callbacks=callbacks) as connection:
        with pytest.raises(ProtocolError, match="Visit the page first") as refused:
            await connection.call_tool("needs_visit")

    assert refused.value.code == -32042


def test_wrong_callbacks_are_refused_at_once() -> None:
    wrong: list[Callable[[], Callbacks]] = [
        lambda: Callbacks(sampling="words"),  # pyright: ignore[reportArgumentType]
        lambda: Callbacks(roots="/srv"),
    ]
    for make in wrong:
        with pytest.raises(TypeError, match="must be"):
            make()
    with pytest.raises(ValueError, match="'http://x' is not a file:// URI"):
        Callbacks(roots=["http://x"])
    with pytest.raises(ValueError, match="no log level 'loud'"):
        Callbacks(log_level="loud")  # pyright: ignore[reportArgumentType]


async def test_roots_cannot_be_set_where_none_were_declared() -> None:
    async with connected(serving("stdio", "2025-11-25")) as connection:
        with pytest.raises(RuntimeError, match=r"roots=\[\]"):
            await connection.set_roots(["file:///srv"])


@pytest.mark.parametrize(
    ("roots", "said"), [("/srv", "put the one root in a list"), (["http://x"], "'http://x' is not a file:// URI")]
)
async def test_roots_are_checked_where_they_are_set(roots: Any, said: str) -> None:
    async with connected(serving("stdio", "2025-11-25"), callbacks=Callbacks(roots=[])) as connection:
        with pytest.raises((TypeError, ValueError), match=said):
            await connection.set_roots(roots)


async def test_servers_of_a_hub_share_the_callbacks_and_each_says_who_asks() -> None:
    def elicitation(request: ElicitationRequest) -> Json:
        return {"name": request.server}

    with serving("stdio", MODERN, ASKS) as modern, serving("stdio", "2025-11-25", ASKS) as legacy:
        servers = {name: {"command": words[0], "args": words[1:]} for name, words in (("new", modern), ("old", legacy))}
        async with connect_mcp_servers({"mcpServers": servers}, callbacks=Callbacks(elicitation=elicitation)) as hub:
            names = [
                json.loads((await hub.execute(f"{server}_elicit")).text)["result"]["content"]["name"]
                for server in ("new", "old")
            ]

    assert names == ["new", "old"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_completion_works_beside_callbacks(version: str) -> None:
    async with connected(serving("stdio", version, ASKS), callbacks=Callbacks(roots=[])) as connection:
        names = await connection.complete({"type": "ref/prompt", "name": "greet"}, "name", "al")

    assert names.values == ("alice", "albert")


def test_the_matrix_has_every_transport() -> None:
    assert {kind for kind, _ in MATRIX} == set(KINDS)
