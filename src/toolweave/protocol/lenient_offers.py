"""The second reading of lists, prompts and resources that the specification does not allow.

Servers write null for an empty list, an object by name in place of a list, one message in place of many, or a text in
place of a block. The plain meaning is read, and each change is reported. Names and URIs are the
server's: none is made up, except that contents without a URI are those of the URI that was read. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

import msgspec

from toolweave._json import decode_json
from toolweave._json_types import (
    Json,
    JsonObject,
    array_or_empty,
    as_array,
    as_object,
    as_text,
    object_entries,
    object_or_empty,
    text_or_empty,
    without_members,
)
from toolweave._repairs import Repair
from toolweave._text import one_line
from toolweave.protocol.lenient_bytes import base64_in
from toolweave.protocol.lenient_results import BareResult, readable_result
from toolweave.protocol.spellings import (
    CONTENTS_NAMES,
    MEDIA_NAMES,
    MESSAGE_NAMES,
    MESSAGES_NAMES,
    PAGE_NAMES,
    spelled,
    spelled_block,
)

__all__ = [
    "BARE_RESULT",
    "EMPTY_CURSOR",
    "NUMBER_CURSOR",
    "OFFER_REPAIRS",
    "NoteChange",
    "decoded",
    "ignore_change",
    "object_schema",
    "readable_block",
    "readable_contents",
    "readable_entries",
    "readable_messages",
    "readable_page",
    "readable_prompt",
    "readable_tool",
]

NoteChange: TypeAlias = Callable[[str], None]
"""Called with each change, as a phrase."""


def ignore_change(_change: str) -> None:
    """Do nothing: the `NoteChange` of a reader to whom changes do not matter."""


_SWITCH = '`"repair_messages": false`'
_NULL_LIST = Repair(
    given="null as a list of tools, prompts, resources, templates, messages or contents",
    read_as="an empty list",
    limit="a member that is missing stays an error",
    switch=_SWITCH,
    problem="has null as {!r}",
)
_NO_LIST = Repair(
    given="an object in place of a list",
    read_as="a list of it; in lists, its members as entries with their names",
    limit="only if each member is an object",
    switch=_SWITCH,
    problem="has {!r} that is not a list",
)
BARE_RESULT = Repair(
    given="a list, or one message or contents, as the whole result",
    read_as="the member of the result that it is",
    limit="a message has a role or content, contents a text or a blob",
    switch=_SWITCH,
    problem="has no {!r}",
)
EMPTY_CURSOR = Repair(
    given='`"nextCursor": ""` on the last page',
    read_as="the end of the list",
    limit="only if that cursor leads to the same page",
    switch=_SWITCH,
    problem="has an empty 'nextCursor' on its last page",
)
NUMBER_CURSOR = Repair(
    given="a number as `nextCursor`",
    read_as="a cursor, which is sent back as that number",
    limit="none",
    switch=_SWITCH,
    problem="has a number as 'nextCursor'",
)
_SCHEMA = Repair(
    given="`inputSchema` that is `true`, an empty list, or JSON as a text; is named `parameters`; or has null, "
    '`OBJECT` or `["object", "null"]` as its type',
    read_as="the object schema that is meant",
    limit="any other value leaves out the tool",
    switch=_SWITCH,
    problem="has an 'inputSchema' that is not an object",
)
_ARGUMENT = Repair(
    given="arguments of a prompt as an object by name, or as names; `required` as a text",
    read_as="a list of arguments; a boolean for `true`",
    limit="any other value is not required",
    switch=_SWITCH,
    problem="has 'arguments' that are not as the specification has them",
)
_MESSAGE = Repair(
    given="a message of a prompt that is a text, or has a text, several blocks, no role, or one in capitals",
    read_as="text blocks, one message for each block, the role `user`",
    limit="null is left out",
    switch=_SWITCH,
    problem="has a message that is not a role and a block",
)
_CONTENTS = Repair(
    given="contents of a resource that are a text, data or a block, have no URI, or whose text is data or null",
    read_as="a text, the URI that was read, its JSON, or an empty text",
    limit="null is left out",
    switch=_SWITCH,
    problem="has contents that are not as the specification has them",
)
OFFER_REPAIRS = (
    _NULL_LIST,
    _NO_LIST,
    BARE_RESULT,
    EMPTY_CURSOR,
    NUMBER_CURSOR,
    _SCHEMA,
    _ARGUMENT,
    _MESSAGE,
    _CONTENTS,
)
"""Every repair of lists, prompts and resources."""

_DESCRIBING = ("mimeType", "type", "name", "title", "size", "annotations", "_meta")
"""The members of contents that are not their data."""
_MAX_WORDS = 300
_IDENTITIES: Mapping[str, str] = {"resources": "uri", "resourceTemplates": "uriTemplate"}
"""The identifying members of entries that have no name, by the member that holds the list."""


def readable_page(page: JsonObject, note: NoteChange) -> JsonObject:
    """Return a page of a list with its members under their names."""
    return spelled(page, PAGE_NAMES, note)


def readable_entries(page: JsonObject, key: str, note: NoteChange) -> list[Any] | None:
    """Return the entries of a page whose list is malformed; None without such a list."""
    if isinstance(page, BareResult):
        bare = as_array(page.value)
        if bare is not None:
            note(BARE_RESULT.problem.format(key))
        return bare
    if key not in page:
        return None
    found = page[key]
    if found is None:
        note(_NULL_LIST.problem.format(key))
        return []
    entries = as_object(found)
    if entries is None:
        return None
    identity = _IDENTITIES.get(key, "name")
    made: list[Any] = []
    # One entry in place of a list of one has its identity inside. Otherwise the members are the entries, and their
    # names are the identities that the server gave; nothing is invented.
    if as_text(entries.get(identity)) is not None:
        made.append(entries)
    else:
        for name, one in entries.items():
            entry = as_object(one)
            if entry is None:
                return None
            made.append({identity: name, **entry})
    note(_NO_LIST.problem.format(key))
    return made


def readable_tool(entry: JsonObject, note: NoteChange) -> JsonObject:
    """Return a tool whose input schema is malformed with the one that is meant, if that is plain."""
    schema = entry.get("inputSchema")
    meant: object = None
    described = as_object(schema)
    if described is not None:
        meant = _typed_as_object(described)
    elif schema is None:
        meant = object_schema(entry.get("parameters"))
    elif schema in (True, []):
        meant = {"type": "object"}
    elif isinstance(schema, str):
        meant = object_schema(decoded(schema))
    if meant is None:
        return entry
    note(_SCHEMA.problem)
    return {**without_members(entry, "parameters"), "inputSchema": meant}


def _typed_as_object(schema: JsonObject) -> JsonObject | None:
    """Return a schema whose type is that of an object in another form, with that type; None for any other."""
    kind: object = schema.get("type", "object")
    kinds = as_array(kind)
    if kinds is None:
        kinds = [kind]
    if kind == "object" or not any(one is None or str(one).lower() == "object" for one in kinds):
        return None
    return {**schema, "type": "object"}


def readable_prompt(entry: JsonObject, note: NoteChange) -> JsonObject:
    """Return a prompt whose arguments are malformed with the ones that are meant."""
    given = entry.get("arguments")
    by_name = as_object(given)
    listed = list(array_or_empty(given))
    if by_name is not None:
        for name, one in by_name.items():
            listed.append({"name": name, **object_or_empty(one)})
    made = list(map(_argument, listed))
    # Equal to what was given: nothing to report, and the entry itself is returned, as the strict reader would.
    if made == given:
        return entry
    if not made:  # null, or an empty object
        return entry
    note(_ARGUMENT.problem)
    return {**entry, "arguments": made}


def _argument(given: Any) -> Any:
    if isinstance(given, str):
        return {"name": given}
    required = as_text(object_or_empty(given).get("required"))
    if required is None:
        return given
    return {**given, "required": required.strip().lower() == "true"}


def readable_messages(result: JsonObject, note: NoteChange) -> JsonObject:
    """Return a result of `prompts/get` whose messages are malformed with those that are meant.

    Raises:
        ValueError: It reports a failure.
    """
    result = spelled(result, MESSAGES_NAMES, note)
    _refuse_failure(result, "messages")
    return _readable(result, "messages", _messages, _named_message, _MESSAGE, note, ("role", "content", "text"))


def _refuse_failure(result: JsonObject, key: str) -> None:
    """Raise the failure that a result reports as that of a tool does."""
    if not result.get("isError") or result.get(key):
        return
    made, _ = readable_result(result)
    texts = [text_or_empty(block.get("text")) for block in object_entries(made.get("content"))]
    raise ValueError(f"reports a failure: {one_line(' '.join(texts), _MAX_WORDS)}")


def _readable(
    result: JsonObject,
    key: str,
    read: Callable[[object], Iterator[JsonObject]],
    named: Callable[[JsonObject, NoteChange], JsonObject],
    repair: Repair,
    note: NoteChange,
    one: Collection[str],
) -> JsonObject:
    """Return a result with the list that is meant.

    `named` returns an item with its members under their names, and `read` yields the items that are meant by one. A
    result without the list that has a member of `one` is itself the item.
    """
    # Servers return the one message, or the one content, without the object around it.
    if key not in result:
        if not any(name in result for name in one):
            return result
        note(BARE_RESULT.problem.format(key))
        result = {key: [result]}
    given = result[key]
    listed = as_array(given)
    if given is None:
        note(_NULL_LIST.problem.format(key))
        listed = []
    elif listed is None:
        note(_NO_LIST.problem.format(key))
        listed = [given]
    listed = _under_names(listed, named, note)
    made = list(chain.from_iterable(map(read, listed)))
    if made != listed:
        note(repair.problem)
    return {**result, key: made}


def _under_names(
    items: list[Any], named: Callable[[JsonObject, NoteChange], JsonObject], note: NoteChange
) -> list[Any]:
    """Return items, the objects among them with their members under their names."""
    made: list[Any] = []
    for item in items:
        known = as_object(item)
        made.append(item if known is None else named(known, note))
    return made


def _named_message(message: JsonObject, note: NoteChange) -> JsonObject:
    """Return a message, and its blocks, with their members under their names."""
    message = spelled(message, MESSAGE_NAMES, note)
    content: object = message.get("content")
    blocks = as_array(content)
    block = as_object(content)
    made: object = content
    if blocks is not None:
        made = _under_names(blocks, spelled_block, note)
    elif block is not None:
        made = spelled_block(block, note)
    if made == content:
        return message
    return {**message, "content": made}


def _messages(given: object) -> Iterator[Json]:
    """Yield the messages that are meant by one, each with a role and a block."""
    if given is None:
        return
    message = as_object(given)
    if message is None:
        yield {"role": "user", "content": readable_block(given)}
        return
    role = text_or_empty(message.get("role"))
    if role.lower() in ("", "user", "assistant"):
        role = role.lower() or "user"
    content = message.get("content", message.get("text"))
    blocks = as_array(content)
    if blocks is None:
        blocks = [content]
    # A message has one block in this protocol. Several blocks become several messages of the same role, in order.
    for one in blocks:
        yield {**without_members(message, "text"), "role": role, "content": readable_block(one)}


def readable_block(given: object) -> JsonObject:
    """Return the content block that is meant by a value."""
    block = as_object(given)
    if block is None:
        return {"type": "text", "text": _words(given)}
    kind = as_text(block.get("type"))
    if kind == "text" and "text" in block and as_text(block["text"]) is None:
        return {**block, "text": _words(block["text"])}
    if kind is not None:
        return block
    if isinstance(block.get("text"), str):
        return {"type": "text", **without_members(block, "type")}
    return {"type": "text", "text": _words(block)}


def readable_contents(result: JsonObject, uri: str, note: NoteChange) -> JsonObject:
    """Return a result of `resources/read` whose contents are malformed with those that are meant.

    Raises:
        ValueError: It reports a failure.
    """
    result = spelled(result, CONTENTS_NAMES, note)
    _refuse_failure(result, "contents")
    if "contents" not in result and "content" in result:
        note(BARE_RESULT.problem.format("contents"))
        result = {**without_members(result, "content"), "contents": result["content"]}
    return _readable(result, "contents", partial(_contents, uri), _named_contents, _CONTENTS, note, ("text", "blob"))


def _named_contents(contents: JsonObject, note: NoteChange) -> JsonObject:
    return spelled(contents, MEDIA_NAMES, note)


def _contents(uri: str, given: object) -> Iterator[Json]:
    """Yield the contents that are meant by a value: a URI, and a text or bytes; none for null."""
    if given is None:
        return
    item = as_object(given)
    if item is None:
        yield {"uri": uri, "text": _words(given)}
        return
    inner = as_object(item.get("resource"))
    if inner is not None and item.get("type") == "resource":  # a block in place of its contents
        item = inner
    made = dict(item)
    if not isinstance(made.get("uri"), str):
        made["uri"] = uri
    data = base64_in(made.get("blob"))
    if data is not None:
        made["blob"] = data
    elif as_text(made.get("blob")) is None:
        value = without_members(made, "uri", "blob", *_DESCRIBING)
        if "text" in made or not value:
            value = made.get("text")
        made["text"] = _words(value)
    yield made


def _words(value: object) -> str:
    """Return a value as text: a text as it is, nothing for null, anything else as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def object_schema(value: object) -> JsonObject | None:
    """Return a value that describes an object in JSON Schema, or None."""
    schema = as_object(value)
    if schema is None:
        return None
    if schema.get("type") == "object":
        return schema
    if isinstance(schema.get("properties"), dict):
        return schema
    return None


def decoded(text: str) -> object:
    """Return the value that a text holds as JSON, or None."""
    try:
        return decode_json(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
