"""Calls that are sent at once and awaited by the sender: no task, no scope and no coroutine in between.

For a gateway, which sends most calls this way. A call that cannot be sent so is not sent here at all, and one whose
answer needs more, or that makes progress, is completed by the requester, as the first attempt of `forward`. Retries,
questions and tasks have one path. Only the first attempt is made here: its deadline in the timer that all requests
share, and its end. `tests/connect/test_direct_calls.py` compares both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from toolweave._json_types import Json, JsonObject
from toolweave.config import ServerConfig
from toolweave.connect._catalog import Catalog
from toolweave.connect._deadline import Deadline, SharedTimer
from toolweave.connect._session import ClientHandlers, OnNotification
from toolweave.connect._supervisor import Supervisor
from toolweave.connect._transports import OpenSession
from toolweave.connect._wire.posted import HttpCall, PostsCalls
from toolweave.errors import RequestTimeoutError
from toolweave.protocol import methods

_MAX_WAITING = 256  # notifications that arrive in one turn of the event loop, since the next one passes them on
_PROGRESS = methods.NOTIFICATIONS_PROGRESS


class CallNews:
    """Receives the notifications of a call that was sent at once, until the requester does.

    Most calls get none, also those with a progress token. The first one ends the wait for the answer, so that the call
    is completed by the requester, which receives the notification then. None is overtaken: they are kept in order until
    `pass_on`.

    Args:
        handlers: Receive the notifications of the connection.

    Attributes:
        call: The call, once it was sent.
    """

    __slots__ = ("_handlers", "_listener", "_token", "_waiting", "call")

    def __init__(self, handlers: ClientHandlers) -> None:
        self.call: DirectCall | None = None
        self._handlers = handlers
        self._token: str | None = None
        self._listener: OnNotification | None = None
        self._waiting: list[tuple[str, JsonObject]] | None = None

    def progress_token(self) -> str:
        """Return a progress token, whose notifications are received from now on."""
        self._token = token = self._handlers.watch_progress_params(partial(self.receive, _PROGRESS))
        return token

    def receive(self, method: str, params: JsonObject) -> None:
        """Take a notification."""
        if self._listener is not None:
            self._listener(method, params)
            return
        if self._waiting is None:
            self._waiting = []
        if len(self._waiting) >= _MAX_WAITING:
            self._waiting.pop()  # the newest one says more than the one before
        self._waiting.append((method, params))
        if self.call is not None:
            self.call.renew()

    def pass_on(self, listener: OnNotification) -> None:
        """Call this with each notification from now on, first with those that were received already."""
        self._listener = listener
        waiting = self._waiting or ()
        self._waiting = None
        for method, params in waiting:
            listener(method, params)

    def end(self) -> None:
        """Receive no more progress."""
        if self._token is not None:
            self._handlers.forget_progress(self._token)


class DirectCalls:
    """Sends calls of tools at once over one connection.

    Args:
        config: The server; counted calls, calls with a total bound, and those whose results must need no repair are not
            sent this way.
        supervisor: Has the open session.
        catalog: Knows which tools the server lists.
        deadlines: Ends the calls.
        too_slow: Makes the error of a call of this tool that is not answered in so many seconds.
    """

    def __init__(
        self,
        config: ServerConfig,
        supervisor: Supervisor,
        catalog: Catalog,
        deadlines: SharedTimer,
        *,
        too_slow: Callable[[str, float], RequestTimeoutError],
    ) -> None:
        self.too_slow = too_slow
        self._supervisor = supervisor
        self._catalog = catalog
        self._deadlines = deadlines
        self._seconds = config.timeout.call
        # Each of these needs a scope, a slot or a handler, or a result that is read. They are settled by the config, so
        # they are asked once.
        self._is_open = not any(
            (
                config.timeout.call_total is not None,
                config.max_concurrency,
                # The result of a call that is sent at once is passed on unread: none could be refused.
                not config.repair_messages,
                supervisor.handlers.may_answer,
            )
        )

    def session_for(self, name: str, loop: asyncio.AbstractEventLoop) -> OpenSession | None:
        """Return the session in which a tool can be called at once, or None: then `forward` makes the call.

        Args:
            name: The name by which the server calls the tool.
            loop: The running event loop.
        """
        supervisor = self._supervisor
        # The loop is compared and not entered: a future of another loop cannot be awaited here, and a hop would cost
        # what this path saves.
        if not self._is_open or supervisor.loop is not loop:
            return None
        if not self._catalog.lists(name):
            return None
        return supervisor.session

    def news(self) -> CallNews:
        """Return a receiver of the notifications of the next call."""
        return CallNews(self._supervisor.handlers)

    def send(
        self,
        session: OpenSession,
        name: str,
        members: bytes,
        loop: asyncio.AbstractEventLoop,
        news: CallNews | None = None,
    ) -> DirectCall | None:
        """Send a call; None, and nothing was sent, where its transport would have to wait or cannot do this.

        Args:
            session: The session, as `session_for` returned it.
            name: The name by which the server calls the tool.
            members: The members of the request behind its id, from the comma to the last bracket, as JSON.
            loop: The running event loop.
            news: Receives its progress, if `members` have its token.
        """
        conversation = session.conversation
        wire = conversation.poster
        if wire is None:
            return None
        if wire.has_streams:
            if news is None:
                news = self.news()
            target = self._catalog.original_target(name)
            revision = conversation.agreement.version if conversation.agreement.modern else None
            posted = wire.post(members, HttpCall(name, target.schema, revision, news.receive))
        else:
            posted = wire.post(members)
        if posted is None:
            if news is not None:
                news.end()
            return None
        key, answer = posted
        at = loop.time() + self._seconds
        deadlines = self._deadlines
        call = DirectCall(
            self._seconds,
            deadlines,
            at,
            None,
            0,
            calls=self,
            name=name,
            session=session,
            wire=wire,
            key=key,
            answer=answer,
            news=news,
        )
        if news is not None:
            news.call = call
        deadlines.add(call, loop)
        return call

    def note_success(self) -> None:
        """Note that the server has accepted a call, and so the credentials of the connection."""
        self._supervisor.auth_suspect = False


class DirectCall(Deadline, kw_only=True, eq=False):
    """A call of a tool that was sent; its deadline ends `answer` with an error, without cancelling a task.

    The sender awaits `answer`, then calls `forget`, or `give_up` where the answer is not wanted any more.

    Attributes:
        calls: Sent it.
        name: The name of the tool.
        session: The session that it was sent in.
        wire: The wire of that.
        key: Its id there.
        answer: Its outcome: a `RawResult`, a dict, or an error.
        news: Receives its notifications; None over a channel if it has no progress token.
    """

    calls: DirectCalls
    name: str
    session: OpenSession
    wire: PostsCalls
    key: int
    answer: asyncio.Future[Any]
    news: CallNews | None = None

    def expire(self) -> None:
        """End the wait for the answer, once."""
        if not self.expired:
            self.expired = True
            if not self.answer.done():
                self.answer.set_exception(self.calls.too_slow(self.name, self.seconds))

    def forget(self) -> None:
        """End the deadline and forget the request, which was answered."""
        self.deadlines.running.discard(self)
        self.wire.forget(self.key)
        if self.news is not None:
            self.news.end()
        answer = self.answer
        if not answer.done() or answer.cancelled():
            return
        # Asking for the exception also keeps asyncio from reporting it as lost.
        if answer.exception() is None:
            self.calls.note_success()

    async def give_up(self) -> None:
        """Notify the server that the answer is not wanted any more; bounded."""
        self.deadlines.running.discard(self)
        if self.news is not None:
            self.news.end()
        await self.wire.give_up(self.key, methods.TOOLS_CALL)

    def renew(self) -> None:
        """Replace the `answer` future; the old one resolves to None."""
        if not self.answer.done():
            # The waiter wakes with None and turns to the full path, which awaits the new future; an answer that arrives
            # in between finds that one registered.
            waiting = self.answer
            self.answer = self.wire.renew(self.key)
            waiting.set_result(None)

    async def result(self) -> Json:
        """Wait for the answer instead of the requester's own attempt, within whose bounds this is.

        Raises:
            ServerError: The answer is an error.
        """
        self.deadlines.running.discard(self)
        try:
            answer = await self.answer
        except (asyncio.CancelledError, RequestTimeoutError):
            await self.give_up()
            raise
        self.wire.forget(self.key)
        return self.wire.result_in(answer)
