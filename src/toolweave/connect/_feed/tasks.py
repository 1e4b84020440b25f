"""Task status notifications of a connection (extension `io.modelcontextprotocol/tasks`).

A server need not send them, and they may be lost between two sessions: a caller that has to know polls, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from toolweave.connect._events import tell
from toolweave.protocol.tasks import TASK_ID


class TaskListeners:
    """The listeners to tasks of one server, by the ids that it gave them.

    Attributes:
        on_change: Called when the set of the ids has changed.
    """

    def __init__(self, server: str) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self._server = server
        self._by_id: dict[str, dict[object, Callable[[Mapping[str, Any]], object]]] = {}
        self._refused = False

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids to ask the stream for; none where the server refuses such a stream."""
        return () if self._refused else tuple(self._by_id)

    def begin(self) -> None:
        """Reset for a new session."""
        self._refused = False

    def refuse(self) -> None:
        """Note that the server sends no task notifications in this session."""
        self._refused = True

    def listen(self, task: str, listener: Callable[[Mapping[str, Any]], object]) -> Callable[[], None]:
        """Call `listener` with the server's notifications of a task; return a function that unsubscribes."""
        token = object()
        self._by_id.setdefault(task, {})[token] = listener
        if len(self._by_id[task]) == 1:
            self.on_change()

        def end() -> None:
            there = self._by_id.get(task, {})
            if there.pop(token, None) is not None and not there:
                del self._by_id[task]
                self.on_change()

        return end

    def updated(self, params: Mapping[str, Any]) -> None:
        """Handle a notification of a task."""
        listeners = self._by_id.get(str(params.get(TASK_ID)), {})
        tell(tuple(listeners.values()), params, server=self._server, what="a task")
