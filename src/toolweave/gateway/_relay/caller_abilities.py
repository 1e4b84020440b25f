"""The abilities of a caller: declared upstream, and compared with the questions that arrive.

A server should ask nothing that its client did not declare, but one of another revision may not know the word for
it, and no server is trusted to keep to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio

from toolweave._json_types import object_or_empty
from toolweave.errors import RequestError
from toolweave.protocol.client_requests import CAPABILITY_OF, can_answer, needs_of
from toolweave.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, MISSING_CAPABILITY
from toolweave.protocol.eras import missing_abilities, passed_capabilities, question_for
from toolweave.protocol.input_required import INPUT_REQUESTS, read_input_request
from toolweave.protocol.tasks import declares_tasks
from toolweave.serve import Client, Request
from toolweave.serve.request import Json


def declared_to_legacy(client: Client) -> Json:
    """Return the capabilities of a client as its own connection to a legacy upstream declares them."""
    return passed_capabilities(
        client.capabilities, version=client.version, tasks=False, roots_changes=not client.modern
    )


def declared_to_modern(client: Client) -> Json:
    """Return the capabilities of a client as its requests to modern upstreams declare them."""
    # modern callers speak for themselves
    tasks = not client.modern or declares_tasks(client.capabilities)
    return passed_capabilities(client.capabilities, version=client.version, tasks=tasks)


async def put_question(
    request: Request, method: str, params: Mapping[str, Any], seconds: float, meta: Mapping[str, Any] | None = None
) -> Json:
    """Ask a legacy caller, and return its answer as it is.

    Args:
        request: The request on whose stream it is asked.
        method: The method of the question.
        params: Its parameters, as the upstream sent them.
        seconds: Seconds to wait for the answer.
        meta: Further members of `_meta`, or None.

    Raises:
        RequestError: The caller refused, is gone, or did not answer in time.
    """
    question = question_for(method, params, request.client.version)
    if meta is not None:
        question["_meta"] = {**object_or_empty(question.get("_meta")), **meta}
    with anyio.move_on_after(seconds):
        return await request.reply_channel.ask(method, question)
    raise RequestError(f"the client did not answer {method} within {seconds:g} s", code=INTERNAL_ERROR)


def check_able(method: str, params: Mapping[str, Any], able: Mapping[str, Any]) -> None:
    """Refuse a question that the caller did not declare to be able to answer.

    Raises:
        RequestError: It did not: the method (-32601), or a form, a page or tools in it (-32602).
    """
    if CAPABILITY_OF.get(method) not in able:
        raise RequestError(f"this client does not offer {method[:100]}", code=METHOD_NOT_FOUND)
    needs = needs_of(method, params)
    if not can_answer(needs, able):
        lacking = ", ".join(missing_abilities({"requiredCapabilities": needs}))
        raise RequestError(f"{method}: this client does not offer {lacking}", code=INVALID_PARAMS)


def check_questions(result: Mapping[str, Any], able: Mapping[str, Any]) -> None:
    """Refuse a round of input with a question that the caller did not declare to be able to answer.

    Raises:
        RequestError: There is one (-32021).
    """
    for question in object_or_empty(result.get(INPUT_REQUESTS)).values():
        needs = needs_of(*read_input_request(question))
        if not can_answer(needs, able):
            lacking = ", ".join(missing_abilities({"requiredCapabilities": needs}))
            raise RequestError(
                f"the upstream asks for {lacking}, which this client does not offer",
                code=MISSING_CAPABILITY,
                data={"requiredCapabilities": needs},
            )
