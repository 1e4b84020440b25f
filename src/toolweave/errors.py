"""The whole error tree. Imports nothing of Toolweave but the functions that make a text printable.

::

    ToolweaveError
    ├── ConfigError (ValueError)        a config file or a server entry is wrong
    ├── SchemaError (ValueError)        a JSON Schema cannot be derived, compiled or resolved
    ├── DuplicateToolError (ValueError) two local tools have the same name
    ├── RequestError                    a request to our own server is answered with a JSON-RPC error
    ├── StoreError                      a store cannot keep or read a document
    ├── RegistryError                   a registry of servers, an entry of it or a bundle cannot be used
    ├── ModelError                      a language model could not answer
    ├── RunError                        an agent's run ended before its work was done
    ├── ToolError                       one tool call failed; also a value: `ToolResult.error`
    │   └── ToolExecutionError          raised by `Tool.call` and `raise_for_error`, carries the `ToolResult`
    └── ServerError                     something between us and one MCP server
        ├── ConnectError                the server could not be reached or did not shake hands
        │   └── AuthRequiredError       the server requires (other) credentials
        ├── ConnectionClosedError       used after `close()`
        ├── WrongLoopError (RuntimeError)  used in another event loop while its own does not run
        ├── ConnectionLostError         the process died or the stream broke
        ├── RequestTimeoutError (TimeoutError)  a wait passed its bound
        ├── ProtocolError               the server answered with a JSON-RPC error, or not with MCP
        └── SkillError                  a skill is not as its entry says, or not to be used

Every message names the thing it is about, what was expected and what to do next.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, cast

from toolweave._masking import mask_json, mask_tokens
from toolweave._text import printable, shortened

__all__ = [
    "AuthRequiredError",
    "ConfigError",
    "ConnectError",
    "ConnectionClosedError",
    "ConnectionLostError",
    "DuplicateToolError",
    "ErrorKind",
    "ModelError",
    "ProtocolError",
    "RegistryError",
    "RequestError",
    "RequestTimeoutError",
    "RunError",
    "SchemaError",
    "ServerError",
    "SkillError",
    "StoreError",
    "ToolError",
    "ToolExecutionError",
    "ToolweaveError",
    "WrongLoopError",
    "as_tool_error",
    "printable",
    "shortened",
]


class ErrorKind(StrEnum):
    """The kind of failure of a tool call, for programs to branch on."""

    INVALID_INPUT = "invalid_input"
    """The arguments do not fit the tool's input schema; the model can fix them."""
    INVALID_OUTPUT = "invalid_output"
    """The tool's structured content does not fit its output schema, or JSON cannot express it."""
    EXECUTION_FAILED = "execution_failed"
    """The tool ran and reported a failure."""
    TIMEOUT = "timeout"
    """No answer within the bound."""
    NOT_FOUND = "not_found"
    """No such tool."""
    NOT_SENT = "not_sent"
    """The call provably never reached the server; it is safe to send again."""
    OUTCOME_UNKNOWN = "outcome_unknown"
    """The connection broke while the call ran; the server may have executed it."""
    CANCELLED = "cancelled"
    """The call was cancelled."""
    CLOSED = "closed"
    """The connection or toolset is closed."""
    DENIED = "denied"
    """The approval that the call needed was not given."""
    AUTH_REQUIRED = "auth_required"
    """The server requires (other) credentials."""
    PROTOCOL = "protocol"
    """The server answered with a JSON-RPC error or with something that is not MCP."""
    TOO_LARGE = "too_large"
    """A message passed a size limit."""


CODE_OF_KIND: Mapping[ErrorKind, str] = MappingProxyType(
    {
        ErrorKind.INVALID_INPUT: "INVALID_INPUT",
        ErrorKind.EXECUTION_FAILED: "EXECUTION_FAILED",
        ErrorKind.TIMEOUT: "TIMEOUT",
        ErrorKind.NOT_FOUND: "RESOURCE_NOT_FOUND",
    }
)
"""The codes that a handler may give instead of a kind, by the kinds that they mean."""
_KIND_OF_CODE: Mapping[object, ErrorKind] = {code: kind for kind, code in CODE_OF_KIND.items()}


