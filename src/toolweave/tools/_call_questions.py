"""Questions of a server in the middle of a call, answered by the caller: the port, and the values of forms.

A connection that leaves questions to its callers (`toolweave.connect.ask_caller`) puts those of a call to the
`CallContext.questions` of that call. Knows no wire and no answerer.
"""

from __future__ import annotations

import logging
from typing import Protocol

from toolweave._json_types import Json, JsonObject, object_or_empty
from toolweave.errors import SchemaError, printable
from toolweave.protocol.client_requests import ElicitationRequest, ElicitationResult

_log = logging.getLogger("toolweave.tools")


class CallQuestions(Protocol):
    """Answers the questions of a server to its user in one call."""

    def begin(self) -> JsonObject | None:
        """Return the result that asked, for a call resumed with the answers; None for one made from its start.

        Called before each attempt at the call.
        """
        ...

    def restart(self) -> bool:
        """Return whether a call that cannot be resumed may be restarted, and prepare the restart."""
        ...

    async def answer(
        self, request: ElicitationRequest, *, running: bool, asked_by: JsonObject | None
    ) -> ElicitationResult:
        """Return the user's decision; the call may be cancelled instead.

        Args:
            request: The question. Its texts and its schema are the server's.
            running: Whether the call is under way at the server, and is lost when its caller leaves.
            asked_by: The result that asked (SEP-2322): the call continues when the same one is given by `begin`. None
                for a call that is running, or was refused before anything was done.
        """
        ...


def is_resumed(questions: CallQuestions | None) -> bool:
    """Return whether a call with these questions continues where its server asked, instead of at its start."""
    return questions is not None and questions.begin() is not None


def filled_form(schema: JsonObject, given: JsonObject) -> tuple[Json, str]:
    """Return the values of a server's form with its defaults filled in (SEP-1034), and the errors in them.

    The text is empty when they fit, or if the form's schema cannot be checked against.
    """
    from toolweave.schema import Validator, describe  # compiled code; only a question needs it

    content = dict(given)
    for name, part in (object_or_empty(schema.get("properties"))).items():
        described = object_or_empty(part)
        if name not in content and "default" in described:
            content[name] = described["default"]
    try:
        problems = Validator(schema).problems(content)
    except SchemaError as exc:
        _log.warning("the schema of a server's form cannot be used: %s", printable(str(exc)))
        return content, ""
    return content, describe(problems) if problems else ""
