"""One request in transit between a caller and an upstream, as a value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from toolweave._json_types import JsonObject, without_members
from toolweave.connect._direct import DirectCall
from toolweave.connect._forwarding import ForwardedRequest
from toolweave.connect._session import ClientDeclaration
from toolweave.errors import RequestError
from toolweave.gateway._relay.caller_stream import CallerStream
from toolweave.gateway._relay.routes import Route
from toolweave.gateway._relay.sealed_state import SealedRound
from toolweave.protocol import methods
from toolweave.protocol.codes import INVALID_PARAMS
from toolweave.protocol.input_required import INPUT_RESPONSES
from toolweave.protocol.meta import RELATED_TASK, SUBSCRIPTION_ID
from toolweave.protocol.tasks import declares_tasks
from toolweave.serve import Request
from toolweave.serve._request_context import forwarded_meta
from toolweave.serve.request import Json

HOPS = frozenset({RELATED_TASK, SUBSCRIPTION_ID})
"""The members of a `_meta` that concern the caller's side alone, and are not forwarded."""


class RelayedCall(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """One request in transit: the caller's, and the one that is sent upstream.

    Attributes:
        request: The caller's request.
        route: The upstream.
        method: The method that is sent.
        params: The parameters that are sent, without `_meta`, answers and state.
        stream: The notifications to the caller.
        resumed: The round of input that the request continues, or None.
        follow_tasks: Whether a call that becomes a task is followed by the relay.
        sole: Whether the connection carries nothing else meanwhile, so that all its notifications are of this call.
        sent: The call as it was sent already, or None.
        on_place: Called with the place of the connection that the call is sent on, if that is not the one of the hub.
    """

    request: Request
    route: Route
    method: str
    params: Mapping[str, Any]
    stream: CallerStream
    resumed: SealedRound | None
    follow_tasks: bool
    sole: bool = False
    sent: DirectCall | None = None
    on_place: Callable[[str], object] | None = None

    def note_place(self, place: str) -> None:
        """Report the connection that the call is sent on."""
        if self.on_place is not None:
            self.on_place(place)

    @property
    def may_become_task(self) -> bool:
        """Whether its result may name a task, which later requests have to find."""
        return not self.follow_tasks or "task" in self.params

    def becomes_task_of(self, capabilities: JsonObject) -> bool:
        """Whether an upstream with these capabilities may make a task of it, which is on the shared connection."""
        return not self.follow_tasks and ("tasks" in capabilities or declares_tasks(capabilities))

    @property
    def number(self) -> int:
        """The number of the next round of input."""
        if self.resumed is None:
            return 1
        return self.resumed.number + 1

    @property
    def repeatable(self) -> bool:
        """Whether it may be made twice: it calls no tool, or one that says that this does no harm."""
        spec = self.route.spec
        if self.method != methods.TOOLS_CALL or spec is None:
            return self.method != methods.TOOLS_CALL
        return spec.hint("readOnlyHint") is True or spec.hint("idempotentHint") is True

    @property
    def answers(self) -> Json:
        """The answers that came with the request, by key.

        Raises:
            RequestError: They are not an object of objects (-32602).
        """
        answers = self.request.object(INPUT_RESPONSES)
        for key, answer in answers.items():
            if not isinstance(answer, dict):
                raise RequestError(f"{INPUT_RESPONSES}[{key!r}] must be an object", code=INVALID_PARAMS)
        return answers

    def forwarded(self, declared: ClientDeclaration | None, **more: Any) -> ForwardedRequest:
        """Return the request for the upstream."""
        meta = without_members(forwarded_meta(self.request), *HOPS)
        about: dict[str, Any] = {
            "on_progress": self.stream.progress if self.stream.wants_progress else None,
            "on_news": self.stream.news,
            "sole": self.sole,
            "sent": self.sent,
            **more,
        }
        return ForwardedRequest(
            method=self.method,
            params=about.pop("params", self.params),
            meta=meta,
            declared=declared,
            follow_tasks=self.follow_tasks,
            **about,
        )
