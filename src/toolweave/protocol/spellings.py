"""Members under nearly their names: `is_error` for `isError`, `mimetype` for `mimeType`.

Servers that write their objects with another convention than the specification send `snake_case`, `PascalCase` or
small letters. A member is read under its own name first; another spelling counts only if that member is missing or
null. Names of tools, URIs, ids and hints about effects have no other spelling here. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from toolweave._json_types import Json, JsonObject, as_object, as_text
from toolweave._repairs import Repair

__all__ = [
    "COMPLETION_NAMES",
    "CONTENTS_NAMES",
    "ERROR_NAMES",
    "FORM_NAMES",
    "MEDIA_NAMES",
    "MESSAGES_NAMES",
    "MESSAGE_NAMES",
    "MISSPELLED",
    "PAGE_NAMES",
    "PROGRESS_NAMES",
    "PROMPT_NAMES",
    "RESULT_NAMES",
    "SAMPLING_NAMES",
    "SERVER_NAMES",
    "TASK_NAMES",
    "TEMPLATE_NAMES",
    "TOOL_NAMES",
    "MemberNames",
    "spelled",
    "spelled_block",
]

MISSPELLED = Repair(
    given="a member in another spelling, such as `is_error`, `mime_type`, `next_cursor` or `ServerInfo`",
    read_as="the member of the specification",
    limit="only if that member is missing or null; hints about effects have one spelling",
    switch='`"repair_messages": false`',
    problem="has {!r} in place of {!r}",
)
_MISSPELLED_TYPE = "has a block of the type {!r} in place of {!r}"
_MAX_SHOWN = 40


def _letters(name: str) -> str:
    """Return a name without the marks and capitals that conventions differ in."""
    return name.replace("_", "").replace("-", "").lower()


class MemberNames:
    """The members of one kind of object that have a second spelling.

    Args:
        names: Their names in the specification.
        others: The other members of the object, which are never compared.

    Attributes:
        exact: All of these names: an object without other members has none in another spelling.
    """

    __slots__ = ("_by_letters", "exact")

    def __init__(self, *names: str, others: tuple[str, ...] = ()) -> None:
        self.exact: frozenset[str] = frozenset({*names, *others})
        self._by_letters = dict(zip(map(_letters, names), names, strict=True))

    def misspelled(self, value: JsonObject) -> Mapping[str, str]:
        """Return the members in another spelling, each with its name in the specification."""
        found: dict[str, str] = {}
        if self.exact.issuperset(value):
            return found
        for name in value:
            if name in self.exact:
                continue
            meant = self._by_letters.get(_letters(name))
            if meant is not None:
                found[name] = meant
        return found


RESULT_NAMES: MemberNames = MemberNames("content", "structuredContent", "isError", "resultType", others=("_meta",))
PAGE_NAMES: MemberNames = MemberNames(
    *("tools", "prompts", "resources", "resourceTemplates", "nextCursor", "ttlMs", "cacheScope"),
    others=("_meta", "resultType"),
)
TOOL_NAMES: MemberNames = MemberNames(
    *("inputSchema", "outputSchema"),
    others=("name", "title", "description", "annotations", "icons", "execution", "_meta"),
)
MEDIA_NAMES: MemberNames = MemberNames(
    *("type", "text", "data", "blob", "mimeType", "resource"),
    others=("uri", "name", "title", "description", "size", "annotations", "icons", "_meta"),
)
COMPLETION_NAMES: MemberNames = MemberNames("completion", "values", "total", "hasMore", others=("_meta", "resultType"))
MESSAGES_NAMES: MemberNames = MemberNames("messages", "description", "isError", others=("_meta", "resultType"))
MESSAGE_NAMES: MemberNames = MemberNames("role", "content", others=("_meta",))
CONTENTS_NAMES: MemberNames = MemberNames(
    "contents", "isError", "ttlMs", "cacheScope", others=("_meta", "resultType", *MEDIA_NAMES.exact)
)
ERROR_NAMES: MemberNames = MemberNames("code", "message", "data")
TASK_NAMES: MemberNames = MemberNames(
    *("status", "statusMessage", "createdAt", "lastUpdatedAt", "ttl", "ttlMs", "pollInterval", "pollIntervalMs"),
    *("inputRequests", "result", "error"),
    others=("taskId", "_meta", "resultType"),
)
PROMPT_NAMES: MemberNames = MemberNames("arguments", others=("name", "title", "description", "icons", "_meta"))
TEMPLATE_NAMES: MemberNames = MemberNames(
    *("uriTemplate", "mimeType"), others=("name", "title", "description", "annotations", "icons", "_meta")
)
SERVER_NAMES: MemberNames = MemberNames(
    *("protocolVersion", "supportedVersions", "serverInfo", "capabilities", "instructions"),
    others=("_meta", "resultType"),
)
SAMPLING_NAMES: MemberNames = MemberNames(
    *("messages", "maxTokens", "systemPrompt", "stopSequences", "modelPreferences", "includeContext", "toolChoice"),
    others=("temperature", "tools", "metadata", "_meta"),
)
FORM_NAMES: MemberNames = MemberNames("requestedSchema", others=("message", "mode", "url", "elicitationId", "_meta"))
PROGRESS_NAMES: MemberNames = MemberNames("progressToken", others=("progress", "total", "message", "_meta"))
_TYPES = {
    "text": "text",
    "image": "image",
    "audio": "audio",
    "resource": "resource",
    "resourcelink": "resource_link",
    "error": "error",
}
"""The types of blocks, by their letters; `error` is one that many servers send."""


def spelled(value: JsonObject, names: MemberNames, note: Callable[[str], None]) -> JsonObject:
    """Return an object with its members under their names; `note` is called with each change."""
    found = names.misspelled(value)
    if not found:
        return value
    made: Json = dict(value)
    for name, meant in found.items():
        if made.get(meant) is None:
            made[meant] = made.pop(name)
            note(MISSPELLED.problem.format(name[:_MAX_SHOWN], meant))
    return made


def spelled_block(block: JsonObject, note: Callable[[str], None]) -> JsonObject:
    """Return a content block with its type and its members under their names, and those of its resource."""
    made = spelled(block, MEDIA_NAMES, note)
    kind = as_text(made.get("type"))
    if kind is not None and kind not in _TYPES.values():
        meant = _TYPES.get(_letters(kind))
        if meant is not None:
            note(_MISSPELLED_TYPE.format(kind[:_MAX_SHOWN], meant))
            made = {**made, "type": meant}
    inner = as_object(made.get("resource"))
    if inner is None:
        return made
    named = spelled(inner, MEDIA_NAMES, note)
    if named is inner:
        return made
    return {**made, "resource": named}
