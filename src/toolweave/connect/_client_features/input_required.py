"""Requests that the server answers only after further input from the client (multi-round-trip requests).

Rounds of `input_required` (SEP-2322) in modern revisions, URL elicitation by error -32042 in 2025-11-25.
Tasks are handled elsewhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from toolweave._json_types import Json, JsonObject
from toolweave.connect._client_features.server_requests import ServerRequestHandler
from toolweave.connect._deadline import Deadline
from toolweave.errors import ProtocolError
from toolweave.protocol import methods
from toolweave.protocol.client_requests import CAPABILITY_OF, required_pages
from toolweave.protocol.codes import INTERNAL_ERROR, METHOD_NOT_FOUND, MISSING_CAPABILITY, URL_ELICITATION_REQUIRED
from toolweave.protocol.input_required import (
    INPUT_REQUIRED,
    INPUT_RESPONSES,
    REQUEST_STATE,
    read_input_request,
    read_input_required,
)

MAX_ROUNDS = 10
_PAUSE_SECONDS = 0.05
_MAX_PAUSE_SECONDS = 1.0

SendRound = Callable[[JsonObject], Awaitable[Json]]
"""Sends the request with these members added to its parameters; each round of input sends it again."""


async def exchange(
    send: SendRound,
    method: str,
    asked: ServerRequestHandler,
    deadline: Deadline,
    *,
    first: Json | None = None,
    refused: ProtocolError | None = None,
) -> Json:
    """Make a request, provide all the input it asks for, and return its final result.

    `first` is the answer to the request, or `refused` the refusal, if it was made already. The result is complete, or
    for `tools/call` a task.

    Raises:
        ProtocolError: The server refuses, needs a capability that is not declared, or asks in too many rounds.
    """
    if first is not None:
        result = first
    else:
        result = await _send_first(send, asked, deadline, refused)
    result = await _answer_rounds(result, send, method, asked, deadline)
    kind = result.get("resultType", "complete")
    if kind == "complete":
        return result
    if kind == "task" and method == methods.TOOLS_CALL:
        return result
    raise asked.refusal(INTERNAL_ERROR, f"it answered {method} with unknown resultType {str(kind)[:80]!r}")


async def gather_input(requests: JsonObject, asked: ServerRequestHandler) -> Json:
    """Return the answers to a server's input requests, by their keys; all are requested concurrently.

    Raises:
        ProtocolError: One of them cannot be answered; the others are given up.
    """
    # Collected and raised behind the group, which would wrap them. Only the first counts: the cancellation that it
    # causes ends the other questions.
    responses: Json = {}
    failures: list[ProtocolError] = []

    async def answer(key: str, raw: Any) -> None:
        method, params = read_input_request(raw)
        try:
            responses[key] = await asked.answer(method, params)
        except ProtocolError as exc:
            if exc.code == METHOD_NOT_FOUND:
                exc = _not_offered(method, asked)
            failures.append(exc)
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for key, raw in requests.items():
            tasks.start_soon(answer, key, raw)
    if failures:
        raise failures[0]
    # in the order of the requests, whichever was answered first
    return {key: responses[key] for key in requests}


async def _send_first(
    send: SendRound, asked: ServerRequestHandler, deadline: Deadline, refused: ProtocolError | None
) -> Json:
    if refused is None:
        try:
            return await send({})
        except ProtocolError as exc:
            refused = exc
    if refused.code != URL_ELICITATION_REQUIRED:
        raise refused
    with deadline.held():
        visited = await _visit(refused, asked.at_rest(None))
    if not visited:
        raise refused
    return await send({})


async def _visit(exc: ProtocolError, asked: ServerRequestHandler) -> bool:
    """Lead the user to each page that the server names; return whether the user consented to all."""
    pages = required_pages(exc.data)
    try:
        for page in pages:
            answer = await asked.answer(methods.ELICITATION_CREATE, page)
            if answer["action"] != "accept":
                return False
    except ProtocolError:  # not offered: the server's own error names the missing part best
        return False
    return bool(pages)


async def _answer_rounds(
    result: Json, send: SendRound, method: str, asked: ServerRequestHandler, deadline: Deadline
) -> Json:
    pause = _PAUSE_SECONDS
    for _ in range(MAX_ROUNDS):
        if result.get("resultType") != INPUT_REQUIRED:
            return result
        try:
            requests, state = read_input_required(result)
        except ValueError as exc:
            raise asked.refusal(INTERNAL_ERROR, str(exc)) from None
        more: Json = {}
        # The server waits for us now, so the time that a person takes does not count as its silence.
        with deadline.held():
            if requests:
                more[INPUT_RESPONSES] = await gather_input(requests, asked.at_rest(result))
                pause = _PAUSE_SECONDS
            else:  # it only wants to be asked again
                await anyio.sleep(pause)
                pause = min(2 * pause, _MAX_PAUSE_SECONDS)
        if state is not None:
            more[REQUEST_STATE] = state
        result = await send(more)
    if result.get("resultType") != INPUT_REQUIRED:
        return result
    raise asked.refusal(INTERNAL_ERROR, f"{method} still asks for input after {MAX_ROUNDS} rounds: given up")


def _not_offered(method: str, asked: ServerRequestHandler) -> ProtocolError:
    what = CAPABILITY_OF.get(method)  # the callbacks have the names of the capabilities
    if what is not None:
        hint = f"; pass callbacks=Callbacks({what}=...)"
    else:
        hint = ""
    return asked.refusal(MISSING_CAPABILITY, f"it asks for input that this client did not offer: {method[:80]}{hint}")
