"""The bytes of a request's body, from the arguments of a call. Reads a file only where uploads by path are allowed."""

from __future__ import annotations

import binascii
import mimetypes
import re
import uuid
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio.to_thread

from toolweave._json_types import Json, JsonObject, as_array, as_object, only_members, text_or_empty
from toolweave.openapi._body_schemas import FORM, Body, BodyPart, is_json
from toolweave.openapi._styles import in_query, joined, text_of
from toolweave.tools.arguments import encode

_MAX_FILE = 32 * 1024 * 1024
_BINARY = "application/octet-stream"
_MEDIA_TYPE = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+(;[ -~]*)?")


class UnusableArgument(Exception):
    """An argument that no request can be made of.

    Attributes:
        path: JSON pointer to it in the arguments.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """A file among the arguments.

    Attributes:
        name: Its name, or "".
        media_type: Given, or guessed from the name; "" for neither.
    """

    content: bytes
    name: str
    media_type: str


class BodyWriter:
    """Writes bodies.

    Args:
        folder: The folder whose files may be given by path; None for none.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    async def write(self, body: Body, arguments: JsonObject) -> tuple[bytes, str] | None:
        """Return a body with its media type, or None if no argument is for the body.

        Raises:
            UnusableArgument: An argument that must be a file is not a readable file.
        """
        if body.whole is not None:
            if body.whole not in arguments:
                return None
            return await self._whole(body, arguments[body.whole])
        given = only_members(arguments, body.members)
        if not given and not is_json(body.media_type):
            return None
        parts: dict[str, BodyPart] = {}
        values: Json = {}
        for name, value in given.items():
            part = body.members[name]
            parts[part.name] = part
            values[part.name] = value
        return await self._written(body.media_type, values, parts)

    async def _whole(self, body: Body, value: Any) -> tuple[bytes, str]:
        if body.is_file:
            file = await self._file(value, f"/{body.whole}")
            if file.media_type:
                return file.content, file.media_type
            # a range such as `image/*` cannot be sent
            if "*" in body.media_type:
                return file.content, _BINARY
            return file.content, body.media_type
        return await self._written(body.media_type, value, body.parts)

    async def _written(self, media_type: str, value: Any, parts: Mapping[str, BodyPart]) -> tuple[bytes, str]:
        if is_json(media_type):
            return encode(value), media_type
        members = as_object(value)
        if members is not None:
            if media_type.startswith(FORM):
                return _form(members, parts).encode(), FORM
            if media_type.startswith("multipart/"):
                return await self._multipart(media_type, members, parts)
        return text_of(value).encode("utf-8", "replace"), media_type

    async def _multipart(self, media_type: str, values: JsonObject, parts: Mapping[str, BodyPart]) -> tuple[bytes, str]:
        # The boundary must not occur in any content. It has 122 random bits, and no argument was written after it, so
        # nothing has to be searched for it.
        boundary = uuid.uuid4().hex
        written: list[bytes] = []
        for name, value in values.items():
            part = parts.get(name, BodyPart(name=name))
            items = _items_of(part, value)
            if items is None:
                written.append(await self._part(part, value, f"/{name}", boundary))
                continue
            for number, item in enumerate(items):
                written.append(await self._part(part, item, f"/{name}/{number}", boundary))
        written.append(b"--%b--\r\n" % boundary.encode())
        return b"".join(written), f"{media_type.partition(';')[0]}; boundary={boundary}"

    async def _part(self, part: BodyPart, value: Any, where: str, boundary: str) -> bytes:
        head = f'content-disposition: form-data; name="{_parameter(part.name)}"'
        kind = part.media_type
        if part.kind != "value":
            file = await self._file(value, where)
            head += f'; filename="{_parameter(file.name or "file")}"'
            kind = file.media_type or kind or _BINARY
            data = file.content
        elif isinstance(value, (Mapping, list)) or is_json(kind):
            kind = kind or "application/json"
            data = encode(value)
        else:
            data = text_of(value).encode("utf-8", "replace")
        if kind:
            head += f"\r\ncontent-type: {kind}"
        return b"--%b\r\n%b\r\n\r\n%b\r\n" % (boundary.encode(), head.encode(), data)

    async def _file(self, value: JsonObject, where: str) -> _File:
        given = [name for name in ("base64", "text", "path") if value.get(name) is not None]
        if len(given) != 1:
            raise UnusableArgument(where, "a file has exactly one of base64, text and path")
        name = text_or_empty(value.get("filename"))
        media_type = text_or_empty(value.get("media_type"))
        if media_type and not _MEDIA_TYPE.fullmatch(media_type):
            raise UnusableArgument(f"{where}/media_type", "is not a media type")
        if given == ["path"]:
            data, own = await self._read(value["path"], f"{where}/path")
            name = name or own
        elif given == ["text"]:
            data = value["text"].encode("utf-8", "replace")
        else:
            try:
                data = b64decode(value["base64"], validate=True)
            except (binascii.Error, ValueError):
                raise UnusableArgument(f"{where}/base64", "is not valid base64") from None
        if name and not media_type:
            media_type = text_or_empty(mimetypes.guess_type(name)[0])
        return _File(content=data, name=name, media_type=media_type)

    async def _read(self, path: str, where: str) -> tuple[bytes, str]:
        folder = self._folder
        if folder is None:
            raise UnusableArgument(where, "files by path are not allowed")

        def content() -> tuple[bytes, str]:
            root = folder.resolve()
            # links are followed first: one in the folder may lead out of it
            file = (root / path).resolve()
            if not file.is_relative_to(root) or not file.is_file():
                raise UnusableArgument(where, "is not a file in the folder of uploads")
            if file.stat().st_size > _MAX_FILE:
                raise UnusableArgument(where, f"is larger than {_MAX_FILE // 1024 // 1024} MB")
            return file.read_bytes(), file.name

        try:
            return await anyio.to_thread.run_sync(content)
        except (OSError, ValueError):
            raise UnusableArgument(where, "cannot be read") from None


def _items_of(part: BodyPart, value: Any) -> list[Any] | None:
    """Return the items that are parts one by one; None for a value that is one part."""
    if part.kind == "files":
        return as_array(value)
    if part.kind == "value" and not part.media_type:
        return as_array(value)
    return None


def _form(values: JsonObject, parts: Mapping[str, BodyPart]) -> str:
    pairs: list[tuple[str, str]] = []
    for name, value in values.items():
        part = parts.get(name, BodyPart(name=name))
        if not part.style:
            # without a style in the document, an object is JSON and the items of a list are repeated
            if isinstance(value, Mapping):
                value = encode(value).decode()
            pairs += in_query(name, value, style="form", explode=True, reserved=part.reserved)
            continue
        pairs += in_query(name, value, style=part.style, explode=part.explode, reserved=part.reserved)
    return joined(pairs)


def _parameter(text: str) -> str:
    """Return a text as a parameter of a multipart header (HTML, "multipart/form-data encoding algorithm")."""
    return text.replace("\r", "%0D").replace("\n", "%0A").replace('"', "%22")