class ToolweaveError(Exception):
    """The root of every error that Toolweave raises on purpose.

    `str()` of it is fit for logs and terminals, whatever a server put into its message (`printable`).
    """

    def __str__(self) -> str:
        return printable(super().__str__())


class ConfigError(ToolweaveError, ValueError):
    """A config file or one server entry in it is wrong.

    Attributes:
        message: The text without the place. Tokens that begin like those of a known service are masked.
        server: The entry's name, or None when the whole file is at fault.
        field: The key at fault, dotted (`"auth.token"`), or None.
        path: The file, or None for a value given in code.
        line: The 1-based line in `path`, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        server: str | None = None,
        field: str | None = None,
        path: str | None = None,
        line: int | None = None,
    ) -> None:
        where = path or ""
        if line is not None:
            where = f"{where or 'config'}:{line}"
        # A token that stands where a name belongs is quoted like a name, and no config knows that it is one.
        message = mask_tokens(message)
        named = "" if server is None else mask_tokens(f"server {server!r}")
        parts = [where, named, message]
        super().__init__(": ".join(part for part in parts if part))
        self.message = message
        self.server = server
        self.field = field
        self.path = path
        self.line = line


class SchemaError(ToolweaveError, ValueError):
    """A JSON Schema cannot be derived, compiled or resolved.

    Attributes:
        message: The text without the place.
        pointer: RFC 6901 JSON pointer to the offending place, `""` for the root.
    """

    def __init__(self, message: str, *, pointer: str = "") -> None:
        super().__init__(f"{message} (at {pointer or '#'})")
        self.message = message
        self.pointer = pointer


class DuplicateToolError(ToolweaveError, ValueError):
    """Two local tools have the same name.

    Attributes:
        name: The name.
    """

    def __init__(self, name: str, *, where: str = "the registry") -> None:
        super().__init__(f"tool {name!r} is already in {where}; give one of them another name or use a prefix")
        self.name = name


class RequestError(ToolweaveError):
    """A request to a server of ours is answered with a JSON-RPC error.

    A handler raises it to answer with a protocol error instead of a result; its text goes to the client.

    Attributes:
        code: The JSON-RPC error code, such as -32602.
        message: One sentence for the client's developer.
        data: The error's `data` member: any JSON value, or None for none.
    """

    def __init__(self, message: str, *, code: int, data: Any = None) -> None:  # any JSON value
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    @property
    def retry_after(self) -> float | None:
        """The seconds after which the same request may succeed, from `data.retryAfterMs`, or None."""
        data: Any = self.data
        said: Any = cast("dict[str, Any]", data).get("retryAfterMs") if isinstance(data, dict) else None
        if isinstance(said, int | float) and not isinstance(said, bool):
            return said / 1000
        return None


class StoreError(ToolweaveError):
    """A store cannot keep or read a document: it is full, busy or damaged, or the value is not JSON.

    Attributes:
        collection: The collection it is about, or None for the whole store.
        is_temporary: Whether the store's server was not reached, or was not ready: a later attempt may succeed.
    """

    def __init__(self, message: str, *, collection: str | None = None, is_temporary: bool = False) -> None:
        super().__init__(message if collection is None else f"collection {collection!r}: {message}")
        self.collection = collection
        self.is_temporary = is_temporary


class RegistryError(ToolweaveError):
    """A registry of servers, an entry of it or a bundle cannot be used.

    Attributes:
        message: The text.
        kind: `NOT_FOUND` for a server it does not have, `NOT_SENT` if it was not reached or has no answer now, else
            `PROTOCOL`: its response is not accepted.
    """

    def __init__(self, message: str, *, kind: ErrorKind = ErrorKind.PROTOCOL) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind


class ToolError(ToolweaveError):
    """One tool call failed: raised by handlers, and the value of `ToolResult.error`.

    Attributes:
        kind: The `ErrorKind`, for programs to branch on; without one that of the code, if it is `INVALID_INPUT`,
            `TIMEOUT` or `RESOURCE_NOT_FOUND`, else `execution_failed`.
        code: The JSON-RPC error code or the server's own code, when there is one.
        message: One sentence for a person or a model.
        retryable: True when sending the same call again is safe and may help; for a server's result, its own claim.
        data: Details as JSON, never a stack trace.
        unexpected: True for an exception that was not raised for the caller to read; a server may mask its text.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: ErrorKind | str | None = None,
        code: int | str | None = None,
        retryable: bool = False,
        data: Any = None,  # any JSON value
        unexpected: bool = False,
    ) -> None:
        super().__init__(message)
        if kind is None:
            self.kind: ErrorKind = _KIND_OF_CODE.get(code, ErrorKind.EXECUTION_FAILED)
        else:
            self.kind = ErrorKind(kind)
        self.code = code
        self.message = message
        self.retryable = retryable
        self.data = data
        self.unexpected = unexpected

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ToolError):
            return NotImplemented
        return self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.kind, self.code, self.message, self.retryable))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.message!r}, kind={self.kind.value!r}, code={self.code!r})"

    def to_dict(self) -> dict[str, Any]:
        """Return the error as a JSON object: kind, code, message, retryable and, if set, data."""
        out: dict[str, Any] = {
            "kind": self.kind.value,
            "code": self.code,
            "message": self.message,
            "retryable": self.retryable,
        }
        if self.data is not None:
            out["data"] = self.data
        return out


