"""The failure of a request to an upstream, in the form of its caller's era."""

from __future__ import annotations

import logging

from toolweave._json_types import object_or_empty
from toolweave.errors import (
    AuthRequiredError,
    ConnectError,
    ConnectionLostError,
    ErrorKind,
    ProtocolError,
    RequestError,
    ServerError,
    ToolError,
    as_tool_error,
)
from toolweave.gateway._relay.page_visits import PageVisits
from toolweave.gateway._relay.relayed_call import RelayedCall
from toolweave.protocol import methods
from toolweave.protocol.client_requests import ABILITIES
from toolweave.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS, MISSING_CAPABILITY, URL_ELICITATION_REQUIRED
from toolweave.protocol.eras import error_for, missing_abilities
from toolweave.serve.request import Json
from toolweave.tools import ToolResult
from toolweave.tools.mcp import call_result

_log = logging.getLogger("toolweave.gateway")


def failure_result(call: RelayedCall, exc: ServerError | ToolError, visits: PageVisits) -> Json:
    """Return the error result of a call, or raise the JSON-RPC error that a failure becomes.

    Args:
        call: The request that failed.
        exc: Its failure.
        visits: Notes the pages that a caller has to visit first.

    Raises:
        RequestError: The upstream's own error, or that of a request that is not a call of a tool.
    """
    if isinstance(exc, ProtocolError):
        exc = _own_error(call, exc, visits)
    if isinstance(exc, (ConnectError, ConnectionLostError)):
        exc = caller_error(exc)
    error = as_tool_error(exc)
    if call.method == methods.TOOLS_CALL:
        return call_result(ToolResult.failure(error), modern=call.request.modern)
    # A prompt or resource that pins withhold is not there, as far as its caller can see.
    if error.kind is ErrorKind.DENIED:
        code = INVALID_PARAMS
    else:
        code = INTERNAL_ERROR
    raise RequestError(error.message, code=code, data=error.data) from None


def caller_error(exc: ConnectError | ConnectionLostError) -> ToolError:
    """Return the error of a connection as callers see it: without the address of the upstream and its last output.

    The owner reads these in the log and in the status of the gateway.
    """
    _log.info("a request failed: %s", exc)
    if isinstance(exc, AuthRequiredError):
        reason = "does not accept the credentials of this gateway"
        if exc.status is not None:
            reason += f" (HTTP {exc.status})"
    elif exc.kind is ErrorKind.NOT_SENT:
        reason = "cannot be reached now, so the request was not sent"
    else:
        reason = "closed its connection before the response, so the outcome of the request is unknown"
    return ToolError(f"MCP error: server {exc.server!r} {reason}", kind=exc.kind, retryable=exc.retryable)


def _own_error(call: RelayedCall, exc: ProtocolError, visits: PageVisits) -> ServerError | ToolError:
    """Raise an error that the upstream responded with; return one that is the result of a call for this caller."""
    modern = call.request.modern
    if _is_fault(exc):
        return exc
    if exc.code == URL_ELICITATION_REQUIRED:
        if modern:  # an error of older revisions: it means the same
            needed = {"requiredCapabilities": ABILITIES["elicitation.url"]}
            raise RequestError(exc.message, code=MISSING_CAPABILITY, data=needed) from None
        visits.note_required(call.route.server, call.request.client, exc.data)
    if (exc.code, call.method, modern) != (MISSING_CAPABILITY, methods.TOOLS_CALL, False):
        code, message, data = error_for(exc.code, exc.message, exc.data, method=call.method, modern=modern)
        raise RequestError(message, code=code, data=data) from None
    lacking = ", ".join(missing_abilities(exc.data)) or "a capability"
    text = f"the tool needs {lacking}, which this client (revision {call.request.client.version}) cannot do"
    return ToolError(f"{text}: {exc.message}", kind=ErrorKind.PROTOCOL, code=exc.code, data=exc.data)


def _is_fault(exc: ProtocolError) -> bool:
    """Whether an error is of the transport, and not one that the upstream answered."""
    if exc.code != INTERNAL_ERROR:
        return False
    return "http_status" in object_or_empty(exc.data)
