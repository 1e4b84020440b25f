"""The demo server `words`: text tools in the same process, over a pair of queues. Revision 2026-07-28."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from toolweave.cli.demo.peer import DemoServer, DemoTool, Json, Report

__all__ = ["InProcess", "in_process", "words_server"]


def words_server(*, pause: float = 0.1) -> DemoServer:
    """Return a server of text tools; `pause` is how many seconds `spell` takes for each letter."""

    def count(arguments: Json, report: Report) -> Json:
        text = str(arguments["text"])
        return {"words": len(text.split()), "characters": len(text)}

    def spell(arguments: Json, report: Report) -> str:
        word = str(arguments["word"])[:50]
        for done, letter in enumerate(word, start=1):
            time.sleep(pause)
            report(done, len(word), letter)
        return "-".join(word.upper())

    text = {"type": "string", "description": "The text to count"}
    word = {"type": "string", "description": "The word to spell", "maxLength": 50}
    tools = [
        DemoTool("count", "Count words and characters.", {"text": text}, count, ["text"]),
        DemoTool("spell", "Spell a word, slowly, with progress.", {"word": word}, spell, ["word"]),
    ]
    return DemoServer("words", tools, modern=True)


class InProcess:
    """A server in this process as a channel: messages in by `send`, out by `receive`."""

    def __init__(
        self,
        server: DemoServer,
        tasks: TaskGroup,
        outbox: tuple[MemoryObjectSendStream[bytes], MemoryObjectReceiveStream[bytes]],
    ) -> None:
        self._server = server
        self._tasks = tasks
        self._answers, self._inbox = outbox

    async def send(self, message: bytes) -> None:
        """Take one message; it is answered by a task of its own."""
        self._tasks.start_soon(self._respond, json.loads(message))

    async def receive(self) -> bytes:
        """Return the next message of the server.

        Raises:
            EOFError: The server ended.
        """
        try:
            return await self._inbox.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            raise EOFError("the server in this process ended") from None

    async def _respond(self, message: Json) -> None:
        loop = asyncio.get_running_loop()

        def put(value: Json) -> None:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # nobody listens any more
                self._answers.send_nowait(json.dumps(value).encode())

        def notify(value: Json) -> None:
            loop.call_soon_threadsafe(put, value)  # not waited for: the loop may be gone when the thread is not

        answer = await anyio.to_thread.run_sync(self._server.answer, message, notify, abandon_on_cancel=True)
        if answer is not None:
            put(answer)


@asynccontextmanager
async def in_process(server: DemoServer) -> AsyncGenerator[InProcess]:
    """Run a server in this process while the block runs."""
    async with anyio.create_task_group() as tasks:
        outbox = anyio.create_memory_object_stream[bytes](math.inf)
        with outbox[0], outbox[1]:
            yield InProcess(server, tasks, outbox)
            tasks.cancel_scope.cancel()
