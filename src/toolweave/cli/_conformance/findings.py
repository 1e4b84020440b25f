"""Judgements and the evidence for them. Values only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from toolweave._json_types import JsonObject, array_or_empty, not_none, object_or_empty
from toolweave.tools import Progress


class Outcome(StrEnum):
    """The outcome of a box."""

    PASS = "pass"  # noqa: S105  # no password
    WARN = "warn"
    """Allowed, but against the recommendation of the specification."""
    FAIL = "fail"
    NOT_APPLICABLE = "not applicable"
    """The server does not have the feature, or no answer shows it."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judgement of one box, with the reason in one sentence."""

    outcome: Outcome
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAnswer:
    """The answer to one request.

    Attributes:
        what: The readable name of the request.
        result: The result as it came; None for an error.
        code: The code of the JSON-RPC error; None for any other response.
        message: The message of the error, or of the failure of the request.
        data: The error's `data`.
        tool: The definition of the tool that was called, as it came; None for other requests.
        wrong: The properties that were missing or wrong in the arguments on purpose.
        progress: The progress notifications of the request.
        odd_flag: Whether its `isError` was not a boolean, and read leniently.
        is_wrapped: Whether the result was within another one, and `result` is the inner one.
    """

    what: str
    result: JsonObject | None = None
    code: int | None = None
    message: str = ""
    data: Any = None  # any JSON value
    tool: JsonObject | None = None
    wrong: tuple[str, ...] = ()
    progress: tuple[Progress, ...] = ()
    odd_flag: bool = False
    is_wrapped: bool = False

    @property
    def is_error(self) -> bool:
        """Whether it is a result with `isError`."""
        return self.result is not None and self.result.get("isError") is True

    @property
    def blocks(self) -> Sequence[Any]:
        """The content of the result, valid or not."""
        return array_or_empty(object_or_empty(self.result).get("content"))

    @property
    def text(self) -> str:
        """Its text: the error message, or the text blocks."""
        if self.result is None:
            return self.message
        return "\n".join(str(object_or_empty(block).get("text", "")) for block in self.blocks)

    def __str__(self) -> str:
        if self.code is not None:
            return f"{self.what}: error {self.code}"
        if self.result is None:
            return f"{self.what}: {self.message}"
        return f"{self.what}: a result{' with isError' if self.is_error else ''}"


@dataclass(slots=True, kw_only=True)
class Evidence:
    """The answers of a server.

    Attributes:
        version: The negotiated protocol revision.
        modern: Whether that is of the stateless era (2026-07-28).
        capabilities: As it declared them.
        tools: Its tool definitions as they came, of all pages.
        pages: The answers to `tools/list`, page by page.
        bad_cursor: The answer to a cursor that it never gave.
        unknown_tool: The answer to a call of a tool that does not exist.
        unknown_method: The answer to an unknown method.
        unknown_resource: The answer to a URI that it does not know; None when it has no resources.
        refused: The answers to calls with wrong arguments.
        calls: The answers to calls of safe tools.
        lists: The answers to the other list methods, by method; declared or not.
        contents: The answer to reading its first resource.
        subscribed: The answer to a subscription to it (handshake era).
    """

    version: str
    modern: bool
    capabilities: JsonObject
    tools: list[Any] = field(default_factory=list[Any])
    pages: list[ServerAnswer] = field(default_factory=list[ServerAnswer])
    bad_cursor: ServerAnswer | None = None
    unknown_tool: ServerAnswer | None = None
    unknown_method: ServerAnswer | None = None
    unknown_resource: ServerAnswer | None = None
    refused: list[ServerAnswer] = field(default_factory=list[ServerAnswer])
    calls: list[ServerAnswer] = field(default_factory=list[ServerAnswer])
    lists: dict[str, ServerAnswer] = field(default_factory=dict[str, ServerAnswer])
    contents: ServerAnswer | None = None
    subscribed: ServerAnswer | None = None

    @property
    def of_tools(self) -> list[ServerAnswer]:
        """The answers to all calls of tools."""
        unknown = [self.unknown_tool] if self.unknown_tool else []
        return [*self.calls, *self.refused, *unknown]

    @property
    def errors(self) -> list[ServerAnswer]:
        """The answers that are errors, of whichever kind."""
        answers = [self.unknown_method, self.unknown_resource, self.bad_cursor, *self.of_tools, *self.lists.values()]
        given = not_none(answers)
        return [answer for answer in given if answer.is_error or answer.code is not None]


def ok(reason: str) -> Judgement:
    """Return the judgement that the box is passed."""
    return Judgement(Outcome.PASS, reason)


def warn(reason: str | Iterable[str]) -> Judgement:
    """Return the judgement that it is allowed but not recommended."""
    return Judgement(Outcome.WARN, _sentence(reason))


def fail(reason: str | Iterable[str]) -> Judgement:
    """Return the judgement that it violates the protocol."""
    return Judgement(Outcome.FAIL, _sentence(reason))


def verdict(fine: str, *, wrong: Sequence[str] = (), odd: Sequence[str] = ()) -> Judgement:
    """Return the judgement of a box that applies.

    Args:
        fine: What passed, if nothing is wrong or odd.
        wrong: Violations of the protocol.
        odd: What is allowed but not recommended; it counts only if nothing is wrong.
    """
    if wrong:
        return fail(wrong)
    if odd:
        return warn(odd)
    return ok(fine)


def not_applicable(reason: str) -> Judgement:
    """Return the judgement that the box does not apply."""
    return Judgement(Outcome.NOT_APPLICABLE, reason)


def _sentence(reasons: str | Iterable[str]) -> str:
    if isinstance(reasons, str):
        return reasons
    some = list(reasons)
    text = "; ".join(some[:_SHOWN])
    if len(some) > _SHOWN:
        return f"{text}; and {len(some) - _SHOWN} more"
    return text


_SHOWN = 3
