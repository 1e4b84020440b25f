"""One experiment with one library, in an environment that has it: `python -m experiments.features.player LIBRARY ROW`.

Reads the scene as JSON from standard input and prints what was observed as JSON. It judges nothing. Needs nothing but
the standard library, `experiments.sign_in` and the module of the library in `experiments/features/libraries`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import webbrowser
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from experiments.sign_in import Person

__all__ = ["Command", "Opened", "find", "root_of"]

SECONDS = 60.0
CHANGE_SECONDS = 5.0
RESTART_ATTEMPTS = 6
Command = Sequence[str]
Facts = dict[str, Any]


class Opened(Protocol):
    """Servers as a program has them that uses the library."""

    async def offered(self) -> Mapping[str, str]:
        """Return the tools that a model would be given at its next turn: name -> description."""
        ...

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Run a tool as a model asks for it, and return the text that the model reads."""
        ...


class Library(Protocol):
    """A module of `experiments/features/libraries`."""

    def opened(self, servers: Mapping[str, Command], **how: Any) -> AbstractAsyncContextManager[Opened]:
        """Connect servers, as the documentation of the library has it for the feature at hand."""
        ...

    def opened_file(self, path: str, inputs: Mapping[str, str]) -> AbstractAsyncContextManager[Opened]:
        """Connect the servers of an editor's file."""
        ...

    def signed_in(self, url: str, person: Person) -> AbstractAsyncContextManager[Opened]:
        """Connect a server that wants a token."""
        ...

    def approving(
        self, server: Command, paths: Sequence[str], decide: Callable[[str], bool]
    ) -> AbstractAsyncContextManager[None]:
        """Let a scripted model call `delete` for each path, and give what is asked to `decide`."""
        ...