class ToolExecutionError(ToolError):
    """A tool result that is an error, as raised by `Tool.call` and `ToolResult.raise_for_error`.

    Attributes:
        result: The whole `ToolResult`, content included.
        tool: The name of the tool that was called; `""` when raised from a result alone.
    """

    def __init__(
        self, error: ToolError, *, result: Any, tool: str = ""
    ) -> None:  # a ToolResult; errors imports nothing
        super().__init__(error.message, kind=error.kind, code=error.code, retryable=error.retryable, data=error.data)
        self.result = result
        self.tool = tool


class ModelError(ToolweaveError):
    """A language model could not answer.

    Attributes:
        model: Provider and model.
        message: The text without the leading `model 'NAME': `.
        kind: One of `"auth"`, `"rate_limited"`, `"overloaded"`, `"too_long"` (the conversation does not fit
            the model), `"invalid_request"`, `"refused"`, `"unreachable"`, `"timeout"` or `"protocol"`.
        status: The HTTP status, when there was one.
        retry_after: Seconds to wait as the provider requests, or None; infinity if it requests no retry.
        malformed_call: The text of the model, if the provider could not read a tool call in it; else None.
        param: The part of the request that the provider names, such as `"tools[3].function"`, or `""`.
    """

    def __init__(
        self,
        message: str,
        *,
        model: str,
        kind: str = "protocol",
        status: int | None = None,
        retry_after: float | None = None,
        malformed_call: str | None = None,
        param: str = "",
    ) -> None:
        super().__init__(f"model {model!r}: {message}")
        self.param = param
        self.malformed_call = malformed_call
        self.model = model
        self.message = message
        self.kind = kind
        self.status = status
        self.retry_after = retry_after

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.kind in ("rate_limited", "overloaded", "unreachable", "timeout")


class RunError(ToolweaveError):
    """An agent's run ended before its work was done; raised only on request, by `RunResult.check`.

    Attributes:
        run_id: The run.
        reason: Its `stop_reason`.
    """

    def __init__(self, message: str, *, run_id: str, reason: str) -> None:
        super().__init__(f"run {run_id!r} {message}")
        self.run_id = run_id
        self.reason = reason


