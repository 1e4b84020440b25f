"""Middleware sees every call of the short way, and makes of it what it makes of one on the long way."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.gateway.plain_callers import NOTICED, Plain, again, long_way, never_at_once, plain, seen_upstream
from tests.gateway.relayed import MODERN, Json, upstream
from tests.gateway.upstreams import strange
from tests.serve.serving import STOPPING, served_app, served_http
from toolweave.errors import RequestError
from toolweave.gateway import GatewayManager, GatewayOptions, create_gateway
from toolweave.middleware import (
    AccessRule,
    AccessRules,
    AuditLog,
    CallBudget,
    OfferSelection,
    RateLimit,
    Redaction,
    ResponseCache,
    SizeLimits,
    Timing,
    UserApproval,
)
from toolweave.serve import BearerAuth, HttpLimits

TEST_SECONDS = 60

pytestmark = pytest.mark.slow

VERSIONS = [MODERN, "2025-11-25", "2025-03-26"]
EACH_ERA = pytest.mark.parametrize("version", VERSIONS)
TOKEN = "a token of thirty-two characters, or more"
Notes = list[Any]
Layers = Callable[[Notes], Sequence[Any]]
"""Makes middleware, which notes what it sees."""


class Unsent:
    """Innermost middleware that notes which calls may still be sent the short way."""

    reads_results = False

    def __init__(self) -> None:
        self.short: list[bool] = []

    async def __call__(self, request: Any, call_next: Any) -> Any:
        """Note a call."""
        if request.method == "tools/call":
            self.short.append(request.takes_texts)
        return await call_next(request)


def audited(notes: Notes) -> Sequence[Any]:
    """Return an audit log whose lines are noted, without what differs from run to run."""

    def keep(line: bytes) -> None:
        found = json.loads(line)
        notes.append({name: one for name, one in found.items() if name not in ("time", "conversation", "duration_ms")})

    return [AuditLog(sink=keep, arguments="values")]


def timed(notes: Notes) -> Sequence[Any]:
    """Return middleware that notes every outcome."""
    return [Timing(slow_seconds=0, report=lambda method, name, outcome, seconds: notes.append((method, name, outcome)))]


def ruled(notes: Notes) -> Sequence[Any]:
    """Return rules of which one reads arguments, one hides a tool."""
    return [
        AccessRules(
            rules=[
                AccessRule(effect="allow", when="tool.name != '' && (!has(args.a) || args.a != 'no')"),
                AccessRule(effect="deny", names=["empty"]),
            ]
        )
    ]


def limited(notes: Notes) -> Sequence[Any]:
    """Return limits that all but one call of the echo exceed."""
    only = [OfferSelection(names=["echo"])]
    return [RateLimit(calls=2, seconds=86_400, only=only), CallBudget(calls=1, per="day", only=only)]


def sized(notes: Notes) -> Sequence[Any]:
    """Return limits that some arguments and results exceed."""
    return [SizeLimits(arguments=40, results=2_000)]


def redacting(notes: Notes) -> Sequence[Any]:
    """Return redaction of arguments and results."""
    return [Redaction(patterns={"email": "", "digits": r"\d{3}"}, arguments=True)]


def redacting_arguments(notes: Notes) -> Sequence[Any]:
    """Return redaction of arguments alone."""
    return [Redaction(patterns={"email": ""}, arguments=True, results=False)]


def approving(notes: Notes) -> Sequence[Any]:
    """Return approval that the client of these tests cannot give."""
    return [UserApproval(only=[OfferSelection(names=["echo"])])]


def caching(notes: Notes) -> Sequence[Any]:
    """Return a cache, and what notes the calls behind it."""

    async def behind(request: Any, call_next: Any) -> Any:
        notes.append((request.method, request.params.get("name")))
        return await call_next(request)

    return [ResponseCache(tools_seconds=60), behind]


def everything(notes: Notes) -> Sequence[Any]:
    """Return many layers."""
    return [
        *audited(notes),
        *timed(notes),
        *ruled(notes),
        RateLimit(calls=1000),
        *caching(notes),
        *redacting(notes),
    ]


def rewriting(notes: Notes) -> Sequence[Any]:
    """Return middleware that changes arguments and results."""

    async def rewrite(request: Any, call_next: Any) -> Any:
        if request.method != "tools/call":
            return await call_next(request)
        arguments = {**request.params.get("arguments", {}), "added": [1]}
        result = await call_next(request.replace(params={**request.params, "arguments": arguments}))
        notes.append(result)
        return {**result, "content": [*result.get("content", []), {"type": "text", "text": "seen"}]}

    return [rewrite]


def changing_in_place(notes: Notes) -> Sequence[Any]:
    """Return middleware that changes the objects that it is given."""

    async def change(request: Any, call_next: Any) -> Any:
        if request.method == "tools/call":
            request.params.get("arguments", {})["placed"] = True
        result = await call_next(request)
        if request.method == "tools/call":
            result["content"].append({"type": "text", "text": str(sorted(result))})
            result.setdefault("_meta", {})["example.org/seen"] = 1
        return result

    return [change]


def renaming(notes: Notes) -> Sequence[Any]:
    """Return middleware that calls other tools than it was asked for, one of them unknown."""

    async def rename(request: Any, call_next: Any) -> Any:
        names = {"echo": "empty", "failed": "none of that name", "empty": 7}
        name = names.get(request.params.get("name"), request.params.get("name"))
        if request.method != "tools/call":
            return await call_next(request)
        return await call_next(request.replace(params={**request.params, "name": name}))

    return [rename]


def odd_parameters(notes: Notes) -> Sequence[Any]:
    """Return middleware that makes of calls what is none, or is no JSON."""

    async def spoil(request: Any, call_next: Any) -> Any:
        name = request.params.get("name")
        added: Json = {"failed": {"arguments": [1]}, "empty": {"future": 1}, "numbers": {"_meta": {"x.example/y": 1}}}
        if request.method != "tools/call" or name not in added:
            return await call_next(request)
        given = {"_meta": request.params["_meta"]} if "_meta" in request.params else {}
        merged = {**request.params, **added[name]}
        if "_meta" in added[name]:
            merged["_meta"] = {**given.get("_meta", {}), **added[name]["_meta"]}
        return await call_next(request.replace(params=merged))

    return [spoil]


def refusing(notes: Notes) -> Sequence[Any]:
    """Return middleware that refuses, fails, returns no result, or answers itself."""

    async def refuse(request: Any, call_next: Any) -> Any:
        name = request.params.get("name") if request.method == "tools/call" else None
        if name == "echo":
            raise RequestError("not today", code=-32011, data={"why": [1]})
        if name == "empty":
            raise LookupError("a mistake")
        if name == "failed":
            return {"content": [{"type": "text", "text": "mine"}], "structuredContent": {"a": 1}}
        if name == "numbers":
            return {"content": [], "value": object()}
        return None if name == "many" else await call_next(request)

    return [refuse]


def catching(notes: Notes) -> Sequence[Any]:
    """Return middleware that makes a result of an error."""

    async def catch(request: Any, call_next: Any) -> Any:
        try:
            return await call_next(request)
        except RequestError as exc:
            if request.method != "tools/call":
                raise
            notes.append((exc.code, exc.message, exc.data))
            return {"content": [{"type": "text", "text": "caught"}]}

    return [catch]


def repeating(notes: Notes) -> Sequence[Any]:
    """Return middleware that makes each call twice, one after the other and at the same time."""

    async def twice(request: Any, call_next: Any) -> Any:
        if request.method != "tools/call":
            return await call_next(request)
        first = await call_next(request)
        found: list[Any] = []

        async def again() -> None:
            found.append(await call_next(request))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(again)
            tasks.start_soon(again)
        notes.append(first["content"] == found[0]["content"] == found[1]["content"])
        return found[1]

    return [twice]


def telling(notes: Notes) -> Sequence[Any]:
    """Return middleware that sends notifications before and after a call."""

    async def tell(request: Any, call_next: Any) -> Any:
        if request.method == "tools/call":
            await request.reply_channel.notify("notifications/message", {"level": "info", "data": "before"})
        result = await call_next(request)
        if request.method == "tools/call":
            await request.reply_channel.notify("notifications/message", {"level": "info", "data": "after"})
        return result

    return [tell]


def telling_late(notes: Notes) -> Sequence[Any]:
    """Return middleware that says something once the call was answered upstream."""

    async def tell(request: Any, call_next: Any) -> Any:
        result = await call_next(request)
        if request.method == "tools/call":
            await request.reply_channel.notify("notifications/message", {"level": "info", "data": "after"})
        return result

    return [tell]


def asking(notes: Notes) -> Sequence[Any]:
    """Return middleware that asks a client that cannot be asked, and says what came of it."""

    async def ask(request: Any, call_next: Any) -> Any:
        if request.method == "tools/call" and request.modern:
            try:
                await request.reply_channel.ask("roots/list", {})
            except RequestError as exc:
                notes.append((exc.code, exc.message))
        return await call_next(request)

    return [ask]


def as_somebody_else(notes: Notes) -> Sequence[Any]:
    """Return middleware that changes what a client has declared."""

    async def change(request: Any, call_next: Any) -> Any:
        return await call_next(request.replace(client=replace(request.client, info={"name": "other", "version": "1"})))

    return [change]


LAYERS: Mapping[str, Layers] = {
    made.__name__: made
    for made in (
        *(audited, timed, ruled, limited, sized, redacting, redacting_arguments, approving, caching, everything),
        *(rewriting, changing_in_place, renaming, odd_parameters, refusing, catching, repeating, telling),
        *(telling_late, asking, as_somebody_else),
    )
}


def without_waits(answer: tuple[int, str | None, Any]) -> tuple[int, str | None, Any]:
    """Return an answer without the time until a limit allows more."""
    status, kind, said = answer
    return (status, kind, "too many") if "retryAfterMs" in str(said) else answer


def probes(client: Plain) -> list[tuple[bytes, Json]]:
    """Return calls that take every turn of the middleware."""
    calls: list[tuple[str, Any]] = [
        ("echo", {"a": "ada@example.org 123", "n": [2**70, 1.5]}),
        ("echo", {"a": "no"}),
        ("echo", {"a": "x" * 50}),
        ("echo", ...),
        *((name, {}) for name in ("empty", "failed", "numbers", "many", "blocks", "params", "internal", "none")),
    ]
    return [client.call(name, arguments, key=key) for key, (name, arguments) in enumerate(calls)]


@pytest.mark.parametrize("version", VERSIONS[:2])
@pytest.mark.parametrize("layers", LAYERS)
async def test_every_middleware_does_the_same_on_the_short_way(layers: str, version: str) -> None:
    found: list[Any] = []
    async with strange("modern", "stdio") as config:
        for entry, wraps in (config, []), (never_at_once(config), [long_way]):
            notes: Notes = []
            unsent, answers = Unsent(), list[Any]()
            gateway = create_gateway({"up": entry}, middleware=[unsent, *LAYERS[layers](notes)])
            async with served_http(gateway, middleware=wraps) as url, plain(url, version) as first:
                for body, headers in (*probes(first), *probes(first)[:1]):
                    async with again(first, url) as client:
                        answers.append(without_waits(await client.ask(body, headers)))
            found.append((answers, notes))
            assert any(unsent.short) is not bool(wraps)

    assert found[0] == found[1]


@EACH_ERA
@pytest.mark.parametrize("legacy", [False, True])
async def test_an_upstream_of_either_era_is_the_same_behind_middleware(legacy: bool, version: str) -> None:
    found: list[Any] = []
    async with strange("legacy" if legacy else "modern", "stdio") as config:
        for entry, wraps in (config, []), (config, [long_way]), (never_at_once(config), [long_way]):
            notes: Notes = []
            gateway = create_gateway({"up": entry}, middleware=everything(notes))
            async with served_http(gateway, middleware=wraps) as url, plain(url, version) as first:
                answers = [await first.ask(body, headers) for body, headers in probes(first)]
            found.append((answers, notes))

    assert found[0] == found[1]
    assert found[2] == found[1]


@EACH_ERA
async def test_a_slow_call_behind_middleware_ends_by_its_timeout_and_is_noted(version: str) -> None:
    found: list[Any] = []
    for wraps in ([], [long_way]):
        notes: Notes = []
        with upstream("stdio-modern") as config:
            server = {**config, "timeout": {"call": 1.0}}
            gateway = create_gateway({"up": server}, middleware=[*audited(notes), *timed(notes)])
            async with served_http(gateway, middleware=wraps) as url, plain(url, version) as client:
                answer = await client.ask(*client.call("hang", {}))
                seen = await seen_upstream(client)
        found.append((answer, notes))
        assert len(seen["cancelled"]) == 1

    assert found[0] == found[1]
    assert "within 1 s" in str(found[0][0])


async def test_a_caller_that_leaves_is_noted_as_cancelled_and_cancels_its_call() -> None:
    notes: Notes = []
    arrived = anyio.Event()

    async def note(request: Any, call_next: Any) -> Any:
        if request.params.get("name") == "hang":
            arrived.set()
        return await call_next(request)

    with anyio.fail_after(NOTICED), upstream("stdio-modern") as config:
        gateway = create_gateway({"up": config}, middleware=[*audited(notes), note])
        async with served_http(gateway) as url, plain(url, MODERN) as other:
            async with plain(url, MODERN) as leaving:
                leaving.send(*leaving.call("hang", {}))
                await arrived.wait()
            seen = await seen_upstream(other)
            while not seen.get("cancelled"):
                await anyio.sleep(0.05)
                seen = await seen_upstream(other)

    assert len(seen["cancelled"]) == 1
    assert [one["outcome"] for one in notes if one["name"] == "hang"] == ["cancelled"]


@pytest.mark.parametrize("version", [MODERN, "2025-11-25"])
async def test_middleware_that_waits_by_itself_is_cancelled_with_its_call(version: str) -> None:
    waiting, left = anyio.Event(), anyio.Event()

    async def wait(request: Any, call_next: Any) -> Any:
        if request.method == "tools/call":
            waiting.set()
            try:
                await anyio.sleep_forever()
            finally:
                left.set()
        return await call_next(request)

    with anyio.fail_after(NOTICED):
        async with strange("modern", "stdio") as config:
            gateway = create_gateway({"up": config}, middleware=[wait])
            async with served_http(gateway) as url, plain(url, version) as client:
                await anyio.to_thread.run_sync(lambda: client.send(*client.call("echo", {}, key=7)))
                await waiting.wait()
                if version == MODERN:
                    client.close()
                else:
                    async with again(client, url) as second:
                        await second.notify("notifications/cancelled", requestId=7)
                    status, _, answer = await anyio.to_thread.run_sync(client.answer)
                    assert (status, answer["error"]["message"]) == (200, "Request cancelled")
                await left.wait()


async def test_a_session_that_ends_ends_its_calls_in_middleware() -> None:
    found: list[Any] = []
    for wraps in ([], [long_way]):
        waiting = anyio.Event()

        async def wait(request: Any, call_next: Any, waiting: anyio.Event = waiting) -> Any:
            if request.method == "tools/call":
                waiting.set()
                await anyio.sleep_forever()
            return await call_next(request)

        async with strange("modern", "stdio") as config:
            gateway = create_gateway({"up": config}, middleware=[wait])
            async with served_http(gateway, middleware=wraps) as url, plain(url, "2025-11-25") as client:
                await anyio.to_thread.run_sync(lambda client=client: client.send(*client.call("echo", {}, key=7)))
                await waiting.wait()
                async with again(client, url) as second:
                    await anyio.to_thread.run_sync(second.leave)
                found.append(await anyio.to_thread.run_sync(client.answer))

    assert found[0] == found[1]
    assert "session ended" in found[0][2]["error"]["message"]


@pytest.mark.parametrize("version", [MODERN, "2025-11-25"])
async def test_a_server_that_ends_cuts_off_what_waits_in_middleware(version: str) -> None:
    found: list[Any] = []
    for wraps in ([], [long_way]):
        waiting, outcomes = anyio.Event(), list[str]()

        async def wait(
            request: Any, call_next: Any, waiting: anyio.Event = waiting, outcomes: list[str] = outcomes
        ) -> Any:
            if request.method == "tools/call":
                waiting.set()
                try:
                    await anyio.sleep_forever()
                except anyio.get_cancelled_exc_class():
                    outcomes.append("cancelled")
                    raise
            return await call_next(request)

        limits = HttpLimits(shutdown_seconds=0.2)

        async with strange("modern", "stdio") as config:
            gateway = create_gateway({"up": config}, middleware=[wait])
            async with served_http(gateway, middleware=wraps, limits=limits) as url:
                client = Plain(url, version)  # which stays when the server goes
                await anyio.to_thread.run_sync(client.begin)
                await anyio.to_thread.run_sync(lambda client=client: client.send(*client.call("echo", {})))
                await waiting.wait()
            answer = await anyio.to_thread.run_sync(client.answer)
            client.close()
        found.append((answer[::2], outcomes))

    assert found[0] == found[1]
    assert found[0] == ((503, b"The call was cancelled"), ["cancelled"])


@pytest.mark.parametrize("version", [MODERN, "2025-11-25"])
async def test_an_upstream_that_dies_behind_middleware_is_the_same_error(version: str) -> None:
    found: list[Any] = []
    for wraps in ([], [long_way]):
        notes: Notes = []
        with upstream("stdio-legacy") as config:
            gateway = create_gateway({"up": config}, middleware=[*audited(notes), *redacting(notes)])
            async with served_http(gateway, middleware=wraps) as url, plain(url, version) as client:
                crashed = await client.ask(*client.call("crash", {}))
                after = await client.ask(*client.call("echo", {"text": "back"}))
        found.append((crashed, after, notes))

    assert found[0] == found[1]
    assert found[0][0][2]["result"]["isError"]
    assert not found[0][1][2]["result"].get("isError")


@pytest.mark.parametrize("version", [MODERN, "2025-11-25"])
async def test_each_of_many_callers_gets_its_own_answer_through_middleware(version: str) -> None:
    wrong: list[Any] = []
    notes: Notes = []
    unsent = Unsent()

    async def calls(url: str, number: int) -> None:
        async with plain(url, version) as client:
            for turn in range(40):
                said = {"caller": number, "turn": turn}
                status, _, answer = await client.ask(*client.call("echo", said, key=turn))
                if (status, answer["id"], answer["result"]["structuredContent"]["arguments"]) != (200, turn, said):
                    wrong.append(answer)

    async with strange("modern", "stdio") as config:
        gateway = create_gateway({"up": config}, middleware=[*audited(notes), *ruled(notes), unsent])
        async with served_http(gateway) as url, anyio.create_task_group() as tasks:
            for number in range(16):
                tasks.start_soon(calls, url, number)

    assert wrong == []
    assert sorted((one["arguments"]["caller"], one["arguments"]["turn"]) for one in notes if "arguments" in one) == [
        (number, turn) for number in range(16) for turn in range(40)
    ]
    assert all(unsent.short)


@pytest.mark.parametrize("version", [MODERN, "2025-11-25"])
async def test_middleware_knows_who_calls_with_a_token_on_the_short_way(version: str) -> None:
    seen: list[Any] = []
    unsent = Unsent()

    async def look(request: Any, call_next: Any) -> Any:
        if request.method == "tools/call":
            seen.append((request.client.identity, request.client.principal, request.headers["accept"]))
            assert "authorization" not in request.headers
        return await call_next(request)

    async with strange("modern", "stdio") as config:
        for wraps in ([], [long_way]):
            gateway = create_gateway({"up": config}, middleware=[look, *ruled([]), unsent])
            auth = BearerAuth(tokens=[TOKEN])
            async with (
                served_http(gateway, auth=auth, middleware=wraps) as url,
                plain(url, version, token=TOKEN) as c,
            ):
                body, headers = c.call("echo", {"a": 1})
                statuses = [
                    (await c.ask(body, {**headers, "Authorization": given}))[0]
                    for given in (f"Bearer {TOKEN}", None, "Bearer wrong")
                ]
                assert statuses == [200, 401, 401]

    assert seen[0] == seen[1]
    assert seen[0][0] is not None
    assert unsent.short == [True, False]


@pytest.mark.parametrize("version", [MODERN, "2025-11-25"])
async def test_spans_are_the_same_on_the_short_way_and_reach_the_upstream(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, found = TracerProvider(), list[Any]()
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    unsent = Unsent()
    with upstream("stdio-modern") as config:
        for wraps in ([], [long_way]):
            manager = GatewayManager({"up": config}, options=GatewayOptions(tracing=True, middleware=(unsent,)))
            app = manager.asgi_app(middleware=wraps, limits=STOPPING)
            async with served_app(app) as base, plain(f"{base}/mcp", version) as client:
                exporter.clear()
                answers = [await client.ask(*client.call(name, {"text": "x"})) for name in ("echo", "fail", "none")]
                spans = [one for one in exporter.get_finished_spans() if one.name.startswith("tools/call")]
                found.append((answers, [(one.name, one.kind, dict(one.attributes or {})) for one in spans]))
    provider.shutdown()

    assert found[0] == found[1]
    assert unsent.short[0]
    assert len(found[0][1]) == 6