def root_of(error: BaseException) -> BaseException:
    """Return the first error in a group of them."""
    group: Any = error
    return root_of(group.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


async def find(tools: Opened, tool: str) -> str:
    """Return the name by which a tool of a server is offered.

    Raises:
        LookupError: It is not offered.
    """
    offered = await tools.offered()
    for name in offered:
        if name.endswith(tool):
            return name
    raise LookupError(f"{tool!r} is not among {list(offered)}")


async def changes(library: Library, scene: Mapping[str, Any]) -> Facts:
    """Call a tool that adds another, and look whether it is offered."""
    async with library.opened({"s": scene["command"]}, row="changes") as tools:
        await tools.call(await find(tools, "grow"), {})

        async def grown() -> bool:
            return any(name.endswith("grown") for name in await tools.offered())

        return {"offered": await until(grown, CHANGE_SECONDS)}


async def restart(library: Library, scene: Mapping[str, Any]) -> Facts:
    """Kill a server's process between two calls."""
    async with library.opened({"s": scene["command"]}, row="restart") as tools:
        name = await find(tools, "pid")
        first = int(await tools.call(name, {}))
        second = int(await tools.call(name, {}))
        with suppress(ProcessLookupError):
            os.kill(second, signal.SIGKILL)
        for _ in range(RESTART_ATTEMPTS):
            with suppress(Exception):  # boundary: a call that fails is tried again
                async with asyncio.timeout(5):
                    answer = await tools.call(name, {})
                if answer.isdecimal():
                    return {"pids": [first, second, int(answer)]}
            await asyncio.sleep(0.5)
        return {"pids": [first, second, None]}


async def partial(library: Library, scene: Mapping[str, Any]) -> Facts:
    """Connect two servers that work and one whose command does not exist."""
    servers = {"one": scene["command"], "broken": ["no-such-program"], "two": scene["command"]}
    async with library.opened(servers, row="partial") as tools:
        return {"texts": [await tools.call(name, {}) for name in await tools.offered()]}


async def arguments(library: Library, scene: Mapping[str, Any]) -> Facts:
    """Call a tool with arguments that break its schema, each in one way."""
    async with library.opened({"s": scene["command"]}, row="arguments") as tools:
        name = await find(tools, "book")
        for one in scene["calls"]:
            with suppress(Exception):  # boundary: the journal of the server shows what was sent
                await tools.call(name, one)
        return {}


async def names(library: Library, scene: Mapping[str, Any]) -> Facts:
    """Look at the names that a model would be given, and call each."""
    async with library.opened({"s": scene["command"]}, row="names") as tools:
        return {"answers": {name: await tools.call(name, {}) for name in await tools.offered()}}


async def pins(library: Library, scene: Mapping[str, Any]) -> Facts:
    """Connect, let the definition of a tool change, and connect again."""
    found: list[list[str]] = []
    for description in scene["descriptions"]:
        Path(scene["definition"]).write_text(description, encoding="utf-8")
        async with library.opened({"s": scene["command"]}, row="pins", folder=scene["folder"]) as tools:
            found.append(list((await tools.offered()).values()))
    return {"offered": found}


async def vscode(library: Library, scene: Mapping[str, Any]) -> Facts:
    """Connect the server of a file of VS Code, and ask it for the value of the input."""
    async with library.opened_file(scene["file"], scene["inputs"]) as tools:
        return {"token": await tools.call(await find(tools, "token"), {})}


async def approval(library: Library, scene: Mapping[str, Any]) -> Facts:
    """Allow one call and deny another; count what had reached the server before."""
    asked: list[str] = []
    before: list[int] = []

    def decide(path: str) -> bool:
        before.append(Path(scene["journal"]).read_text(encoding="utf-8").count('"tools/call"'))
        asked.append(path)
        return path == scene["allowed"]

    async with library.approving(scene["command"], scene["paths"], decide):
        return {"asked": asked, "before": before}


async def oauth(library: Library, scene: Mapping[str, Any]) -> Facts:
    """Call a tool of a server that wants a token."""
    person = Person()
    webbrowser.open = person.open
    async with library.signed_in(scene["url"], person) as tools:
        return {
            "text": await tools.call(await find(tools, "t"), {}),
            "pages": len(person.opened),
            "by_caller": getattr(library, "SIGN_IN_BY_CALLER", False),
        }


async def spans(library: Library, scene: Mapping[str, Any]) -> Facts:
    """Call a tool while an exporter of OpenTelemetry listens."""
    trace, sdk = import_module("opentelemetry.trace"), import_module("opentelemetry.sdk.trace")
    export = import_module("opentelemetry.sdk.trace.export")
    memory = import_module("opentelemetry.sdk.trace.export.in_memory_span_exporter").InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(memory))
    trace.set_tracer_provider(provider)
    async with library.opened({"s": scene["command"]}, row="spans") as tools:
        await tools.call(await find(tools, "echo"), {})
    return {
        "spans": [
            {"scope": one.instrumentation_scope.name, "name": one.name, "attributes": dict(one.attributes)}
            for one in memory.get_finished_spans()
        ]
    }


async def until(check: Callable[[], Awaitable[bool]], seconds: float) -> bool:
    """Whether a check holds within a bound."""
    end = asyncio.get_running_loop().time() + seconds
    while not (holds := await check()) and asyncio.get_running_loop().time() < end:
        await asyncio.sleep(0.25)
    return holds


EXPERIMENTS: Mapping[str, Callable[[Library, Mapping[str, Any]], Awaitable[Facts]]] = {
    "changes": changes,
    "restart": restart,
    "partial": partial,
    "arguments": arguments,
    "names": names,
    "pins": pins,
    "vscode": vscode,
    "approval": approval,
    "oauth": oauth,
    "spans": spans,
}


async def play(library: str, row: str, scene: Mapping[str, Any]) -> Facts:
    """Run one experiment; an error is what was observed, too."""
    module: Any = import_module(f"experiments.features.libraries.{library}")
    try:
        async with asyncio.timeout(SECONDS):
            return await EXPERIMENTS[row](module, scene)
    except Exception as exc:  # boundary: it is what is looked at
        return {"error": f"{type(root_of(exc)).__name__}: {root_of(exc)}"}


async def main() -> None:
    """Run one experiment, print what was observed, and exit."""
    observed = await play(sys.argv[1], sys.argv[2], json.load(sys.stdin))
    sys.stdout.write("\n" + json.dumps(observed, default=str) + "\n")
    sys.stdout.flush()
    os._exit(0)  # a library that failed may have left tasks that cannot be cancelled


if __name__ == "__main__":
    asyncio.run(main())
