"""Secrets of a server's config that the server repeats, and everything that is kept or shown of it."""

from __future__ import annotations

import base64
import json
import logging
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import anyio.to_thread
import msgspec
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.console.browsing import signed_in
from tests.gateway.leaky_server import forms
from tests.gateway.scale.replicas import store_of
from tests.programs import free_port
from tests.redis_failover import client_at
from tests.serve.exchanges import exchange
from tests.serve.serving import served_app
from toolweave import Agent, ServerConfig, ToolweaveError, connect_mcp, create_mcp_server
from toolweave.config import Auth, Secret
from toolweave.gateway import GatewayManager, GatewayOptions
from toolweave.middleware import AuditLog
from toolweave.models import ScriptedModel, tool_call

TEST_SECONDS = 60

MODERN = "2026-07-28"
ADMIN = "an-admin-token-of-the-tests"
SECRET = 'z1SECRET"z/2z-987654+Q'
HEADER = "z1SECRET-z/2z-987654+Q"
LEAKY = str(Path(__file__).with_name("leaky_server.py"))

Entry = Callable[[str], ServerConfig]


def process(*args: str, **env: str) -> Entry:
    """Return a maker of a server that runs as a process with these arguments and variables."""
    return lambda _: ServerConfig(name="up", command=sys.executable, args=(LEAKY, *args), env=env)


def remote(**fields: Any) -> Entry:
    """Return a maker of a server at a URL with these fields."""
    return lambda url: ServerConfig(name="up", url=url, **fields)


PROCESSES: dict[str, tuple[str, Entry]] = {
    "variable": (SECRET, process(API_KEY=SECRET)),
    "argument": (SECRET, process("--token", SECRET)),
    "argument with a value": (SECRET, process(f"--api-key={SECRET}")),
    "JSON in an argument": (SECRET, process("--config", json.dumps({"exaApiKey": SECRET}))),
    "base64 in an argument": (SECRET, process("--config", base64.b64encode(f"user:{SECRET}".encode()).decode())),
}
REMOTES: dict[str, tuple[str, Entry]] = {
    "header": (HEADER, remote(headers={"X-Any": HEADER})),
    "header of a function": (HEADER, remote(headers=lambda: {"X-Any": HEADER})),
    "bearer token": (HEADER, remote(auth=HEADER)),
    "token of a function": (HEADER, remote(auth=Auth(provider=lambda: HEADER))),
    "query": (HEADER, lambda url: ServerConfig(name="up", url=f"{url}?api_key={quote(HEADER, safe='')}")),
}
SOURCES = {**PROCESSES, **REMOTES}


@asynccontextmanager
async def entry_of(source: str) -> AsyncGenerator[ServerConfig]:
    """Yield the config of a server that repeats its secret."""
    secret, entry = SOURCES[source]
    encoded = base64.b64encode(secret.encode()).decode()
    if source in PROCESSES:
        config = entry("")
        yield config.replace(env={**config.env, "REPEATED": encoded})
        return
    port = free_port()
    environment = {**os.environ, "REPEATED": encoded, "PORT": str(port)}
    async with await anyio.open_process([sys.executable, LEAKY], env=environment, stdout=None, stderr=None) as server:
        await listening(port)
        yield entry(f"http://127.0.0.1:{port}/mcp")
        server.terminate()


async def listening(port: int) -> None:
    """Wait until a port of this machine accepts connections."""
    while True:
        try:
            async with await anyio.connect_tcp("127.0.0.1", port):
                return
        except OSError:
            await anyio.sleep(0.05)


def assert_masked(secret: str, sinks: dict[str, str], *, told: int) -> None:
    """Check that no sink has the secret, and that so many of them have the text around it."""
    found = {name: one for name, text in sinks.items() for one in forms(secret) if one in text}
    assert found == {}
    assert sum("***" in text for text in sinks.values()) >= told


