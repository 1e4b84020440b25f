"""Subscriptions to the events of a connection, each with the type of the value that its listeners get."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, overload

from toolweave.connect._events import EventListeners, EventName
from toolweave.connect._feed.list_cache import ListChanged
from toolweave.connect._feed.subscriptions import ResourceUpdated
from toolweave.connect._health import Silent
from toolweave.connect._state import StateChanged
from toolweave.tools import ToolsChanged, Unsubscribe

EventT = TypeVar("EventT")
ResultT = TypeVar("ResultT")

StateEvent: TypeAlias = Literal["state", "closed"]
ListEvent: TypeAlias = Literal["prompts_changed", "resources_changed"]
Notification: TypeAlias = tuple[str, Mapping[str, Any]]
"""The method and the params of a notification."""


class ListenerDecorator(Protocol[EventT]):
    """A decorator that adds a listener of one event and returns it unchanged."""

    def __call__(self, listener: Callable[[EventT], ResultT], /) -> Callable[[EventT], ResultT]:
        """Add the listener."""
        ...


class EventSubscriptions:
    """Base class of a connection: its listeners."""

    _events: EventListeners

    @overload
    def on(self, event: StateEvent, listener: Callable[[StateChanged], Any]) -> Unsubscribe: ...
    @overload
    def on(self, event: Literal["tools_changed"], listener: Callable[[ToolsChanged], Any]) -> Unsubscribe: ...
    @overload
    def on(self, event: ListEvent, listener: Callable[[ListChanged], Any]) -> Unsubscribe: ...
    @overload
    def on(self, event: Literal["resource_updated"], listener: Callable[[ResourceUpdated], Any]) -> Unsubscribe: ...
    @overload
    def on(self, event: Literal["error"], listener: Callable[[Exception], Any]) -> Unsubscribe: ...
    @overload
    def on(self, event: Literal["notification"], listener: Callable[[Notification], Any]) -> Unsubscribe: ...
    @overload
    def on(self, event: Literal["problem"], listener: Callable[[str], Any]) -> Unsubscribe: ...
    @overload
    def on(self, event: Literal["silence"], listener: Callable[[Silent], Any]) -> Unsubscribe: ...
    @overload
    def on(self, event: StateEvent) -> ListenerDecorator[StateChanged]: ...
    @overload
    def on(self, event: Literal["tools_changed"]) -> ListenerDecorator[ToolsChanged]: ...
    @overload
    def on(self, event: ListEvent) -> ListenerDecorator[ListChanged]: ...
    @overload
    def on(self, event: Literal["resource_updated"]) -> ListenerDecorator[ResourceUpdated]: ...
    @overload
    def on(self, event: Literal["error"]) -> ListenerDecorator[Exception]: ...
    @overload
    def on(self, event: Literal["notification"]) -> ListenerDecorator[Notification]: ...
    @overload
    def on(self, event: Literal["problem"]) -> ListenerDecorator[str]: ...
    @overload
    def on(self, event: Literal["silence"]) -> ListenerDecorator[Silent]: ...
    def on(self, event: EventName, listener: Callable[[Any], Any] | None = None) -> Any:
        """Call `listener` on an event; return the unsubscribe. Without a listener it is a decorator.

        Events: `"state"` (`StateChanged`), `"tools_changed"` (`ToolsChanged`),
        `"prompts_changed"` and `"resources_changed"` (`ListChanged`), `"resource_updated"` (`ResourceUpdated`),
        `"closed"` (`StateChanged`), `"error"` (the exception), `"notification"` (method and params as a tuple),
        `"problem"` (a text that is new in `problems`),
        `"silence"` (`Silent`: a request waits, and nothing was received for 5 s or more; again every 5 s).
        A list whose changes are listened to is kept up to date; its first reading adds all of it.
        """
        if listener is not None:
            return self._events.add(event, listener)

        def decorate(function: Callable[[Any], ResultT]) -> Callable[[Any], ResultT]:
            self._events.add(event, function)
            return function

        return decorate
