"""Resource updates and list changes of one caller's private upstreams."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from toolweave.errors import RequestError, ToolError
from toolweave.gateway._callers.gateways import CallerGateways, InnerGateway
from toolweave.gateway._callers.perspectives import HANDSHAKE
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.protocol.subscriptions import LIST_CHANGED
from toolweave.serve import Request
from toolweave.serve._changes import Changes, LegacySubscriber, Topic
from toolweave.serve._subscriptions import ResourceFollower
from toolweave.tools import Unsubscribe


class OwnChanges(Changes):
    """The changes of one caller's servers, published to that caller's streams and conversations only.

    Args:
        shared: The changes of the gateway before it, whose subscribers these are.
        topic: The name of the caller; see `GatewayCaller.topic`.
    """

    def __init__(self, shared: Changes, topic: str) -> None:
        super().__init__()
        self._shared = shared
        self._topic = topic

    def publish(self, topic: Topic, params: Mapping[str, Any] | None = None) -> None:
        """Publish a change of a list to the caller, or to those of its conversations that see a list of their own.

        An update of a resource goes to its followers only.
        """
        if topic.method in LIST_CHANGED.values():
            self._shared.publish(Topic(topic.method, self._name_of(topic.name)), params)

    def hear(self, conversation: str | None, name: str) -> None:
        """Notify a conversation of the changes of this name that this caller's servers announce."""
        self._shared.hear(conversation, self._name_of(name))

    def _name_of(self, name: str) -> str:
        """Return the name at the shared gateway: each caller is notified only of the servers it added."""
        if name == HANDSHAKE:
            return f"{self._topic} {name}"
        return name or self._topic

    def conversation(self, name: str | None) -> LegacySubscriber | None:
        """Return the subscribed conversation of this name, or None."""
        return self._shared.conversation(name)


class CallerUpdates:
    """The `ResourceFollower` of a gateway: at the caller's own servers where these have the resource.

    Args:
        own: The follower of the shared gateway.
        callers: The gateways of callers.
        has: Whether the caller's gateway has a resource that the shared one has not.
    """

    def __init__(
        self, own: ResourceFollower, callers: CallerGateways, has: Callable[[str, InnerGateway], Awaitable[bool]]
    ) -> None:
        self._own = own
        self._callers = callers
        self._has = has

    async def follow(self, request: Request, uri: str, updated: Callable[[str], object]) -> Unsubscribe:
        """Subscribe a caller to a resource; return the end of that, until which its gateway is there.

        Raises:
            RequestError: No upstream announces its updates, or this caller may not use it.
        """
        if not self._callers.hubs.configs:
            return await self._own.follow(request, uri, updated)
        try:
            return await self._follow(request, uri, updated)
        except ToolError as exc:  # there are too many callers
            raise RequestError(exc.message, code=INTERNAL_ERROR) from None

    async def _follow(self, request: Request, uri: str, updated: Callable[[str], object]) -> Unsubscribe:
        async with self._callers.lease(request) as inner:
            if inner is None or not await self._has(uri, inner):
                return await self._own.follow(request, uri, updated)
            end = self._callers.hold(request)
            try:
                unsubscribe = await inner.updates.follow(request, uri, updated)
            except BaseException:
                end()
                raise

        def both() -> None:
            unsubscribe()
            end()

        return both
