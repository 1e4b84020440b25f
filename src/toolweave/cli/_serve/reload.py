"""`--reload`: a supervisor that replaces the serving process when a source file changes.

Over stdio it keeps the client's pipes and passes every message on (`relay.py`); over HTTP it only starts and stops
processes on one port. The source is loaded by the serving process alone: a mistake in it never ends the supervisor.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import Literal, Self

import anyio
import anyio.abc

from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._runner import run
from toolweave.cli._screen import note
from toolweave.cli._serve.processes import own_command
from toolweave.cli._serve.relay import ReloadRelay

_STOP_SECONDS = 5.0
_LAST_REQUEST_SECONDS = 60.0
"""Seconds in which the process may start and answer after the client has closed its end, as without --reload."""
_OTHERS = frozenset({"__pycache__", "node_modules", "site-packages"})
_RELOADED = "the server was reloaded while it worked on this; ask again"
_DOWN = "the server does not run since its source changed; see its log"
_ENDED = f"the server did not answer within {_LAST_REQUEST_SECONDS:g} s after its input ended"

Ending = Literal["changed", "gone", "ended"]
_WHY: Mapping[Ending, str] = {"changed": _RELOADED, "gone": _DOWN, "ended": _ENDED}


class Sources:
    """The watched files: Python files below some folders, Markdown files below others, or single files.

    Args:
        folders: Absolute paths; hidden folders, environments and installed packages below them are left out.
        files: Absolute paths.
        markdown: Absolute paths of folders, below the others, whose Markdown files also matter.
    """

    def __init__(self, folders: Sequence[Path], files: Sequence[Path] = (), markdown: Sequence[Path] = ()) -> None:
        self._folders = folders
        self._files = files
        self._markdown = markdown
        # Set by the watcher and replaced by the one that waits, in one event loop: a change while nobody waits is kept
        # for the next wait, and several of them count as one.
        self._changed = anyio.Event()

    def includes(self, path: Path) -> bool:
        """Return whether a change of this file matters."""
        if path in self._files or any(_is_source(path, folder) for folder in self._folders):
            return True
        return any(_is_source(path, folder, ".md") for folder in self._markdown)

    @asynccontextmanager
    async def watched(self) -> AsyncGenerator[None]:
        """Watch the files during the block."""
        from watchfiles import awatch  # an extra, which `supervise` made sure of

        # a file is looked at where it is: editors replace it by another of its name
        places = {*self._folders, *(file.parent for file in self._files)}

        async def watch() -> None:
            # Only files of a config: everything below their folder, perhaps the home folder, would be too much to
            # watch.
            every = awatch(
                *places, watch_filter=lambda _, path: self.includes(Path(path)), recursive=bool(self._folders)
            )
            async for _ in every:
                self._changed.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            yield
            tasks.cancel_scope.cancel()

    async def changed(self) -> None:
        """Return once something has changed since the last time this returned."""
        await self._changed.wait()
        self._changed = anyio.Event()


def supervise(
    target: str | None, configs: Sequence[Path], *, address: tuple[str, int] | None, verbose: bool
) -> ExitCode:
    """Serve in a child process, and in a new one after every change of the source.

    Args:
        target: The Python object or the folder to serve, or None.
        configs: Config files whose servers are served instead.
        address: Host and port; None serves over stdio. Port 0 is any that is free.
        verbose: Show more on standard error.

    Raises:
        CommandError: The package that watches files is not installed.
    """
    if find_spec("watchfiles") is None:
        raise CommandError("--reload needs the package watchfiles", hint="pip install 'toolweave[reload]'")
    sources = _sources(target, configs)
    if address is None:
        return run(lambda: _over_stdio(_command(), sources), verbose=verbose)
    host, port = address
    return run(lambda: _over_http(_command(http=f"{host}:{port or _free_port(host)}"), sources), verbose=verbose)


def _sources(target: str | None, configs: Sequence[Path]) -> Sources:
    from toolweave.cli._serve.locate import parse_place  # late: only here

    if target is None:
        return Sources((), [path.resolve() for path in configs])
    place = parse_place(target)
    # what a client is notified of; contents are read each time, and tools may write them
    if place.folder is not None:
        return Sources([place.folder], markdown=[place.folder / "prompts", place.folder / "skills"])
    return Sources([place.file.parent if place.file else Path.cwd()])


def _command(*, http: str | None = None) -> list[str]:
    """Return this command without --reload, on a port that stays the same."""
    words = [word for word in sys.argv[1:] if word != "--reload"]
    if http is not None:
        place = next(number for number, word in enumerate(words) if word.partition("=")[0] == "--http")
        words[place : place + (1 if "=" in words[place] else 2)] = ["--http", http]
    return own_command(words)


def _env() -> dict[str, str]:
    """Return the environment of a serving process: no bytecode, which has its source's time in whole seconds only."""
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}


