"""Errors that explain the end of a connection, with the process's exit code and standard error.

Knows nothing of states or retries.
"""

from __future__ import annotations

import asyncio
from typing import cast

from toolweave._json_types import object_or_empty
from toolweave.config import ServerConfig
from toolweave.connect._report import ProcessOutput, Report
from toolweave.connect._stdio.process import ServerProcess
from toolweave.errors import (
    LAST_WORDS,
    ConfigError,
    ConnectError,
    ConnectionLostError,
    ErrorKind,
    ProtocolError,
    RequestTimeoutError,
    ServerError,
)
from toolweave.protocol.codes import METHOD_NOT_FOUND, UNSUPPORTED_VERSION


async def explained(error: Exception, config: ServerConfig, report: Report, *, refused: str, used: bool) -> Exception:
    """Return the error that ended a connection, with the process's last output.

    Args:
        error: The error as the session or its transport raised it.
        config: The server.
        report: The record of the attempt to connect.
        refused: The refusal of an earlier transport, or nothing.
        used: Whether the connection had been ready.
    """
    if isinstance(error, ConnectionLostError) and report.process is not None:
        return await _explained_end(error, config, report, report.process, used=used)
    # An error of a session that was in use is raised as it is; one of connecting becomes a `ConnectError`.
    is_final = isinstance(error, (ConnectError, TimeoutError, ConfigError))
    if isinstance(error, ServerError) and (used or is_final):
        error.mask(config.redact)
        return error
    if is_final:
        return error
    if isinstance(error, ServerError):
        text = config.redact(error.message)
    else:
        text = config.redact(f"{type(error).__name__}: {error}")
    if refused:
        text = f"{refused}; nor does it answer as a server of the older HTTP+SSE transport: {text}"
    connect_error = ConnectError(text, server=config.name, status=_http_status(error))
    if isinstance(error, ProtocolError) and connect_error.status is None:
        connect_error.code = error.code
    return connect_error


async def _explained_end(
    error: ConnectionLostError, config: ServerConfig, report: Report, process: ProcessOutput, *, used: bool
) -> ServerError:
    """Return the error of a connection whose process ended or closed its output."""
    code, stderr = await process.last_words()
    stderr = config.redact(stderr)
    if used:
        text = error.message if code is None else "its process ended"
        return ConnectionLostError(text, server=config.name, sent=False, exit_code=code, stderr=stderr)
    text = "its process ended while connecting"
    hint = f"run {config.endpoint} by hand to see more"
    if not stderr:
        text += _output_of(config, report)
        hint = f"run {config.endpoint} by hand to see why"
    return ConnectError(text, server=config.name, exit_code=code, stderr=stderr, hint=hint)


def connect_timeout_error(config: ServerConfig, report: Report, *, silent: bool) -> RequestTimeoutError:
    """Return the error of a handshake that took too long, with the server's output that was not MCP.

    `silent` says whether it was ended early because the server showed no sign of life.
    """
    if silent:
        seconds = config.connect_silence
        what = "showed no sign of life for"
    else:
        seconds = config.connect_timeout
        what = "did not finish connecting within"
    how = "set" if config.timeout.connect is None else "raise"
    return RequestTimeoutError(
        f"it {what} {seconds:g} s; {how} timeout.connect if it is only slow{_output_of(config, report)}",
        server=config.name,
        seconds=seconds,
    )


async def explained_loss(
    error: ConnectionLostError, process: ServerProcess | None, config: ServerConfig, *, stopping: bool
) -> ConnectionLostError:
    """Return the error of a request whose session was lost, with the last output of the server's process, if any.

    `stopping` says whether the connection is being closed by its user.
    """
    if process is None:
        return error
    when = ""
    if error.sent:
        when = " while the call ran"
    if stopping:  # the process did not fail: its last output explains nothing
        return ConnectionLostError(f"the connection was closed{when}", server=error.server, sent=error.sent)
    code, stderr = await process.last_words()
    if code is None:
        message = error.message
    else:
        message = f"its process ended{when}"
    return ConnectionLostError(
        message, server=error.server, sent=error.sent, exit_code=code, stderr=config.redact(stderr)
    )


def refuses_era(error: Exception) -> bool:
    """Return whether an error of connecting proves that the server does not speak the era in which it was addressed."""
    if not isinstance(error, (ConnectError, ProtocolError)):
        return False
    return error.code in (UNSUPPORTED_VERSION, METHOD_NOT_FOUND)


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


def unreached_for_retry(error: ServerError, lost: ConnectionLostError) -> Exception:
    """Return the error of a call whose first attempt was `lost`, and whose retry found no server.

    That the retry was never sent does not undo the first attempt, so that the outcome stays unknown. The type and the
    code are those of `error`: a gateway reads from them that the server has another era now.
    """
    final = again(error, error.server, f"{lost.message}; it could not be tried again: ")
    if isinstance(final, ServerError):
        final.kind = ErrorKind.OUTCOME_UNKNOWN
        final.retryable = False
    return final


def _output_of(config: ServerConfig, report: Report) -> str:
    """Return the process's output that was not MCP, for the end of an error message."""
    process = report.process
    if process is None:
        return ""
    text = ""
    if process.junk_lines:
        if process.junk_lines == 1:
            lines = "1 line of its output was"
        else:
            lines = f"{process.junk_lines} lines of its output were"
        text = f"; {lines} not MCP, the last {process.last_junk!r}"
    if stderr := process.relevant_stderr(3):
        text += f"{LAST_WORDS}\n{stderr}"
    return config.redact(text)


def _http_status(error: Exception) -> int | None:
    if isinstance(error, ProtocolError):
        return object_or_empty(error.data).get("http_status")
    return None
