"""Scripted answers, refusals, silences and crashes of a server in memory, by method.

The script stands before the endpoint of the product's own server, which answers the rest. Knows nothing of how messages
travel.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import anyio
import msgspec

from toolweave.errors import ProtocolError, RequestError
from toolweave.protocol import methods
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.serve import Endpoint, Request
from toolweave.serve.request import Json

ScriptedAnswer: TypeAlias = (
    Mapping[str, Any] | Callable[[Mapping[str, Any]], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]
)
"""A result as JSON, or a function, plain or async, from a request's params to one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One message that a client sent.

    Attributes:
        method: Such as `"tools/call"`.
        params: As they came, `_meta` included.
        id: The request's id; None for a notification.
        conversation: The number of its conversation, from 1.
    """

    method: str
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    id: int | str | None = None
    conversation: int = 1

    @property
    def tool(self) -> str | None:
        """The name of the tool that is called, or None."""
        return _tool(self.method, self.params)


@dataclass(slots=True, kw_only=True)
class Reaction:
    """A reaction to requests of a method, instead of the real answer.

    Attributes:
        tool: Only calls of this tool; None is all of them.
        left: The remaining number of requests; None for all.
        how: `"answer"`, `"refuse"` with `error`, `"hang"` or `"crash"`.
    """

    method: str
    how: Literal["answer", "refuse", "hang", "crash"]
    tool: str | None = None
    left: int | None = 1
    answer: ScriptedAnswer = field(default_factory=dict[str, Any])
    error: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if self.left is not None and self.left < 1:
            raise ValueError(f"times must be at least 1, or None for always, not {self.left!r}")

    def fits(self, request: Request) -> bool:
        """Return whether this is for the request."""
        return request.method == self.method and self.tool in (None, _tool(request.method, request.params))


class ReactionScript:
    """The reactions of one server: those limited in number in their order, then the newest of the others."""

    def __init__(self) -> None:
        self._limited: list[Reaction] = []
        self._lasting: list[Reaction] = []

    def add(self, reaction: Reaction) -> None:
        """Add a reaction."""
        (self._lasting if reaction.left is None else self._limited).append(reaction)

    def next_for(self, request: Request) -> Reaction | None:
        """Return the reaction to a request, and count it as used; None for the normal answer."""
        for reaction in self._limited:
            if reaction.fits(request):
                assert reaction.left is not None
                reaction.left -= 1
                if not reaction.left:
                    self._limited.remove(reaction)
                return reaction
        return next((reaction for reaction in reversed(self._lasting) if reaction.fits(request)), None)


class ScriptedResponder:
    """A `Responder` that follows the script, and has the endpoint answer the rest.

    Args:
        endpoint: The product's own.
        script: What the test wants to happen.
        hang_up: Ends the conversation of this name at once.
    """

    def __init__(self, endpoint: Endpoint, script: ReactionScript, hang_up: Callable[[str | None], None]) -> None:
        self._endpoint = endpoint
        self._script = script
        self._hang_up = hang_up

    @property
    def versions(self) -> tuple[str, ...]:
        """The revisions that the endpoint speaks."""
        return self._endpoint.versions

    def serves(self, method: str, *, modern: bool) -> bool:
        """Whether the endpoint has the method in that era."""
        return self._endpoint.serves(method, modern=modern)

    def negotiate(self, offered: object) -> str:
        """Return the handshake-era revision that the endpoint agrees to."""
        return self._endpoint.negotiate(offered)

    async def answer(self, request: Request) -> Json:
        """Return the result of a request, complete for its era.

        Raises:
            RequestError: The answer is a JSON-RPC error.
        """
        reaction = self._script.next_for(request)
        if reaction is None:
            return await self._endpoint.answer(request)
        match reaction.how:
            case "refuse":
                raise RequestError(reaction.error["message"], code=reaction.error["code"], data=reaction.error["data"])
            case "crash":
                self._hang_up(request.client.conversation)
                # Until the end of the conversation cancels it: a crash must not send a response.
                await anyio.sleep_forever()
            case "hang":
                await anyio.sleep_forever()
            case "answer":
                pass
        result = await _made(reaction.answer, request.params)
        # a `_meta` that is not an object is sent as it is: a script may break the rules of the protocol
        stamps = request.modern and isinstance(result.get("_meta", {}), Mapping)
        return _as_written(self._endpoint.stamped(request.method, result) if stamps else result)


def _tool(method: str, params: Mapping[str, Any]) -> str | None:
    name = params.get("name")
    if method == methods.TOOLS_CALL and isinstance(name, str):
        return name
    return None


async def _made(answer: ScriptedAnswer, params: Mapping[str, Any]) -> Json:
    try:
        made = answer(params) if callable(answer) else answer
        return dict(await made if inspect.isawaitable(made) else made)
    except ProtocolError as exc:
        raise RequestError(exc.message, code=exc.code, data=exc.data) from None
    except RequestError:
        raise
    except Exception as exc:
        # Boundary: the test's own function.
        raise RequestError(f"{type(exc).__name__}: {exc}", code=INTERNAL_ERROR) from None


def _as_written(result: Json) -> Json:
    """Return a result whose members are text already, so that an invalid result is sent unchanged."""
    try:
        return {name: value if _is_plain(value) else _text(value) for name, value in result.items()}
    except (TypeError, ValueError) as exc:
        raise RequestError(f"this is not JSON: {exc}", code=INTERNAL_ERROR) from None


def _is_plain(value: object) -> bool:
    return isinstance(value, str) and value.isascii()


def _text(value: Any) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value, separators=(",", ":"), allow_nan=False).encode())