def _free_port(host: str) -> int:
    with socket.create_server((host.strip("[]"), 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as one:
        return one.getsockname()[1]


async def _over_http(command: Sequence[str], sources: Sources) -> ExitCode:
    async with sources.watched():
        while True:
            process = await anyio.open_process(command, stdin=None, stdout=None, stderr=None, env=_env())
            async with _Child(process) as child:
                ending = await _first(changed=sources.changed, gone=child.gone)
            if ending == "gone":
                note("the server ended; it is started again when its source changes")
                await sources.changed()
            note("reloading")


async def _over_stdio(command: Sequence[str], sources: Sources) -> ExitCode:
    from toolweave.serve._duplex.pipes import LineReader, LineWriter, standard_streams
    from toolweave.serve._duplex.stdio import MAX_MESSAGE_BYTES  # late: only here

    with standard_streams() as (source, sink):
        writer = LineWriter(sink)
        relay = ReloadRelay(writer.write)
        ended = anyio.Event()

        async def listen() -> None:
            async for line in LineReader(source, max_bytes=MAX_MESSAGE_BYTES).lines():
                if line is not None:
                    relay.from_client(line)
            ended.set()

        try:
            async with sources.watched(), anyio.create_task_group() as tasks:
                tasks.start_soon(listen)
                await _replace_until(ended, command, sources, relay)
                tasks.cancel_scope.cancel()
        finally:
            # The last answers are still to be written when the client has closed its input, or after Ctrl-C. A client
            # that does not read them any more must not keep this process.
            with anyio.move_on_after(_STOP_SECONDS, shield=True):
                await writer.drained()
            writer.close()
    return ExitCode.OK


async def _replace_until(ended: anyio.Event, command: Sequence[str], sources: Sources, relay: ReloadRelay) -> None:
    """Run one process after another until the client disconnects."""
    ending: Ending = "changed"
    while ending != "ended":
        process = await anyio.open_process(command, stderr=None, env=_env())
        async with _Child(process) as child:
            child.begin(relay)
            ending = await _first(changed=sources.changed, gone=child.gone, ended=ended.wait)
            if ending == "changed":
                relay.retire()
            # A server that runs ends by itself soon after its input. One that is still being imported has requests to
            # answer first: a client may write them all and close its end at once.
            await child.finish(_LAST_REQUEST_SECONDS if ending == "ended" else _STOP_SECONDS)
        relay.detach(_WHY[ending], down=ending == "gone")
        if ending == "gone":
            note("the server ended; it is started again when its source changes")
            ending = await _first(changed=sources.changed, ended=ended.wait)
        if ending == "changed":
            note("reloading")


class _Child:
    """One serving process; leaving the block ends it."""

    # The two tasks that carry lines end with the process or with the block. Lines for it wait in a stream without a
    # bound, since the relay must not block: it is called by the task that reads the client. The client's own requests
    # bound what can be in it.

    def __init__(self, process: anyio.abc.Process) -> None:
        self._process = process
        self._tasks = anyio.create_task_group()
        self._all_read = anyio.Event()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        with anyio.CancelScope(shield=True):
            await self._stop()
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)

    def begin(self, relay: ReloadRelay) -> None:
        """Carry lines between the process and the relay."""
        send, receive = anyio.create_memory_object_stream[bytes](float("inf"))
        relay.attach(send.send_nowait)
        self._tasks.start_soon(self._write, receive)
        self._tasks.start_soon(self._read, relay)

    async def gone(self) -> None:
        """Return when the process has ended."""
        await self._process.wait()

    async def finish(self, seconds: float) -> None:
        """Close the process's input and read its remaining output, for this number of seconds at most."""
        if self._process.stdin is not None:
            await self._process.stdin.aclose()
        with anyio.move_on_after(seconds):
            await self._process.wait()
            await self._all_read.wait()

    async def _write(self, lines: anyio.abc.ObjectReceiveStream[bytes]) -> None:
        stdin = self._process.stdin
        # it is gone; `gone` says so
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for line in lines:
                if stdin is not None:
                    await stdin.send(line + b"\n")

    async def _read(self, relay: ReloadRelay) -> None:
        # Chunks end anywhere: what follows the last line end is kept until the rest of the line arrives.
        rest = b""
        if self._process.stdout is not None:
            async for data in self._process.stdout:
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    if line.strip():
                        relay.from_server(line)
        self._all_read.set()

    async def _stop(self) -> None:
        # Shielded by its caller: a cancelled supervisor must not leave a process behind. Both waits are bounded.
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.returncode is None:
                with suppress(ProcessLookupError):
                    os.kill(self._process.pid, number)
                with anyio.move_on_after(_STOP_SECONDS):
                    await self._process.wait()
        await self._process.aclose()


async def _first(**waits: Callable[[], Awaitable[object]]) -> Ending:
    """Wait for the first of these to finish and return its name."""
    came: list[str] = []
    # Several may finish at once, before the cancellation reaches them: the first in the list counts.
    async with anyio.create_task_group() as tasks:

        async def one(name: str, wait: Callable[[], Awaitable[object]]) -> None:
            await wait()
            came.append(name)
            tasks.cancel_scope.cancel()

        for name, wait in waits.items():
            tasks.start_soon(one, name, wait)
    return came[0]  # pyright: ignore[reportReturnType]  # one of the names that were given


def _is_source(path: Path, folder: Path, suffix: str = ".py") -> bool:
    """Return whether a file is a source below a folder.

    Files of hidden folders, of environments and of installed packages are not.
    """
    if path.suffix != suffix or not path.is_relative_to(folder):
        return False
    names = path.relative_to(folder).parts[:-1]
    if any(name.startswith(".") or name in _OTHERS for name in names):
        return False
    return not any((folder / below / "pyvenv.cfg").exists() for below in accumulate(names, os.path.join))
