"""A client that says exactly what a test wants: JSON-RPC in process, to what `connect_mcp` would connect to."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import anyio

from toolweave.errors import RequestError
from toolweave.protocol.meta import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from toolweave.protocol.versions import MODERN_VERSION
from toolweave.serve._changes import Changes
from toolweave.serve._duplex.inprocess import ClientEnd, in_process
from toolweave.serve._endpoint import Endpoint

__all__ = ["Talk", "Talkative", "talking"]

Json = dict[str, Any]
TASKS = "io.modelcontextprotocol/tasks"


class Talkative(Protocol):
    """What can be talked to: an `McpServer`, or parts of one."""

    @property
    def endpoint(self) -> Endpoint:
        """What answers."""
        ...

    @property
    def changes(self) -> Changes:
        """The subscribers of changes."""
        ...

    def running(self) -> AbstractAsyncContextManager[object]:
        """Enter the lifespan of the server."""
        ...


class Talk:
    """One conversation: requests that are waited for or left open, and all notifications that came.

    Attributes:
        notifications: In the order in which they came.
        answers: Whole answers, by id.
    """

    def __init__(self, channel: ClientEnd, version: str, capabilities: Json) -> None:
        self.notifications: list[Json] = []
        self.answers: dict[Any, Json] = {}
        self._channel = channel
        self._modern = version == MODERN_VERSION
        self._meta = {PROTOCOL_VERSION: version, CLIENT_CAPABILITIES: capabilities}
        self._ids = itertools.count(1)
        self._received = anyio.Event()

    async def send(self, method: str, params: Mapping[str, Any] | None = None, **more: Any) -> int:
        """Send a request and return its id; `more` are members of `_meta`, on a stateless line."""
        number = next(self._ids)
        sent = {**(params or {}), "_meta": {**self._meta, **more}} if self._modern else {**(params or {})}
        await self._write({"id": number, "method": method, "params": sent})
        return number

    async def ask(self, method: str, params: Mapping[str, Any] | None = None, **more: Any) -> Json:
        """Send a request and return its result.

        Raises:
            RequestError: The answer is an error.
        """
        number = await self.send(method, params, **more)
        return await self.result(number)

    async def result(self, number: int) -> Json:
        """Return the result of a request that was sent."""
        await self.until(lambda: number in self.answers)
        answer = self.answers[number]
        if "error" in answer:
            error = answer["error"]
            raise RequestError(error["message"], code=error["code"], data=error.get("data"))
        return answer["result"]

    async def answer(self, number: int | str, result: Mapping[str, Any]) -> None:
        """Answer a request of the server; its `id` is in `notifications`, where all that the server says is."""
        await self._write({"id": number, "result": result})

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification."""
        await self._write({"method": method, "params": params or {}})

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a received message makes a condition true."""
        with anyio.fail_after(30):
            while not condition():
                await self._received.wait()

    async def received(self, method: str, count: int = 1) -> list[Json]:
        """Wait for so many notifications of a method; return the params of all that came."""
        await self.until(lambda: len(self.of(method)) >= count)
        return self.of(method)

    def of(self, method: str) -> list[Json]:
        """Return the params of the notifications of a method that came."""
        return [one.get("params", {}) for one in self.notifications if one["method"] == method]

    async def listen(self) -> None:
        """Take in what comes, for ever."""
        while True:
            try:
                message = json.loads(await self._channel.receive())
            except EOFError:
                return
            if "method" in message:
                self.notifications.append(message)
            else:
                self.answers[message["id"]] = message
            received = self._received
            self._received = anyio.Event()
            received.set()

    async def _write(self, message: Json) -> None:
        await self._channel.send(json.dumps({"jsonrpc": "2.0", **message}).encode())


@asynccontextmanager
async def talking(
    server: Talkative, version: str = MODERN_VERSION, capabilities: Json | None = None
) -> AsyncGenerator[Talk]:
    """Talk to a server in the way of a revision; by default as a client that has every ability and tasks."""
    able: Json = {"elicitation": {}, "sampling": {}, "roots": {}, "extensions": {TASKS: {}}}
    able = able if capabilities is None else capabilities
    async with (
        server.running(),
        in_process(server.endpoint, conversations=server.changes) as visit,
        anyio.create_task_group() as tasks,
    ):
        talk = Talk(visit.client, version, able)
        tasks.start_soon(talk.listen)
        if version != MODERN_VERSION:
            info = {"name": "test", "version": "1"}
            await talk.ask("initialize", {"protocolVersion": version, "capabilities": able, "clientInfo": info})
            await talk.notify("notifications/initialized")
            await talk.ask("ping")  # notifications before it are handled by now
        yield talk
        tasks.cancel_scope.cancel()