class ServerError(ToolweaveError):
    """Something between us and one MCP server failed.

    Attributes:
        server: The server's name in the config, or the name given to `connect_mcp`.
        message: The text without the leading `server 'NAME': `.
    """

    kind: ErrorKind = ErrorKind.PROTOCOL
    retryable: bool = False

    def __init__(self, message: str, *, server: str) -> None:
        super().__init__(f"server {server!r}: {message}")
        self.server = server
        self.message: str = message

    def mask(self, redact: Callable[[str], str]) -> None:
        """Mask in place the secrets in its text, such as those that the server echoed."""
        self.message = redact(self.message)
        self.args: tuple[Any, ...] = (f"server {self.server!r}: {self.message}",)


class ConnectError(ServerError):
    """The server could not be reached or did not shake hands.

    Attributes:
        exit_code: The exit code of the process when it died, negative for a signal.
        stderr: The last lines of the process's standard error, sanitized.
        status: The HTTP status, when there was one.
        code: The code of the JSON-RPC error with which the server refused the handshake; None if it did not answer so.
    """

    kind = ErrorKind.NOT_SENT
    retryable = True
    code: int | None = None

    def __init__(
        self,
        message: str,
        *,
        server: str,
        exit_code: int | None = None,
        stderr: str = "",
        status: int | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(_with_process(message, exit_code, stderr, hint), server=server)
        self.exit_code = exit_code
        self.stderr = stderr
        self.status = status


class AuthRequiredError(ConnectError):
    """The server requires (other) credentials: HTTP 401 or 403.

    Attributes:
        challenge: The `WWW-Authenticate` header, or None.
        scopes: The scopes that a token would need, those that it has among them, where the server said what is missing.
    """

    kind = ErrorKind.AUTH_REQUIRED
    retryable = False
    scopes: tuple[str, ...] = ()

    def __init__(self, message: str, *, server: str, status: int | None = None, challenge: str | None = None) -> None:
        super().__init__(message, server=server, status=status)
        self.challenge = challenge


class ConnectionClosedError(ServerError):
    """The connection was used after `close()`."""

    kind = ErrorKind.CLOSED


class WrongLoopError(ServerError, RuntimeError):
    """A connection or hub was used in another event loop than its own, which is closed or does not run now."""

    kind = ErrorKind.NOT_SENT


class ConnectionLostError(ServerError):
    """The process died or the stream broke while the connection was in use.

    Attributes:
        sent: False when the call provably never reached the server.
        exit_code: The exit code of the process when it died, negative for a signal.
        stderr: The last lines of the process's standard error, sanitized.
    """

    def __init__(
        self, message: str, *, server: str, sent: bool, exit_code: int | None = None, stderr: str = ""
    ) -> None:
        super().__init__(_with_process(message, exit_code, stderr), server=server)
        self.sent = sent
        if sent:
            self.kind: ErrorKind = ErrorKind.OUTCOME_UNKNOWN
        else:
            self.kind = ErrorKind.NOT_SENT
        self.retryable: bool = not sent
        self.exit_code = exit_code
        self.stderr = stderr


class RequestTimeoutError(ServerError, TimeoutError):
    """A wait for a server passed its bound.

    Attributes:
        seconds: The bound that was passed.
    """

    kind = ErrorKind.TIMEOUT

    def __init__(self, message: str, *, server: str, seconds: float) -> None:
        super().__init__(message, server=server)
        self.seconds = seconds


class ProtocolError(ServerError):
    """The server answered with a JSON-RPC error, or with something that is not MCP.

    Attributes:
        code: The JSON-RPC error code.
        data: The error's `data` member as it came.
        retryable: Whether the server says so, by `data.retryable`.
    """

    def __init__(self, message: str, *, server: str, code: int, data: Any = None) -> None:  # any JSON value
        super().__init__(message, server=server)
        self.code = code
        self.data: Any = data
        self.retryable: bool = isinstance(data, dict) and cast("dict[str, Any]", data).get("retryable") is True

    def mask(self, redact: Callable[[str], str]) -> None:
        """Mask in place the secrets in its text and data."""
        super().mask(redact)
        self.data = mask_json(self.data, redact)


class SkillError(ServerError):
    """A skill of the server cannot be used: its content is not as its entry says, or the entry has a fault.

    Attributes:
        uri: The URI of the skill, or of its file that is at fault.
    """

    kind = ErrorKind.DENIED

    def __init__(self, message: str, *, server: str, uri: str) -> None:
        super().__init__(f"{uri!r}: {message}", server=server)
        self.uri = uri


def as_tool_error(exc: BaseException) -> ToolError:
    """Turn any exception of a tool call into the `ToolError` that goes into its result.

    The one place where server errors become tool errors. The message of an unexpected exception is kept, and its stack
    trace never is: a model reads the result.
    """
    if isinstance(exc, ToolError):
        return exc
    if isinstance(exc, ServerError):
        code: int | None = None
        data: object = _process_data(exc)
        if isinstance(exc, ProtocolError):
            code = exc.code
            data = exc.data
        return ToolError(f"MCP error: {exc}", kind=exc.kind, code=code, retryable=exc.retryable, data=data)
    if isinstance(exc, RequestError):
        return ToolError(exc.message, kind=ErrorKind.PROTOCOL, code=exc.code, data=exc.data)
    if isinstance(exc, TimeoutError):
        return ToolError(str(exc) or "the tool timed out", kind=ErrorKind.TIMEOUT)
    message = type(exc).__name__
    if str(exc):
        message = f"{message}: {exc}"
    return ToolError(message, unexpected=True)


def _process_data(exc: ServerError) -> dict[str, Any] | None:
    """Return a dead process's exit code and the tail of its standard error as JSON."""
    if not isinstance(exc, (ConnectError, ConnectionLostError)):
        return None
    left = {"exit_code": exc.exit_code, "stderr": exc.stderr}
    return {name: value for name, value in left.items() if value not in (None, "")} or None


_SAID_LINES = 3
LAST_WORDS = "; its last words on standard error:"
"""The part of a message behind which a process speaks."""
_SAID_CHARACTERS = 300
_CAUSE = r"(?i)error|exception|fatal|panic|fail|cannot|can't|denied|refused|not (be )?found|no such|no module|required"
_NOISE = r"npm (?:error|ERR!)\s*(?:\d+|[A-Z]\w+|code \w+)?\s*"
"""The beginning of every line of npm, which says of itself that it is an error."""
_ASIDE = r"(?i)complete log of this run|^\s+at |^node\.js v|^\s*code: '|^\s*throw "
"""Lines around a cause that look like one."""


def _with_process(message: str, exit_code: int | None, stderr: str, hint: str = "") -> str:
    """Append a process's exit to a message: the likely cause first, at most two more lines, then the hint.

    The full output is in the error's `stderr`; models read the message, so it stays short.
    """
    if exit_code is not None:
        if exit_code >= 0:
            how = f"exit code {exit_code}"
        else:
            how = f"killed by signal {-exit_code}"
        message = f"{message} ({how})"
    said = [line[:_SAID_CHARACTERS] for line in stderr.splitlines() if line.strip()]
    if not said:
        if hint:
            return f"{message}; {hint}"
        return message
    last = said[-_SAID_LINES:]
    cause = next((line for line in reversed(said) if _is_cause(line)), last[-1])
    if any(line is cause for line in last):
        rest = [line for line in last if line is not cause]
    else:
        rest = []
    return "\n".join((f"{message}{LAST_WORDS} {cause.strip()}", *rest, *((hint,) if hint else ())))


def _is_cause(line: str) -> bool:
    return re.search(_ASIDE, line) is None and re.search(_CAUSE, re.sub(_NOISE, "", line)) is not None
