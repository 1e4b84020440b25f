"""The second reading of the answer to a handshake that the specification does not allow. Pure."""

from __future__ import annotations

from collections.abc import Callable

from toolweave._json_types import Json, JsonObject, as_array, as_object, text_entries
from toolweave._repairs import Repair
from toolweave.protocol.spellings import SERVER_NAMES, spelled
from toolweave.protocol.versions import HANDSHAKE_VERSIONS

__all__ = ["HANDSHAKE_REPAIRS", "meant_revision", "readable_handshake"]

_CAPABILITIES = Repair(
    given="`capabilities` of a server that are null or a list",
    read_as="an object with the names in the list, or an empty one",
    limit="no capability is assumed",
    switch='`"repair_messages": false`',
    problem="has 'capabilities' that are not an object",
)
_REVISION = Repair(
    given="an answer to `initialize` without a revision, or with `2024-10-07`",
    read_as="the first revision, `2024-11-05`",
    limit="any other unknown revision is an error, and so is an answer without `capabilities` and `serverInfo`",
    switch='`"repair_messages": false`',
    problem="has the 'protocolVersion' {given!r}, read as {meant!r}",
)
_DRAFT = "2024-10-07"
"""A draft before the first revision, which servers still name; its messages are those of the first."""
HANDSHAKE_REPAIRS = (_CAPABILITIES, _REVISION)
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


def meant_revision(result: JsonObject, note: Callable[[str], None]) -> object:
    """Return the revision that an answer to `initialize` means, or its `protocolVersion` if that is not one."""
    given = result.get("protocolVersion")
    is_answer = not {"capabilities", "serverInfo"}.isdisjoint(result)
    if given == _DRAFT or (given is None and is_answer):
        meant = HANDSHAKE_VERSIONS[0]
        note(_REVISION.problem.format(given=given, meant=meant))
        return meant
    return given


def _object(given: object) -> JsonObject | None:
    """Return the object that is meant by a value: PHP writes an empty list for an empty object."""
    if given is None:
        return {}
    listed = as_array(given)
    if listed is None:
        return as_object(given)
    return dict.fromkeys(text_entries(listed), Json())
