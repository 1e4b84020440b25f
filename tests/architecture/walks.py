"""What each way through the package walks: the functions, modules and frames of one ordinary call of each.

`python -m tests.architecture.walks` prints the table; with `--write` it replaces the numbers of `walks.json`. A walk is
counted in its steady state, once all that is cached is. Of all repetitions the one with the fewest functions counts:
what a background task does meanwhile, or a response that arrives in two parts, only adds some.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import anyio

from tests.architecture.source import package_folder
from tests.gateway.plain_callers import META, Plain, plain
from tests.gateway.relayed import MODERN, gateway_to, upstream
from tests.jobs.places import working
from tests.serve.raw import raw_client
from tests.serve.serving import served_http
from toolweave import Agent, Progress, connect_mcp, tool
from toolweave.jobs import Backend
from toolweave.models import ModelRequest, ScriptedModel, ToolMessage, tool_call
from toolweave.serve import create_mcp_server
from toolweave.state import SqliteStore
from toolweave.testing.servers import stdio_server_command

__all__ = ["NUMBERS", "WALKS", "WITH_META", "Walk", "table", "walk_of"]

NUMBERS = Path(__file__).with_name("walks.json")
SOURCE = f"{package_folder()}/"
WARM = 5
REPEATED = 40
WITH_META: dict[str, Any] = {
    "progressToken": 1,
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "com.example/toolUseId": "toolu_01",
}
"""The members of a `_meta` that agents send with a call."""
_INLINE = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")  # later versions of Python have no frames for most
_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class Walk(NamedTuple):
    """What one way runs.

    Attributes:
        functions: The functions, as `room/_file.py:Class.function`.
        frames: How often functions are entered.
    """

    functions: frozenset[str]
    frames: int

    @property
    def modules(self) -> frozenset[str]:
        """The modules of the functions."""
        return frozenset(name.partition(":")[0] for name in self.functions)

    @property
    def numbers(self) -> dict[str, int]:
        """Functions, modules and frames."""
        return {"functions": len(self.functions), "modules": len(self.modules), "frames": self.frames}


class _Counter:
    """A profile function that notes the functions of the package."""

    def __init__(self) -> None:
        self.functions: set[str] = set()
        self.frames = 0

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(SOURCE):
            return
        if code.co_name in _INLINE or code.co_name == "<module>" or _is_resumed(frame, code):
            return
        self.frames += 1
        self.functions.add(f"{code.co_filename.removeprefix(SOURCE)}:{code.co_qualname}")


def _is_resumed(frame: FrameType, code: CodeType) -> bool:
    """Whether a coroutine or generator continues, where every function is entered once."""
    # The argument of RESUME is 0 where a function begins, and something else behind a `yield` or an `await`.
    return bool(code.co_flags & _GENERATORS) and bool(code.co_code[frame.f_lasti + 1] & 3)


@contextmanager
def counting() -> Generator[_Counter]:
    """Note what this thread runs during the block."""
    counter = _Counter()
    before = sys.getprofile()
    sys.setprofile(counter)
    try:
        yield counter
    finally:
        sys.setprofile(before)


async def _steady(call: Callable[[], Awaitable[object]]) -> Walk:
    """Return the walk of a call that was made a few times before."""
    for _ in range(WARM):
        await call()
    counters: list[_Counter] = []
    for _ in range(REPEATED):
        with counting() as counter:
            await call()
        counters.append(counter)
    least = min(counters, key=lambda one: (len(one.functions), one.frames))
    return Walk(frozenset(least.functions), least.frames)


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def _asked(client: Plain, name: str, arguments: Mapping[str, Any], meta: Mapping[str, Any]) -> None:
    status, _, answer = await client.ask(*client.call(name, arguments, _meta={**META, **meta}))
    assert status == 200, answer
    assert not answer["result"].get("isError"), answer


async def _served(meta: Mapping[str, Any]) -> Walk:
    server = create_mcp_server(name="sums", version="1", tools=[add])
    async with served_http(server) as url, plain(url, MODERN) as client:
        return await _steady(partial(_asked, client, "add", {"a": 1, "b": 2}, meta))


async def _through_gateway(carrier: str, meta: Mapping[str, Any]) -> Walk:
    with upstream(f"{carrier}-modern") as config:
        async with served_http(gateway_to(config)) as url, plain(url, MODERN) as client:
            return await _steady(partial(_asked, client, "echo", {"text": "hi"}, meta))


async def _in_process(meta: Mapping[str, Any]) -> Walk:
    async with raw_client(create_mcp_server(name="sums", version="1", tools=[add]), MODERN) as client:

        async def call() -> None:
            params = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": meta}
            answer = await client.ask(client.request("tools/call", params))
            assert not answer["result"].get("isError"), answer

        return await _steady(call)


def _ignore(_progress: Progress) -> None:
    pass


async def _client(carrier: str, meta: Mapping[str, Any]) -> Walk:
    given = {name: member for name, member in meta.items() if name != "progressToken"}
    on_progress = _ignore if "progressToken" in meta else None
    with upstream(f"{carrier}-modern") as config:
        async with connect_mcp(config) as connection:

            async def call() -> None:
                result = await connection.call_tool("echo", {"text": "hi"}, meta=given or None, on_progress=on_progress)
                assert not result.is_error, result

            return await _steady(call)


def _summed(request: ModelRequest) -> Any:
    if isinstance(request.messages[-1], ToolMessage):
        return "3"
    return tool_call("add", {"a": 1, "b": 2})


async def _agent(_meta: Mapping[str, Any]) -> Walk:
    with tempfile.TemporaryDirectory() as folder:
        async with (
            SqliteStore(f"{folder}/runs.db") as store,
            Agent(ScriptedModel(_summed), tools=[add], name="sums", store=store) as agent,
        ):
            return await _steady(partial(agent.run, "1 + 2?"))


async def _worker(_meta: Mapping[str, Any]) -> Walk:
    async with Backend() as backend:
        agent = Agent(ScriptedModel(_summed), tools=[add], name="sums", backend=backend)

        async def submitted() -> None:
            await (await agent.submit("1 + 2?")).result()

        async with agent, working(backend, agent):
            return await _steady(submitted)


async def _command(_meta: Mapping[str, Any]) -> Walk:
    command = [sys.executable, "-m", __spec__.name, "--command"]
    # A variable with our prefix is compared with those that are read.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TOOLWEAVE_")}
    done = await anyio.run_process(command, stderr=None, env=environment)
    found = json.loads(done.stdout.splitlines()[-1])
    return Walk(frozenset(found["functions"]), found["frames"])


def _run_command() -> None:
    """Run `toolweave call` in this process, which has run nothing else, and print its walk."""
    from toolweave.cli.main import main

    with counting() as counter, suppress(SystemExit):
        main(["call", "echo", "text=hi", "--", *stdio_server_command()])
    print(json.dumps({"functions": sorted(counter.functions), "frames": counter.frames}))


WALKS: dict[str, Callable[[Mapping[str, Any]], Awaitable[Walk]]] = {
    "server": _served,
    "server, in process": _in_process,
    "gateway, stdio": partial(_through_gateway, "stdio"),
    "gateway, HTTP": partial(_through_gateway, "http"),
    "client, stdio": partial(_client, "stdio"),
    "client, HTTP": partial(_client, "http"),
    "agent": _agent,
    "worker": _worker,
    "command": _command,
}
"""A call of a tool of a server over HTTP and in process, of an upstream behind a gateway, by a client, by a run of an
agent with a store, by a submitted run at a worker, and by `toolweave call`."""
CALLS = ("server", "server, in process", "gateway, stdio", "gateway, HTTP", "client, stdio", "client, HTTP")
"""Those whose caller is a client, or is one, which may send more than the envelope in `_meta`."""


async def walk_of(name: str, meta: Mapping[str, Any] | None = None) -> Walk:
    """Return the walk of a way, whose call has these members in `_meta` beside the envelope."""
    return await WALKS[name](meta or {})


async def table() -> dict[str, dict[str, int]]:
    """Return functions, modules and frames of every walk, and of those with metadata."""
    found: dict[str, dict[str, int]] = {}
    for name in WALKS:
        found[name] = (await walk_of(name)).numbers
        if name in CALLS:
            found[f"{name}, with metadata"] = (await walk_of(name, WITH_META)).numbers
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print or write the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.architecture.walks", description=__doc__)
    parser.add_argument("--write", action="store_true", help="replace the numbers of walks.json")
    parser.add_argument("--command", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.command:
        _run_command()
        return
    text = json.dumps(anyio.run(table), indent=2) + "\n"
    if options.write:
        NUMBERS.write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
