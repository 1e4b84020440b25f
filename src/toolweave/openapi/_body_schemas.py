"""The body of a request as arguments: the media type that is sent, the members of an object one by one, files. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from toolweave._json_types import Json, JsonObject, as_object, object_or_empty, text_or_empty
from toolweave.openapi._arguments import ArgumentNames
from toolweave.openapi._document import ApiDocument, UnusablePart, escaped
from toolweave.openapi._schemas import SchemaReader, is_binary_schema, object_members
from toolweave.schema.normalize import views

FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
_WHOLE = "body"


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyPart:
    """A member of a body.

    Attributes:
        name: The name in the body.
        kind: `files` is a list of files.
        media_type: The content type in its `encoding`, or "".
        style: The style in its `encoding`, or "". Only forms have styles.
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
        media_type: The value of the `content-type` header.
        members: The members of the object by the names of their arguments, if each is an argument.
        whole: The argument that is the whole body; None if `members` are.
        is_file: Whether `whole` is a file.
        parts: The members that `whole` may have in a form, by their names in the body.
    """

    media_type: str
    members: Mapping[str, BodyPart] = field(default_factory=dict[str, BodyPart])
    whole: str | None = None
    is_file: bool = False
    parts: Mapping[str, BodyPart] = field(default_factory=dict[str, BodyPart])


def is_json(media_type: str) -> bool:
    """Return whether values of a media type are JSON."""
    kind = media_type.partition(";")[0].strip().lower()
    return kind in ("application/json", "text/json") or kind.endswith("+json")


def file_schema(*, paths: bool) -> Json:
    """Return the schema of a file among arguments: its content, or its path if `paths` allows it."""
    members: Json = {
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

    The members of an object are arguments one by one if a call can say everything with them: the body is required, or
    it has files, or it has no required member, so that no argument at all can mean no body. Every other body is one
    argument.

    Raises:
        UnusablePart: The body cannot be used.
    """
    node, pointer = document.follow(body, pointer)
    kinds = as_object(node.get("content"))
    if not kinds:
        return None
    chosen = _preferred(kinds)
    media, pointer = document.follow(kinds[chosen], f"{pointer}/content/{escaped(chosen)}")
    media_type = "application/json" if chosen == "*/*" else chosen
    schema: object = media.get("schema", {})
    at = f"{pointer}/schema"
    required = node.get("required") is True
    description = text_or_empty(node.get("description"))
    if not _has_members(media_type):
        is_file = is_binary_schema(document, schema) or not _is_text(media_type)
        if is_file:
            read: Json = file_schema(paths=paths)
        else:
            read = {"type": "string", "description": f"The body, {media_type}."}
        name = arguments.add(_WHOLE, "body", read, required=required, description=description)
        return Body(media_type=media_type, whole=name, is_file=is_file)
    found = object_members(document, schema, at)
    if found is not None:
        parts = _parts(document, media, found[0], media_type)
        if required or _has_file(parts.values()) or not found[0].get("required"):
            members = _flat(reader, found, parts, arguments, required=required, paths=paths)
            return Body(media_type=media_type, members=members)
    parts = {}
    if _is_form(media_type):
        parts = _parts(document, media, document.follow(schema, at)[0], media_type)
        if _has_file(parts.values()):
            raise UnusablePart(at, "a form with files is an object with properties and nothing else")
    whole = reader.read(schema, at, arguments.needed)
    name = arguments.add(_WHOLE, "body", whole, required=required, description=description)
    return Body(media_type=media_type, whole=name, parts=parts)


def _flat(
    reader: SchemaReader,
    found: tuple[Json, str],
    parts: Mapping[str, BodyPart],
    arguments: ArgumentNames,
    *,
    required: bool,
    paths: bool,
) -> dict[str, BodyPart]:
    """Add every member of an object as an argument; one that an optional body requires is required with the others."""
    node, pointer = found
    # A file has another schema among the arguments than in the document, so only the other members are read.
    values = {name: one for name, one in node["properties"].items() if parts[name].kind == "value"}
    read = reader.read({**node, "properties": values}, pointer, arguments.needed)
    required_members = read.get("required") or ()
    members: dict[str, BodyPart] = {}
    needed: list[str] = []
    for name, original in node["properties"].items():
        part = parts[name]
        if part.kind != "value":
            one: object = _file_argument(part, original, paths=paths)
        elif name in read.get("properties", {}):
            one = read["properties"][name]
        else:  # read-only
            continue
        wanted = name in required_members
        argument = arguments.add(name, "body", one, required=required and wanted)
        members[argument] = part
        if wanted and not required:
            needed.append(argument)
    arguments.require_together(members, needed)
    return members


def _file_argument(part: BodyPart, schema: object, *, paths: bool) -> Json:
    """Return the schema of an argument for a file, or for a list of files."""
    made = file_schema(paths=paths)
    summary = made["description"]
    if part.kind == "files":
        made = {"type": "array", "items": made}
        summary = "Files."
    description = text_or_empty(object_or_empty(schema).get("description"))
    if description:
        made["description"] = f"{description} ({summary})"
    return made


def _parts(document: ApiDocument, media: JsonObject, schema: JsonObject, media_type: str) -> dict[str, BodyPart]:
    encodings = object_or_empty(media.get("encoding"))
    made: dict[str, BodyPart] = {}
    for name, one in object_or_empty(schema.get("properties")).items():
        encoding = object_or_empty(encodings.get(name))
        kind = "value"
        if media_type.startswith("multipart/"):
            kind = _part_kind(document, one)
        style, explode = _style(encoding)
        made[name] = BodyPart(
            name=name,
            kind=kind,
            media_type=str(encoding.get("contentType", "")).partition(",")[0].strip(),
            style=style,
            explode=explode,
            reserved=encoding.get("allowReserved") is True,
        )
    return made


def _style(encoding: JsonObject) -> tuple[str, bool]:
    """Return the style and `explode` of an encoding: one alone implies the other, neither is the style ""."""
    style = encoding.get("style")
    explode = encoding.get("explode")
    if not isinstance(explode, bool):
        return text_or_empty(style), style in (None, "form")
    if isinstance(style, str):
        return style, explode
    return "form", explode


def _part_kind(document: ApiDocument, schema: object) -> Literal["value", "file", "files"]:
    if is_binary_schema(document, schema):
        return "file"
    listed = any(is_binary_schema(document, view.get("items")) for view in views(schema, document.root))
    if listed:
        return "files"
    return "value"


def _has_file(parts: Iterable[BodyPart]) -> bool:
    return any(part.kind != "value" for part in parts)


def _preferred(media_types: Iterable[str]) -> str:
    return min(media_types, key=_preference)  # of equal ones the first


def _preference(media_type: str) -> int:
    if media_type == "*/*" or is_json(media_type):
        return 0
    ranks = (MULTIPART, FORM, "text/plain")
    if media_type in ranks:
        return 1 + ranks.index(media_type)
    return 9


def _has_members(media_type: str) -> bool:
    """Return whether a body of this type is made of the values of its schema; others are a text or a file."""
    return is_json(media_type) or _is_form(media_type) or media_type.startswith("text/")


def _is_form(media_type: str) -> bool:
    return media_type.startswith((FORM, "multipart/"))


def _is_text(media_type: str) -> bool:
    kind = media_type.partition(";")[0].strip()
    return kind.endswith(("/xml", "+xml", "yaml", "/graphql", "/x-ndjson", "/jsonl"))
