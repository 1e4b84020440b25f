"""Plays one row of the battery against a client and says what was wrong; knows no client and asserts nothing.

The scenario: connect, call, call again, look at two healthy neighbours after each, close. Every step is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from experiments.faults.rows import HANDSHAKE, Combo, Row
from toolweave.testing.servers import http_fault_server, stdio_fault_command

__all__ = ["BOUND", "Client", "Seen", "descriptors", "judge", "serving", "zombies"]

BOUND = 25.0
"""Seconds after which a step counts as hanging: far beyond the bound that each client is given."""

REVISION = {"legacy": "2025-11-25", "modern": "2026-07-28"}
FIRST = {"legacy": "initialize", "modern": "server/discover"}


class Client(Protocol):
    """What every client is reduced to; each method raises what the client raises."""

    async def open(self) -> None:
        """Connect."""
        ...

    async def tools(self) -> Iterable[str]:
        """Return the names of the tools."""
        ...

    async def call(self, text: str) -> str:
        """Call `echo` and return the text of its result; raise if the result is an error."""
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...


@dataclass(frozen=True, slots=True)
class Seen:
    """What one step came to: `right`, `error`, `hang`, or `escaped` for what no `except Exception` catches."""

    kind: str
    value: Any = None


@contextlib.contextmanager
def serving(row: Row, combo: Combo, folder: Path) -> Generator[list[str] | str]:
    """Run the fault server of a row as far as it must run; yield a command or a URL."""
    transport, _, era = combo.partition("-")
    options: list[object] = ["--version", REVISION[era], *row.options]
    if row.once:
        options += ["--times", 1]
    if transport == "stdio":
        memory = folder / f"{row.name.replace(' ', '_').replace('/', '_')}-{era}"
        yield stdio_fault_command(row.mode, *options, "--memory", memory)
        return
    if row.on is not None:
        options += ["--on", FIRST[era] if row.on == HANDSHAKE else row.on]
    with http_fault_server(row.mode, *options) as url:
        yield url


Attempt = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Seen]]
"""Does one step within a bound."""


async def attempt(step: Callable[[], Awaitable[Any]], *, bound: float, alone: bool) -> Seen:
    """Do one step within the hard bound; `alone` says that nobody but the client can have cancelled this task.

    The bound is no cancel scope: a client may be entered in one step and left in another.
    """
    limit = asyncio.timeout(bound)
    try:
        async with limit:
            return Seen("right", await step())
    except Exception as exc:  # boundary: what a client raises is what is looked at
        if limit.expired():
            return Seen("hang")
        return Seen("error", exc)
    except (asyncio.CancelledError, BaseExceptionGroup) as exc:
        task = asyncio.current_task()
        if not alone and task is not None and task.cancelling():
            raise
        return Seen("escaped", exc)


def shown(seen: Seen) -> str:
    """Return what is said of a step in one line."""
    text = f"{type(seen.value).__name__}: {seen.value}" if isinstance(seen.value, BaseException) else repr(seen.value)
    return f"{seen.kind} {' '.join(text.split())[:160]}"


def verdict(seen: Seen, text: str, *, wanted: str, says: str = "", accepts: str = "") -> str | None:
    """Return what is wrong with the outcome of a call, None if nothing is."""
    if seen.kind in ("hang", "escaped"):
        return shown(seen)
    if seen.kind == "right":
        if seen.value != text and not (accepts and re.search(accepts, str(seen.value))):
            return f"wrong value {str(seen.value)[:60]!r}"
        return "a value where only an error is right" if wanted == "error" else None
    if wanted == "right":
        return shown(seen)
    if not re.search(says, str(seen.value), re.DOTALL):
        return f"the error does not say {says!r}: {shown(seen)}"
    return None


async def judge(
    row: Row,
    client: Client,
    *,
    again: Callable[[], Client],
    neighbours: Sequence[Client] = (),
    bound: float = BOUND,
    alone: bool = False,
) -> list[str]:
    """Play a row; return what was wrong, one line each.

    `again` makes a fresh client of the same server; `alone` says that this task is cancelled by nobody but clients.
    """
    problems: list[str] = []
    look = functools.partial(attempt, bound=bound, alone=alone)

    def note(step: str, problem: str | None) -> None:
        if problem is not None:
            problems.append(f"{step}: {problem}")

    async def look_around() -> None:
        for neighbour in neighbours:
            seen = await attempt(lambda one=neighbour: one.call("neighbour"), bound=BOUND, alone=alone)
            note("a neighbour", verdict(seen, "neighbour", wanted="right"))

    opened = await look(client.open)
    if opened.kind == "right":
        note("connecting", "it connected" if row.connects == "error" else None)
        listed = await look(client.tools)
        if row.offers:
            missing = set(row.offers) - set(listed.value) if listed.kind == "right" else shown(listed)
            note("the list", f"lacks {missing}" if missing else None)
        first = await look(lambda: client.call("first"))
        note("the call", verdict(first, "first", wanted=row.first, says=row.says, accepts=row.accepts))
        await look_around()
        second = await look(lambda: client.call("second"))
        accepts = row.accepts if not row.once else ""
        note("the next call", verdict(second, "second", wanted=row.then, accepts=accepts))
        if row.on == "tools/list" and second.kind == "right":
            listed = await look(client.tools)
            note("the list afterwards", None if listed.kind == "right" and "echo" in listed.value else shown(listed))
    else:
        wanted = "right" if row.connects == "right" else "error"
        note("connecting", verdict(opened, "", wanted=wanted, says=row.says))
        await look_around()
        if row.once:
            note("the next try", await next_try(again(), look))
    await look_around()
    closed = await look(client.close)
    note("closing", None if closed.kind == "right" else shown(closed))
    return problems


async def next_try(client: Client, look: Attempt) -> str | None:
    """Connect anew, call, close; return what was wrong."""
    opened = await look(client.open)
    seen = await look(lambda: client.call("second")) if opened.kind == "right" else opened
    closed = await look(client.close)
    return verdict(seen, "second", wanted="right") or (None if closed.kind == "right" else shown(closed))


def zombies() -> list[int]:
    """Return the children of this process that ended and were not waited for; Linux only, else none."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent, *_ = entry.read_text(errors="replace").rpartition(")")[2].split()
            if state == "Z" and int(parent) == os.getpid():
                found.append(int(entry.parent.name))
    return found


def descriptors() -> int:
    """Return how many file descriptors this process has open; Linux only, else none."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0
