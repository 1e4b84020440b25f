"""The errors of upstreams for callers: the name of the server, the fate of the request, the next step.

The text of such an error is for whoever runs the gateway. It may hold addresses, proxies, paths, commands and what a
process wrote to its standard error. So it is logged, and callers get a text that is made of its facts alone.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

from toolweave.errors import (
    AuthRequiredError,
    ConnectError,
    ConnectionClosedError,
    ConnectionLostError,
    ErrorKind,
    ProtocolError,
    RequestTimeoutError,
    ServerError,
    SkillError,
    ToolError,
    printable,
)
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.protocol.json_types import as_object

_log = logging.getLogger("toolweave.gateway")

_TOO_MANY_REQUESTS = 429
_MAX_DIGITS = 6
_URL = re.compile(r"""['"]?\b[a-zA-Z][a-zA-Z0-9+.-]*://[^\s'"<>]+['"]?""")
UNKNOWN_OUTCOME = "the outcome is unknown: check what was done before you repeat the request"


def error_for_caller(error: ServerError, *, as_caller: bool = False) -> ToolError:
    """Log the error of an upstream, and return the error for its caller, without addresses and output.

    Args:
        error: The error.
        as_caller: Whether the server is called with the credentials of the caller, not with those of the gateway.
    """
    _log.warning("%s; a caller gets this error without its details", printable(str(error)))
    code = error.code if isinstance(error, ProtocolError) else None
    data = error.data if isinstance(error, ProtocolError) else _exit_data(error)
    text = f"MCP error: server {error.server!r} {_what_happened(error, as_caller=as_caller)}"
    return ToolError(text, kind=error.kind, code=code, retryable=error.retryable, data=data)


def is_transport_fault(error: ProtocolError) -> bool:
    """Whether an error is of the transport, and not one that the upstream answered."""
    return error.code == INTERNAL_ERROR and "http_status" in (as_object(error.data) or {})


def without_addresses(text: str) -> str:
    """Return a text whose URLs are replaced, such as the reason of a refused sign-in."""
    return _URL.sub("(address in the gateway's log)", text)


def _what_happened(error: ServerError, *, as_caller: bool) -> str:
    """Return the end of a sentence that begins with the server."""
    if isinstance(error, AuthRequiredError):
        return _refused_credentials(error, as_caller=as_caller)
    for kind, described in _DESCRIPTIONS:
        if isinstance(error, kind):
            return described(error)
    return "cannot be used now; try again later"


def _refused_credentials(error: AuthRequiredError, *, as_caller: bool) -> str:
    if as_caller and error.status is None:  # why a sign-in of the caller was refused concerns the caller
        return f"does not accept the credentials of this caller: {without_addresses(error.message)}"
    whose = "this caller" if as_caller else "this gateway"
    text = f"does not accept the credentials of {whose}{_status(error.status)}"
    if error.scopes:
        text += f"; they need the scopes {' '.join(error.scopes)}"
    return text if as_caller else f"{text}; ask whoever runs the gateway to correct them"


def _not_connected(error: ServerError) -> str:
    status = error.status if isinstance(error, ConnectError) else None
    return f"cannot be reached now{_status(status)}{_exit(error)}; nothing was sent, try again later"


def _lost(error: ServerError) -> str:
    if error.kind is ErrorKind.NOT_SENT:
        return f"lost its connection{_exit(error)} before the request was sent; nothing was done, try again"
    return f"lost its connection{_exit(error)} after the request was sent; {UNKNOWN_OUTCOME}"


def _too_slow(error: ServerError) -> str:
    seconds = error.seconds if isinstance(error, RequestTimeoutError) else 0
    return f"did not answer within {seconds:g} s; {UNKNOWN_OUTCOME}"


def _closed(error: ServerError) -> str:
    return "is not connected to this gateway any more; list what it offers again"


def _unusable_skill(error: ServerError) -> str:
    return f"offers a skill that cannot be used: {error.message}"


def _fault(error: ServerError) -> str:
    """Describe an answer that is not MCP; with a 5xx status the server may have begun the request."""
    facts = as_object(error.data if isinstance(error, ProtocolError) else None) or {}
    status, seconds = facts.get("http_status"), facts.get("retry_after")
    if not isinstance(status, int) or not 300 <= status < 500:
        return f"did not answer with MCP{_status(status)}; {UNKNOWN_OUTCOME}"
    text = f"refused the request{_status(status)}"
    if status != _TOO_MANY_REQUESTS:
        return f"{text}; ask whoever runs the gateway"
    if isinstance(seconds, str) and len(seconds) <= _MAX_DIGITS and seconds.isdecimal():
        return f"{text}; try again in {seconds} s"
    return f"{text}; try again later"


_DESCRIPTIONS: tuple[tuple[type[ServerError], Callable[[ServerError], str]], ...] = (
    (ConnectError, _not_connected),
    (ConnectionLostError, _lost),
    (RequestTimeoutError, _too_slow),
    (ConnectionClosedError, _closed),
    (SkillError, _unusable_skill),
    (ProtocolError, _fault),
)
"""The text for callers by the class of the error."""


def _status(status: object) -> str:
    return f" (HTTP {status})" if isinstance(status, int) else ""


def _exit(error: ServerError) -> str:
    """Return how the process of a server ended, in brackets, or nothing."""
    code = error.exit_code if isinstance(error, (ConnectError, ConnectionLostError)) else None
    if code is None:
        return ""
    return f" (exit code {code})" if code >= 0 else f" (killed by signal {-code})"


def _exit_data(error: ServerError) -> dict[str, int] | None:
    code = error.exit_code if isinstance(error, (ConnectError, ConnectionLostError)) else None
    return None if code is None else {"exit_code": code}
