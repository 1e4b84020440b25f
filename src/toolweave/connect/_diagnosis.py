"""Errors that explain the end of a connection, with the process's exit code and standard error.

Knows nothing of states or retries.
"""

from __future__ import annotations

import asyncio
from typing import cast

from toolweave.config import ServerConfig
from toolweave.connect._report import Report
from toolweave.errors import (
    LAST_WORDS,
    ConfigError,
    ConnectError,
    ConnectionLostError,
    ProtocolError,
    RequestTimeoutError,
    ServerError,
)
from toolweave.protocol.json_types import as_object


async def explained(error: Exception, config: ServerConfig, report: Report, *, refused: str, used: bool) -> Exception:
    """Return the error that ended a connection, with the process's last output.

    `refused` is the refusal of an earlier transport; `used` says whether the connection had been ready.
    """
    name = config.name
    if isinstance(error, ConnectionLostError) and report.process is not None:
        code, stderr = await report.process.last_words()
        stderr = config.redact(stderr)
        if not used:
            text = "its process ended while connecting" + ("" if stderr else _said(config, report))
            hint = f"run {config.endpoint} by hand to see {'more' if stderr else 'why'}"
            return ConnectError(text, server=name, exit_code=code, stderr=stderr, hint=hint)
        if code is not None:
            text = "its process ended"
        else:
            text = error.message
        return ConnectionLostError(text, server=name, sent=False, exit_code=code, stderr=stderr)
    if isinstance(error, (ConnectError, TimeoutError, ConfigError)) or (used and isinstance(error, ServerError)):
        if isinstance(error, ServerError):
            error.mask(config.redact)
        return error
    text = config.redact(error.message if isinstance(error, ServerError) else f"{type(error).__name__}: {error}")
    if refused:
        text = f"{refused}; nor does it answer as a server of the older HTTP+SSE transport: {text}"
    made = ConnectError(text, server=name, status=_http_status(error))
    if isinstance(error, ProtocolError) and made.status is None:
        made.code = error.code
    return made


def connect_timeout_error(config: ServerConfig, report: Report, *, silent: bool) -> RequestTimeoutError:
    """Return the error of a handshake that took too long, with the server's output that was no MCP.

    `silent` says that it was given up for lack of any sign of life.
    """
    if silent:
        seconds = config.connect_silence
    else:
        seconds = config.connect_timeout
    if silent:
        what = "showed no sign of life for"
    else:
        what = "did not finish connecting within"
    how = "raise" if config.timeout.connect is not None else "set"
    return RequestTimeoutError(
        f"it {what} {seconds:g} s; {how} timeout.connect if it is only slow{_said(config, report)}",
        server=config.name,
        seconds=seconds,
    )


def first_exception(exc: BaseException) -> Exception:
    """Return the first exception within nested exception groups that is not a cancellation."""
    while isinstance(exc, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", exc)
        leaves = [leaf for leaf in group.exceptions if not isinstance(leaf, asyncio.CancelledError)]
        exc = leaves[0] if leaves else group.exceptions[0]
    if isinstance(exc, Exception):
        return exc
    return ConnectionError(str(exc))


def again(error: Exception | None, server: str, prefix: str = "") -> Exception:
    """Return a fresh copy of the error of a connection, one for each caller, with `prefix` before its text."""
    if error is None:
        return ConnectError("it is not connected", server=server)
    if not isinstance(error, ServerError):
        return error
    copy = type(error).__new__(type(error))
    copy.__dict__.update(error.__dict__)
    copy.message = f"{prefix}{error.message}"
    copy.args = (f"server {error.server!r}: {copy.message}",)
    return copy


def _said(config: ServerConfig, report: Report) -> str:
    """Return the process's output that was no MCP, for the end of an error message."""
    process = report.process
    if process is None:
        return ""
    said = ""
    if process.junk_lines:
        if process.junk_lines == 1:
            lines = "1 line of its output was"
        else:
            lines = f"{process.junk_lines} lines of its output were"
        said = f"; {lines} not MCP, the last {process.last_junk!r}"
    if stderr := process.relevant_stderr(3):
        said += f"{LAST_WORDS}\n{stderr}"
    return config.redact(said)


def _http_status(error: Exception) -> int | None:
    if isinstance(error, ProtocolError):
        data = as_object(error.data)
    else:
        data = None
    if data is not None:
        return data.get("http_status")
    return None
