"""The steps of an attempt to connect with their outcomes, as `toolweave doctor` shows them.

Knows nothing of how a step is done.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Literal, Protocol

import msgspec


class ProcessOutput(Protocol):
    """The output and the exit code of a server process.

    Attributes:
        junk_lines: The number of lines on standard output that were not messages, or answered no request.
        last_junk: The last such line, shortened.
        pieces: The number of pieces of standard output that have arrived.
    """

    pieces: int
    junk_lines: int
    last_junk: str

    @property
    def pid(self) -> int:
        """Its process id, which is also that of its session."""
        ...

    async def last_words(self, seconds: float = 0.5) -> tuple[int | None, str]:
        """Return its exit code, None while it runs, and the tail of its standard error."""
        ...

    def stderr_tail(self, lines: int = 20) -> str:
        """Return the last lines of its standard error."""
        ...

    def relevant_stderr(self, lines: int = 20) -> str:
        """Return the same without the disregarded part."""
        ...

    @property
    def stderr_position(self) -> int:
        """The number of bytes it has written to standard error."""
        ...

    def disregard_stderr(self, since: int) -> None:
        """Exclude the output since this position from `relevant_stderr`."""
        ...


class Step(msgspec.Struct, kw_only=True):
    """One step of an attempt to connect.

    Attributes:
        name: A few words, such as `"start process"`.
        outcome: `"ok"`, `"failed"`, `"skipped"`, or `"running"` while it runs.
        seconds: The time it took.
        detail: The outcome, or the reason of a failure; may hold server text, which is untrusted.
    """

    name: str
    outcome: Literal["running", "ok", "failed", "skipped"] = "running"
    seconds: float = 0.0
    detail: str = ""


class Report:
    """The steps of the last attempt to connect, in order.

    Args:
        redact: Masks the server's secrets in the details of a step.

    Attributes:
        steps: The steps, each with its result and the seconds that it took.
        process: The process that was started, or None; its output outlives it.
        received_mark: Returns a value that changes whenever bytes of the server arrive; None if they are not counted.
        auth_problems: Returns the problems that the authorization of requests has reported.
    """

    def __init__(self, redact: Callable[[str], str] = str) -> None:
        self._redact = redact
        self.steps: list[Step] = []
        self.process: ProcessOutput | None = None
        self.received_mark: Callable[[], object] | None = None
        self.auth_problems: Callable[[], tuple[str, ...]] = tuple

    @contextmanager
    def step(self, name: str) -> Generator[Step, None, None]:
        """Time one step; an exception marks it failed and passes on."""
        step = Step(name=name)
        self.steps.append(step)
        started = time.monotonic()
        try:
            yield step
        except asyncio.CancelledError:
            step.outcome = "failed"
            step.detail = step.detail or "not finished in time"
            raise
        except BaseException as exc:
            step.outcome = "failed"
            step.detail = step.detail or str(exc) or type(exc).__name__
            raise
        else:
            if step.outcome == "running":
                step.outcome = "ok"
        finally:
            step.detail = self._redact(step.detail)
            step.seconds = time.monotonic() - started

    @property
    def stderr_position(self) -> int:
        """The number of bytes the process has written to standard error; 0 without a process."""
        if self.process is not None:
            return self.process.stderr_position
        return 0

    def disregard_stderr(self, since: int) -> None:
        """Exclude standard error since a position from error messages: our own probe caused it."""
        if self.process is not None:
            self.process.disregard_stderr(since)

    def note(self, name: str, detail: str, *, outcome: Literal["ok", "failed", "skipped"] = "ok") -> None:
        """Add a step that took no time."""
        self.steps.append(Step(name=name, outcome=outcome, detail=self._redact(detail)))

    @property
    def seconds(self) -> float:
        """The total time of all steps."""
        return sum(step.seconds for step in self.steps)
