"""Requests for a person's approval of a call, in the form that LangChain's agents and their pages know."""

from __future__ import annotations

from toolweave._json_types import Json, JsonObject


def approval_request(name: str, arguments: JsonObject, description: str, call_id: str | None) -> Json:
    """Return the value of an interrupt that asks for the approval of a call.

    It is a request of LangChain's `HumanInTheLoopMiddleware`, with the id of the call beside it.
    """
    return {
        "action_requests": [{"name": name, "args": dict(arguments), "description": description}],
        "review_configs": [{"action_name": name, "allowed_decisions": ["approve", "reject"]}],
        "tool_call_id": call_id,
    }
