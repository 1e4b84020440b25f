"""The second reading of the answer to a handshake that the specification does not allow. Pure."""

from __future__ import annotations

from collections.abc import Callable

from toolweave._json_types import Json, JsonObject, as_array, as_object, text_entries
from toolweave._repairs import Repair
from toolweave.protocol.spellings import SERVER_NAMES, spelled

__all__ = ["HANDSHAKE_REPAIRS", "readable_handshake"]

_CAPABILITIES = Repair(
    given="`capabilities` of a server that are null or a list",
    read_as="an object with the names in the list, or an empty one",
    limit="no capability is assumed",
    switch='`"repair_messages": false`',
    problem="has 'capabilities' that are not an object",
)
HANDSHAKE_REPAIRS = (_CAPABILITIES,)
"""Every repair of a handshake."""


def readable_handshake(result: JsonObject, note: Callable[[str], None]) -> JsonObject:
    """Return an answer to `initialize` or `server/discover` with its members under their names, and capabilities."""
    made = spelled(result, SERVER_NAMES, note)
    if "capabilities" not in made:
        return made
    given: object = made["capabilities"]
    offered = _object(given)
    if offered is None:
        return made
    if offered is given:
        return made
    note(_CAPABILITIES.problem)
    return {**made, "capabilities": offered}


def _object(given: object) -> JsonObject | None:
    """Return the object that is meant by a value: PHP writes an empty list for an empty object."""
    if given is None:
        return {}
    listed = as_array(given)
    if listed is None:
        return as_object(given)
    return dict.fromkeys(text_entries(listed), Json())