@pytest.mark.slow
@pytest.mark.parametrize("era", ["2025-11-25", MODERN])
@pytest.mark.parametrize("source", SOURCES)
async def test_a_secret_that_a_server_repeats_is_nowhere_in_what_a_gateway_keeps_or_shows(
    source: str, era: str, exporter: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "toolweave")
    lines: list[bytes] = []
    sinks: dict[str, str] = {}
    async with entry_of(source) as config:
        options = GatewayOptions(
            metrics=True, tracing=True, ui=True, middleware=(AuditLog(sink=lines.append, arguments="values"),)
        )
        manager = GatewayManager({"up": config}, options=options)
        async with served_app(manager.asgi_app(admin_token=ADMIN)) as base:
            async with connect_mcp({"url": f"{base}/mcp", "protocol": era}, name="g") as caller:
                answers = [await caller.call_tool("up_fail")]
                if era == MODERN:  # older callers would have to ask for a task
                    answers.append(await caller.call_tool("up_burn"))
                with pytest.raises(ToolweaveError) as unread:
                    await caller.read_resource("data://broken")
            assert manager.recent_calls is not None
            tasks = await manager.recent_calls.tasks.newest_first()
            browser = await anyio.to_thread.run_sync(signed_in, base, manager.console_link() or "")
            for page in ("tasks", "calls", "servers", "servers/up", "config"):
                sinks[page] = (await anyio.to_thread.run_sync(browser.get, f"/ui/{page}")).html
            sinks["metrics"] = (await exchange(f"{base}/metrics", "GET")).body.decode()
            for path in ("status", "servers", "keys"):
                owner = {"authorization": f"Bearer {ADMIN}"}
                answer = await exchange(f"{base}/admin/{path}", "GET", headers=owner)
                sinks[f"admin {path}"] = answer.body.decode()
        sinks |= {
            "answers": repr(answers),
            "calls kept": repr(manager.recent_calls.newest_first),
            "tasks kept": repr(tasks),
            "status": msgspec.json.encode(manager.status()).decode(),
            "audit log": b"".join(lines).decode(),
            "spans": "".join(one.to_json() for one in exporter.get_finished_spans()),
            "log": caplog.text,
            "error": f"{unread.value} {unread.value!r}",
            "config": f"{config!r} {config} {json.dumps(config.to_dict())}",
        }

    assert all(one.is_error for one in answers)
    assert [(one.name, one.status) for one in tasks] == [("up_burn", "completed")] * (era == MODERN)
    assert_masked(SOURCES[source][0], sinks, told=4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", "file", "redis"])
@pytest.mark.parametrize("source", ["variable", "bearer token", "token of a function"])
async def test_a_secret_that_a_server_repeats_is_in_no_journal_of_a_run(
    source: str, kind: str, tmp_path: Path, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "toolweave")
    sinks: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        config = await stack.enter_async_context(entry_of(source))
        store = await stack.enter_async_context(store_of(kind, tmp_path, redis_url))
        up = await stack.enter_async_context(connect_mcp(config))
        model = ScriptedModel([tool_call("fail"), tool_call("burn"), "done"])
        async with Agent(model, name="a", tools=[up], store=store) as agent:
            run = agent.send("go")
            result = await run
        sinks["result"] = f"{result!r} {result.messages!r}"
        sinks["journal"] = await raw(kind, store, tmp_path, redis_url)
    sinks["log"] = caplog.text

    assert_masked(SOURCES[source][0], sinks, told=2)


async def raw(kind: str, store: Any, folder: Path, url: str) -> str:
    """Return everything that a store has, as it keeps it."""
    if kind == "file":
        return "".join(one.read_bytes().decode("utf-8", "replace") for one in folder.glob("shared.db*"))
    if kind == "memory":
        return f"{store.__dict__}"

    def read() -> str:
        with client_at(int(url.rpartition(":")[2].partition("/")[0])) as client:
            client.select(int(url.rpartition("/")[2]))
            found: list[object] = [client.get(key) for key in client.keys("*") if client.type(key) == b"string"]
            return f"{found}"

    return await anyio.to_thread.run_sync(read)


async def test_the_password_and_the_key_in_a_uri_are_in_no_audit_log() -> None:
    lines: list[bytes] = []
    secret = quote(HEADER, safe="")
    server = create_mcp_server(name="s", middleware=[AuditLog(sink=lines.append)])
    async with connect_mcp(server) as caller:
        with pytest.raises(ToolweaveError):
            await caller.read_resource(f"https://me:{secret}@host/x?api_key={secret}&page=2")

    (line,) = [one for one in lines if b"resources/read" in one]
    assert "host/x" in line.decode()
    assert "page=2" in line.decode()
    assert not [one for one in forms(HEADER) if one in line.decode()]


def test_a_config_with_a_secret_of_its_own_type_shows_it_nowhere() -> None:
    config = ServerConfig(name="up", command="run", env={"ANY": Secret(SECRET)}, options={"any": {"x": Secret(SECRET)}})

    assert_masked(
        SECRET, {"config": f"{config!r} {config.to_dict()}", "text": config.redact(f"it is {SECRET}")}, told=1
    )
