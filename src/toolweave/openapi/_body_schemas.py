"""The body of a request as arguments: the media type that is sent, the members of an object one by one, files. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from toolweave.openapi._arguments import ArgumentNames
from toolweave.openapi._document import ApiDocument, UnusablePart, escaped
from toolweave.openapi._schemas import SchemaReader, is_binary_schema, object_members
from toolweave.protocol.json_types import as_object, as_text
from toolweave.schema._normalize import views

FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
_WHOLE = "body"


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyPart:
    """A member of a body.

    Attributes:
        name: Its own name.
        kind: `files` is a list of files.
        media_type: That of its `encoding`, or "".
        style: That of its `encoding` in a form, or "".
    """

    name: str
    kind: Literal["value", "file", "files"] = "value"
    media_type: str = ""
    style: str = ""
    explode: bool = True
    reserved: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """The body of an operation's requests.

    Attributes:
        media_type: As it is sent.
        members: The members of the object by their arguments, or
        whole: the argument that is all of it.
        is_file: Whether that is a file.
        parts: The members that `whole` may have, by their own names, in a form.
    """

    media_type: str
    members: Mapping[str, BodyPart] = field(default_factory=dict[str, BodyPart])
    whole: str | None = None
    is_file: bool = False
    parts: Mapping[str, BodyPart] = field(default_factory=dict[str, BodyPart])


def is_json(media_type: str) -> bool:
    """Return whether a media type is that of JSON."""
    kind = media_type.partition(";")[0].strip().lower()
    return kind in ("application/json", "text/json") or kind.endswith("+json")


def file_schema(*, paths: bool) -> dict[str, Any]:
    """Return the schema of a file among arguments: its content, or, where that is allowed, its path."""
    members: dict[str, Any] = {
        "base64": {"type": "string", "contentEncoding": "base64", "description": "The content in base64."},
        "text": {"type": "string", "description": "The content, if it is text."},
    }
    if paths:
        members["path"] = {"type": "string", "description": "The path of a file in the folder of uploads."}
    return {
        "type": "object",
        "description": f"A file: exactly one of {', '.join(members)}.",
        "properties": members | {"filename": {"type": "string"}, "media_type": {"type": "string"}},
        "additionalProperties": False,
    }


def read_body(
    document: ApiDocument, reader: SchemaReader, body: object, pointer: str, arguments: ArgumentNames, *, paths: bool
) -> Body | None:
    """Add the arguments of a `requestBody`, and return how they are sent; None for one without content.

    Raises:
        UnusablePart: It cannot be used.
    """
    node, pointer = document.follow(body, pointer)
    kinds = as_object(node.get("content"))
    if not kinds:
        return None
    chosen = min(kinds, key=lambda kind: (_preference(kind), list(kinds).index(kind)))
    media, pointer = document.follow(kinds[chosen], f"{pointer}/content/{escaped(chosen)}")
    media_type = "application/json" if chosen == "*/*" else chosen
    schema: Any = media.get("schema", {})
    at = f"{pointer}/schema"
    required = node.get("required") is True
    description = as_text(node.get("description")) or ""
    if not (is_json(media_type) or _is_form(media_type) or media_type.startswith("text/")):
        read: Any = file_schema(paths=paths)
        if not is_binary_schema(document, schema) and _is_text(media_type):
            read = {"type": "string", "description": f"The body, {media_type}."}
        name = arguments.add(_WHOLE, "body", read, required=required, description=description)
        return Body(media_type=media_type, whole=name, is_file="properties" in read)
    found = object_members(document, schema, at)
    if found is None:
        parts = {}
    else:
        parts = _parts(document, media, found[0], media_type)
    has_files = any(part.kind != "value" for part in parts.values())
    if found is not None and (required or has_files or not found[0].get("required")):
        members = _flat(reader, found, parts, arguments, required=required, paths=paths)
        return Body(media_type=media_type, members=members)
    parts = {}
    if _is_form(media_type):
        parts = _parts(document, media, document.follow(schema, at)[0], media_type)
        if any(part.kind != "value" for part in parts.values()):
            raise UnusablePart(at, "a form with files is an object with properties and nothing else")
    name = arguments.add(
        _WHOLE, "body", reader.read(schema, at, arguments.needed), required=required,
        description=description,
    )  # fmt: skip
    return Body(media_type=media_type, whole=name, parts=parts)


def _flat(
    reader: SchemaReader,
    found: tuple[dict[str, Any], str],
    parts: Mapping[str, BodyPart],
    arguments: ArgumentNames,
    *,
    required: bool,
    paths: bool,
) -> dict[str, BodyPart]:
    """Add every member of an object as an argument; those that a body needs which may be left out, only with it."""
    node, pointer = found
    files = {name for name, part in parts.items() if part.kind != "value"}
    shallow = {**node, "properties": {name: one for name, one in node["properties"].items() if name not in files}}
    read = reader.read(shallow, pointer, arguments.needed)
    members: dict[str, BodyPart] = {}
    needed: list[str] = []
    for name, original in node["properties"].items():
        part = parts[name]
        if name in files:
            one: Any = file_schema(paths=paths)
            if part.kind == "files":
                one = {"type": "array", "items": one}
            if description := as_text((as_object(original) or {}).get("description")):
                one = {**one, "description": f"{description} ({one.get('description', 'Files.')})"}
        elif name in read.get("properties", {}):
            one = read["properties"][name]
        else:  # read-only
            continue
        wanted = name in (read.get("required") or ())
        argument = arguments.add(name, "body", one, required=required and wanted)
        members[argument] = part
        if wanted and not required:
            needed.append(argument)
    arguments.require_together(members, needed)
    return members


def _parts(
    document: ApiDocument, media: Mapping[str, Any], schema: Mapping[str, Any], media_type: str
) -> dict[str, BodyPart]:
    encoding = as_object(media.get("encoding")) or {}
    made: dict[str, BodyPart] = {}
    for name, one in (as_object(schema.get("properties")) or {}).items():
        own = as_object(encoding.get(name)) or {}
        style = own.get("style")
        explode = own.get("explode")
        made[name] = BodyPart(
            name=name,
            kind=_part_kind(document, one) if media_type.startswith("multipart/") else "value",
            media_type=str(own.get("contentType", "")).partition(",")[0].strip(),
            style=style if isinstance(style, str) else "form" if isinstance(explode, bool) else "",
            explode=explode if isinstance(explode, bool) else style in (None, "form"),
            reserved=own.get("allowReserved") is True,
        )
    return made


def _part_kind(document: ApiDocument, schema: object) -> Literal["value", "file", "files"]:
    if is_binary_schema(document, schema):
        return "file"
    listed = any(is_binary_schema(document, view.get("items")) for view in views(schema, document.root))
    if listed:
        return "files"
    return "value"


def _preference(media_type: str) -> int:
    if media_type == "*/*" or is_json(media_type):
        return 0
    ranks = (MULTIPART, FORM, "text/plain")
    if media_type in ranks:
        return 1 + ranks.index(media_type)
    return 9


def _is_form(media_type: str) -> bool:
    return media_type.startswith((FORM, "multipart/"))


def _is_text(media_type: str) -> bool:
    kind = media_type.partition(";")[0].strip()
    return kind.endswith(("/xml", "+xml", "yaml", "/graphql", "/x-ndjson", "/jsonl"))
