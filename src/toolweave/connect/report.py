"""What was tried to reach a server, step by step: the facts behind `toolweave doctor`.

Knows nothing of how a step is done.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

__all__ = ["LastWords", "Report", "Step"]


class LastWords(Protocol):
    """What a process leaves behind.

    Attributes:
        junk_lines: How many lines on standard output were no message, or an answer to nothing.
        last_junk: The last such line, shortened.
    """

    junk_lines: int
    last_junk: str

    async def last_words(self, seconds: float = 0.5) -> tuple[int | None, str]:
        """Return its exit code, None while it runs, and the tail of its standard error."""
        ...

    def stderr_tail(self, lines: int = 20) -> str:
        """Return the last lines of its standard error."""
        ...


@dataclass(slots=True, kw_only=True)
class Step:
    """One thing that was tried.

    Attributes:
        name: A few words, such as `"start process"`.
        outcome: `"ok"`, `"failed"`, `"skipped"`, or `"running"` while it runs.
        seconds: How long it took.
        detail: What came of it, or why it failed; may hold server text, which is untrusted.
    """

    name: str
    outcome: Literal["running", "ok", "failed", "skipped"] = "running"
    seconds: float = 0.0
    detail: str = ""


class Report:
    """The steps of the last attempt to connect, in order.

    Attributes:
        process: The process that was started, or None; its last words outlive it.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.process: LastWords | None = None

    @contextmanager
    def step(self, name: str) -> Generator[Step, None, None]:
        """Time one step; an exception marks it failed and passes on."""
        step = Step(name=name)
        self.steps.append(step)
        started = time.monotonic()
        try:
            yield step
        except asyncio.CancelledError:
            step.outcome, step.detail = "failed", step.detail or "not finished in time"
            raise
        except BaseException as exc:
            step.outcome = "failed"
            step.detail = step.detail or str(exc) or type(exc).__name__
            raise
        else:
            if step.outcome == "running":
                step.outcome = "ok"
        finally:
            step.seconds = time.monotonic() - started

    def note(self, name: str, detail: str, *, outcome: Literal["ok", "failed", "skipped"] = "ok") -> None:
        """Add a step that took no time."""
        self.steps.append(Step(name=name, outcome=outcome, detail=detail))

    @property
    def seconds(self) -> float:
        """How long all steps took together."""
        return sum(step.seconds for step in self.steps)
