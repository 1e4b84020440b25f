"""A run in a process of its own: recorded first, then begun there; what keeps it from beginning is recorded too."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from toolweave.agent.durable import KEEP_SECONDS
from toolweave.agent.journal import RunStart
from toolweave.agent.records import create, read_record, write_record
from toolweave.cli.chatting.options import AGENT, ChatOptions
from toolweave.errors import ToolweaveError
from toolweave.models import UserMessage
from toolweave.state import SqliteStore

__all__ = ["failing", "spawn"]


async def spawn(options: ChatOptions, message: str) -> str:
    """Begin a run that goes on when this process ends, and return its id."""
    run_id = uuid.uuid4().hex
    sent = (UserMessage.of(message),)
    start = RunStart(run_id=run_id, agent=AGENT, messages=sent, sent=1, session=options.resume)
    async with SqliteStore(options.store) as store:
        await create(store, start, status="pending", now=time.time(), ttl=KEEP_SECONDS)
    subprocess.Popen(  # noqa: ASYNC220 - begun and left alone
        [sys.executable, "-m", "toolweave", *_words(options, run_id)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    return run_id


@asynccontextmanager
async def failing(path: Path | None, run_id: str) -> AsyncGenerator[None]:
    """Record what the block raises as the end of a run that has not recorded one itself."""
    try:
        yield
    except Exception as error:
        async with SqliteStore(path) as store:
            record = await read_record(store, run_id)
            if record is not None and not record.done:
                why = str(error) if isinstance(error, ToolweaveError) else f"{type(error).__name__}: {error}"
                ended = replace(record, status="failed", stop_reason="error", error=why, changed_at=time.time())
                await write_record(store, ended, ttl=KEEP_SECONDS)
        raise


def _words(options: ChatOptions, run_id: str) -> Iterator[str]:
    """Yield the command line of the process that runs it."""
    yield from ("chat", "--run-id", run_id, "--confirm", options.confirm.value)
    named = [
        *(("--config", str(path.absolute())) for path in options.config),
        *(("--server", name) for name in options.server),
        *(("--header", line) for line in options.header),
        ("--url", options.url),
        ("--bearer-env", options.bearer_env),
        ("--timeout", options.timeout),
        ("--model", options.model),
        ("--system", options.system),
        ("--resume", options.resume),
        ("--store", options.store and options.store.absolute()),
    ]
    for option, value in named:
        if value is not None:
            yield f"{option}={value}"
    if options.command:
        yield from ("--", *options.command)
