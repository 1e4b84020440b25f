"""The exit codes and their errors. Knows the error tree, nothing of commands."""

from __future__ import annotations

from enum import IntEnum

from toolweave._json_types import Json
from toolweave.errors import (
    ConfigError,
    ErrorKind,
    ProtocolError,
    RegistryError,
    ServerError,
    StoreError,
    ToolError,
    ToolweaveError,
    as_tool_error,
)


class ExitCode(IntEnum):
    """The exit codes of every command."""

    OK = 0
    """Done. For views of many servers: at least one of them answered."""
    TOOL_ERROR = 1
    """The tool or the server answered with an error, or the arguments do not fit."""
    USAGE = 2
    """Wrong usage or config, or no such tool or server."""
    UNREACHABLE = 3
    """No server could be reached, or a deadline passed."""
    UNTRUSTED = 4
    """A config file that came with this folder is not trusted, so its servers were not started."""
    INTERRUPTED = 130
    """Interrupted by Ctrl-C or a termination signal."""


class CommandError(Exception):
    """The error that ends a command; its message goes to standard error and its code to the shell.

    Attributes:
        code: The exit code.
        hint: A hint for the user, or None.
        unknown: The option that the command does not have, as typed; empty for any other error.
    """

    def __init__(
        self, message: str, *, code: ExitCode = ExitCode.USAGE, hint: str | None = None, unknown: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.unknown = unknown
        self.code = code
        self.hint = hint


_BY_KIND = {
    ErrorKind.NOT_FOUND: ExitCode.USAGE,
    ErrorKind.TIMEOUT: ExitCode.UNREACHABLE,
    ErrorKind.NOT_SENT: ExitCode.UNREACHABLE,
    ErrorKind.OUTCOME_UNKNOWN: ExitCode.UNREACHABLE,
    ErrorKind.CLOSED: ExitCode.UNREACHABLE,
    ErrorKind.AUTH_REQUIRED: ExitCode.UNREACHABLE,
}
"""Exit codes by kind of error; every other kind is a tool's answer: `TOOL_ERROR`."""


def exit_code_of(error: BaseException) -> ExitCode:
    """Return the exit code for an error of the library."""
    if isinstance(error, CommandError):
        return error.code
    if isinstance(error, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    if isinstance(error, ConfigError):
        return ExitCode.USAGE
    if isinstance(error, (RegistryError, ToolError)):
        return _BY_KIND.get(error.kind, ExitCode.TOOL_ERROR)
    if isinstance(error, ProtocolError):
        return ExitCode.TOOL_ERROR
    if isinstance(error, (ServerError, TimeoutError)) or (isinstance(error, StoreError) and error.is_temporary):
        return ExitCode.UNREACHABLE
    if isinstance(error, OSError):
        return ExitCode.USAGE
    return ExitCode.TOOL_ERROR


def error_json(error: BaseException, code: ExitCode, hint: str | None) -> Json:
    """Return an error that ended a command as JSON, in the form of a call's error."""
    if isinstance(error, CommandError):
        kind = ErrorKind.INVALID_INPUT.value
    elif isinstance(error, ServerError | ToolError):
        kind = as_tool_error(error).kind.value
    else:
        kind = "invalid_input"
    return {"kind": kind, "message": str(error), "hint": hint, "exit_code": int(code)}


def is_expected(error: BaseException) -> bool:
    """Whether an error's message is enough; any other error is a defect and keeps its traceback."""
    return isinstance(error, (CommandError, ToolweaveError, OSError))
