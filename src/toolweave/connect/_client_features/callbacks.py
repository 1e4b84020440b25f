"""Callbacks for the requests of a server, in every era.

Knows no wire; `protocol/client_requests.py` has the values that they take and return.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, TypeAlias, cast

import msgspec

from toolweave._json_types import Json, JsonObject
from toolweave._option_checks import FLAG, check_kinds
from toolweave._value import Value
from toolweave.protocol.client_requests import (
    Askable,
    ElicitationRequest,
    ElicitationResult,
    Root,
    RootLike,
    SamplingMessage,
    SamplingResult,
)
from toolweave.protocol.logs import LogLevel, LogMessage, check_level
from toolweave.tools import ToolSpec


class SamplingRequest(Value, frozen=True, kw_only=True):
    """A server's request for a completion by the client's language model (`sampling/createMessage`).

    Attributes:
        server: The name of the requesting server in the config.
        max_tokens: The maximum of tokens that the server requests; None when it does not say.
        tools: Tools that the model may use; only sent when `Callbacks.sampling_tools` is set.
        tool_choice: `"auto"`, `"required"` or `"none"`.
        raw: The parameters as received, with model preferences, stop sequences and all other members.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"raw"})
    server: str
    messages: tuple[SamplingMessage, ...]
    system_prompt: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"
    raw: JsonObject = msgspec.field(default_factory=Json)


SamplingAnswer: TypeAlias = SamplingResult | str | None
ElicitationAnswer: TypeAlias = ElicitationResult | JsonObject | None
RootsAnswer: TypeAlias = Sequence[RootLike]
AnswerRequest: TypeAlias = Callable[[str, JsonObject], Awaitable[Json]]
"""Answers a request of a server, by its method and params, with the result as it is; a `RequestError` refuses it."""


def checked_roots(given: object) -> list[Root]:
    """Return roots as they are sent. One path alone is an error: its characters would be taken for paths.

    Raises:
        TypeError: They are not roots.
        ValueError: One is the URI of something that is not a file.
    """
    if isinstance(given, (str, Path, Root)):
        raise TypeError("roots must be a sequence of roots, a callable or None; put the one root in a list")
    if not isinstance(given, Iterable):
        raise TypeError(f"roots must be a sequence of roots, a callable or None, not {type(given).__name__}")
    roots: list[Root] = []
    for root in cast("Iterable[object]", given):
        if not isinstance(root, (str, Path, Root)):
            raise TypeError(f"each of roots must be a path, a file URI or a Root, not {type(root).__name__}")
        roots.append(Root.of(root))
    return roots


class Callbacks(Value, frozen=True, kw_only=True):
    """Callables that answer the requests of a server; one that is None is not declared as a capability, and refused.

    Each callable may be sync or async. One that raises costs only the request it was called for.
    A callback has no time limit; the call on whose behalf it runs does not time out meanwhile.

    Attributes:
        sampling: Takes a `SamplingRequest`; returns a `SamplingResult`, a plain text, or None to refuse.
        elicitation: Takes an `ElicitationRequest`; returns an `ElicitationResult`, a mapping (accepted,
            with that content) or None (declined).
        roots: The roots, or a callable without arguments that returns them.
        logging: Takes each `LogMessage`, in order.
        sampling_tools: Declare that `sampling` supports `SamplingRequest.tools`.
        log_level: The minimum severity to send. None leaves it to legacy servers and is `"info"` for
            modern ones, which send nothing without it.

    Raises:
        TypeError: A value has another type.
        ValueError: The log level does not exist, or a root is the URI of something that is not a file.
    """

    sampling: Callable[[SamplingRequest], SamplingAnswer | Awaitable[SamplingAnswer]] | None = None
    elicitation: Callable[[ElicitationRequest], ElicitationAnswer | Awaitable[ElicitationAnswer]] | None = None
    roots: RootsAnswer | Callable[[], RootsAnswer | Awaitable[RootsAnswer]] | None = None
    logging: Callable[[LogMessage], Awaitable[None] | None] | None = None
    sampling_tools: bool = False
    log_level: LogLevel | None = None

    def __post_init__(self) -> None:
        for name in ("sampling", "elicitation", "logging"):
            if not (getattr(self, name) is None or callable(getattr(self, name))):
                raise TypeError(f"{name} must be callable or None, not {type(getattr(self, name)).__name__}")
        check_kinds(self, {"sampling_tools": FLAG})
        roots: object = self.roots
        if roots is not None and not callable(roots):
            if isinstance(roots, Iterator):  # nothing would be left of it for the second request
                raise TypeError("roots must be a sequence of roots, a callable or None, not an iterator")
            checked_roots(roots)
        if self.log_level is not None:
            check_level(self.log_level)

    @property
    def may_answer(self) -> bool:
        """Whether there is any request of a server that is not refused."""
        return bool(self.answers())

    def answers(self) -> list[Askable]:
        """Return the kinds of request that are not refused."""
        offered: Mapping[Askable, bool] = {
            "sampling": self.sampling is not None,
            "sampling.tools": self.sampling is not None and self.sampling_tools,
            "elicitation": self.elicitation is not None,
            "elicitation.url": self.elicitation is not None,
            "roots": self.roots is not None,
        }
        return [name for name, given in offered.items() if given]


NO_CALLBACKS = Callbacks()
"""Offers nothing."""


async def ask_caller(request: ElicitationRequest) -> ElicitationResult:
    """Leave a question asked during a tool call to the caller of the tool: `Callbacks(elicitation=ask_caller)`.

    A call whose `CallContext.questions` is set is asked there, in every era; calls of a legacy server are made one
    after another then, since its questions do not say which call they are of. All other questions are cancelled.
    """
    return ElicitationResult.cancel()


class ClientStandIn(Value, frozen=True, kw_only=True):
    """Another client, on whose behalf a connection is made: the part that a gateway passes on.

    Attributes:
        capabilities: Its capabilities, which are declared as they are.
        answer: Gets every request of the server but pings, as it came.
    """

    capabilities: JsonObject
    answer: AnswerRequest
