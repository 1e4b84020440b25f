"""Starting a run in its own process, or submitting it to workers; also records a failure to start."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from toolweave.agent import RunStart
from toolweave.agent._stored.records import create, read_record, write_record
from toolweave.cli._chat.options import AGENT, ChatOptions
from toolweave.cli._chat.stores import BACKEND, is_url, opened_backend, opened_store
from toolweave.cli._exit_codes import CommandError
from toolweave.compose import Agent
from toolweave.errors import ToolweaveError
from toolweave.jobs.retention import KEEP_SECONDS
from toolweave.models import CommandModel, UserMessage


async def spawn(options: ChatOptions, message: str) -> str:
    """Start a run that outlives this process, and return its id."""
    run_id = uuid.uuid4().hex
    sent = (UserMessage.of(message),)
    start = RunStart(run_id=run_id, agent=AGENT, messages=sent, sent=1, session=options.resume, attended="later")
    async with opened_store(options.store) as store:
        await create(store, start, status="pending", now=time.time(), ttl=KEEP_SECONDS)
    start_process(options, run_id)
    return run_id


def start_process(options: ChatOptions, run_id: str) -> None:
    """Start the process that executes a run of the store, from its beginning or from where it ended."""
    # In a new session and without our streams, so that it survives the terminal. The run is in the store before
    # the process starts: if it fails to start, `toolweave runs resume` starts another.
    subprocess.Popen(
        [sys.executable, "-m", "toolweave", *_words(options, run_id)],
        env=_environment(options.store),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


async def submit(url: str, agent: str, message: str, *, session: str | None, key: str | None) -> str:
    """Submit a run to the workers of a backend, and return its id.

    Raises:
        CommandError: The backend cannot be reached, or the key belongs to another run.
        StoreError: The backend was lost, or is full.
    """
    async with opened_backend(url) as backend:
        # the model is the worker's
        submitting = Agent(CommandModel(), name=agent, backend=backend)
        try:
            return (await submitting.submit(message, session=session, key=key)).id
        except ValueError as error:
            raise CommandError(str(error)) from None


@asynccontextmanager
async def failing(place: str | None, run_id: str) -> AsyncGenerator[None]:
    """Record an exception of the block as the failure of a run that has never begun.

    One that has begun recorded its end itself, can be resumed, or is executed by another process.
    """
    try:
        yield
    except Exception as error:
        async with opened_store(place) as store:
            record = await read_record(store, run_id)
            if record is not None and record.status == "pending" and not record.attempts:
                is_ours = isinstance(error, ToolweaveError)
                reason = str(error) if is_ours else f"{type(error).__name__}: {error}"
                ended = replace(record, status="failed", stop_reason="error", error=reason, changed_at=time.time())
                await write_record(store, ended)
        raise


def _words(options: ChatOptions, run_id: str) -> Iterator[str]:
    """Yield the command line of the process that executes the run."""
    yield from ("chat", "--run-id", run_id, "--confirm", options.confirm.value)
    named = [
        *(("--config", str(path.absolute())) for path in options.config),
        *(("--server", name) for name in options.server),
        *(("--header", line) for line in options.header),
        ("--url", options.url),
        ("--openapi", options.openapi and _shown_document(options.openapi)),
        ("--base-url", options.base_url),
        ("--bearer-env", options.bearer_env),
        ("--timeout", options.timeout),
        ("--model", options.model),
        ("--system", options.system),
        ("--resume", options.resume),
        ("--store", options.store and _shown(options.store)),
    ]
    for option, value in named:
        if value is not None:
            # With the sign, so that a value may begin with a dash.
            yield f"{option}={value}"
    if options.trust:
        yield "--trust"
    if options.command:
        yield from ("--", *options.command)


def _shown_document(source: str) -> str:
    if is_url(source):
        return source
    return str(Path(source).absolute())


def _shown(place: str) -> str | None:
    """Return a store's location for a command line; None for a URL, as that may hold a password."""
    if is_url(place):
        return None
    if place.startswith("sqlite:"):
        return place
    return str(Path(place).absolute())


def _environment(place: str | None) -> dict[str, str]:
    if place is not None and is_url(place):
        return {**os.environ, BACKEND: place}
    return {**os.environ}
