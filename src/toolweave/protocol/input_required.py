"""Results that ask for input before they are complete (SEP-2322), and the requests that bring it.

A modern server cannot send its client a request. Its result holds its input requests, under keys that it chooses;
the client makes the same request again with the answers under the same keys, and with the opaque state of the
server.
"""

from __future__ import annotations

from types import NoneType

from toolweave._json_types import Json, JsonObject, as_object, as_text, object_or_empty

__all__ = [
    "INPUT_REQUESTS",
    "INPUT_REQUIRED",
    "INPUT_RESPONSES",
    "REQUEST_STATE",
    "input_request",
    "input_required",
    "read_input_request",
    "read_input_required",
]

INPUT_REQUIRED = "input_required"
"""The `resultType` of such a result, and the status of a task that waits for input."""
INPUT_REQUESTS = "inputRequests"
"""The member of a result or a task with the requests, by key."""
INPUT_RESPONSES = "inputResponses"
"""The parameter with the answers, by key."""
REQUEST_STATE = "requestState"
"""The member of a result, and the parameter, with the server's opaque state."""


def input_request(method: str, params: JsonObject) -> Json:
    """Return one request for input."""
    return {"method": method, "params": params}


def input_required(requests: JsonObject, state: str) -> Json:
    """Return a result that asks for input.

    Args:
        requests: Requests made by `input_request`, by key.
        state: The opaque state that the client sends back.
    """
    return {"resultType": INPUT_REQUIRED, INPUT_REQUESTS: requests, REQUEST_STATE: state}


def read_input_request(raw: object) -> tuple[str, JsonObject]:
    """Return the method and the parameters of one request for input; for a malformed one an unknown method."""
    request = object_or_empty(raw)
    return as_text(request.get("method")) or "a request without a method", object_or_empty(request.get("params"))


def read_input_required(result: JsonObject) -> tuple[JsonObject, str | None]:
    """Return the requests of a result that asks for input, by key, and the state to send back.

    Raises:
        ValueError: It is malformed, or asks for nothing.
    """
    requests = as_object(result.get(INPUT_REQUESTS, {}))
    state = result.get(REQUEST_STATE)
    if requests is None or not isinstance(state, (str, NoneType)):
        raise ValueError("its request for input is malformed")
    if not requests and state is None:
        raise ValueError("it asks for input without saying which")
    return requests, state
