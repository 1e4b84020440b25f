"""The bytes of a request's body, from the arguments of a call. Reads a file only where uploads by path are allowed."""

from __future__ import annotations

import binascii
import mimetypes
import re
import uuid
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import anyio.to_thread

from toolweave.openapi._body_schemas import FORM, Body, BodyPart, is_json
from toolweave.openapi._styles import in_query, text_of
from toolweave.tools._arguments import encode

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


class BodyWriter:
    """Writes bodies.

    Args:
        folder: The folder whose files may be given by path; None for none.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    async def write(self, body: Body, arguments: Mapping[str, Any]) -> tuple[bytes, str] | None:
        """Return a body with its media type; None where no argument is for it.

        Raises:
            UnusableArgument: A file among them is none.
        """
        if body.whole is not None:
            if body.whole not in arguments:
                return None
            return await self._whole(body, arguments[body.whole])
        given = {name: arguments[name] for name in body.members if name in arguments}
        if not given and not is_json(body.media_type):
            return None
        parts = {body.members[name].name: body.members[name] for name in given}
        values = {body.members[name].name: value for name, value in given.items()}
        return await self._written(body.media_type, values, parts)

    async def _whole(self, body: Body, value: Any) -> tuple[bytes, str]:
        if body.is_file:
            data, _, media_type = await self._file(value, f"/{body.whole}")
            return data, media_type or (body.media_type if "*" not in body.media_type else _BINARY)
        return await self._written(body.media_type, value, body.parts)

    async def _written(self, media_type: str, value: Any, parts: Mapping[str, BodyPart]) -> tuple[bytes, str]:
        if is_json(media_type):
            return encode(value), media_type
        if media_type.startswith(FORM) and isinstance(value, Mapping):
            return _form(cast("Mapping[str, Any]", value), parts).encode(), FORM
        if media_type.startswith("multipart/") and isinstance(value, Mapping):
            return await self._multipart(media_type, cast("Mapping[str, Any]", value), parts)
        return text_of(value).encode("utf-8", "replace"), media_type

    async def _multipart(
        self, media_type: str, values: Mapping[str, Any], parts: Mapping[str, BodyPart]
    ) -> tuple[bytes, str]:
        boundary = uuid.uuid4().hex  # of 122 random bits: in no content
        written: list[bytes] = []
        for name, value in values.items():
            part = parts.get(name, BodyPart(name=name))
            many = part.kind == "files" or (part.kind == "value" and isinstance(value, list) and not part.media_type)
            for number, one in enumerate(cast("list[Any]", value) if many else [value]):
                where = f"/{name}/{number}" if many else f"/{name}"
                data, filename, kind = await self._part(part, one, where)
                head = f'content-disposition: form-data; name="{_parameter(name)}"'
                head += "" if filename is None else f'; filename="{_parameter(filename)}"'
                head += f"\r\ncontent-type: {kind}" if kind else ""
                written.append(b"--%b\r\n%b\r\n\r\n%b\r\n" % (boundary.encode(), head.encode(), data))
        written.append(b"--%b--\r\n" % boundary.encode())
        return b"".join(written), f"{media_type.partition(';')[0]}; boundary={boundary}"

    async def _part(self, part: BodyPart, value: Any, where: str) -> tuple[bytes, str | None, str]:
        if part.kind != "value":
            data, filename, media_type = await self._file(value, where)
            return data, filename or "file", media_type or part.media_type or _BINARY
        if isinstance(value, (Mapping, list)) or is_json(part.media_type):
            return encode(value), None, part.media_type or "application/json"
        return text_of(value).encode("utf-8", "replace"), None, part.media_type

    async def _file(self, value: Any, where: str) -> tuple[bytes, str | None, str]:
        """Return the content, the name and the media type of a file among the arguments."""
        given = [name for name in ("base64", "text", "path") if value.get(name) is not None]
        if len(given) != 1:
            raise UnusableArgument(where, "a file has exactly one of base64, text and path")
        filename = value.get("filename")
        media_type = value.get("media_type") or ""
        if media_type and not _MEDIA_TYPE.fullmatch(media_type):
            raise UnusableArgument(f"{where}/media_type", "is no media type")
        if given == ["path"]:
            data, own = await self._read(value["path"], f"{where}/path")
            filename = filename or own
        elif given == ["text"]:
            data = value["text"].encode("utf-8", "replace")
        else:
            try:
                data = b64decode(value["base64"], validate=True)
            except (binascii.Error, ValueError):
                raise UnusableArgument(f"{where}/base64", "is no base64") from None
        return data, filename, media_type or (mimetypes.guess_type(filename)[0] if filename else None) or ""

    async def _read(self, path: str, where: str) -> tuple[bytes, str]:
        folder = self._folder
        if folder is None:
            raise UnusableArgument(where, "files by path are not allowed")

        def content() -> tuple[bytes, str]:
            root = folder.resolve()
            file = (root / path).resolve()  # behind every link, before it is judged
            if not file.is_relative_to(root) or not file.is_file():
                raise UnusableArgument(where, "is no file in the folder of uploads")
            if file.stat().st_size > _MAX_FILE:
                raise UnusableArgument(where, f"is larger than {_MAX_FILE // 1024 // 1024} MB")
            return file.read_bytes(), file.name

        try:
            return await anyio.to_thread.run_sync(content)
        except (OSError, ValueError):
            raise UnusableArgument(where, "cannot be read") from None


def _form(values: Mapping[str, Any], parts: Mapping[str, BodyPart]) -> str:
    pairs: list[tuple[str, str]] = []
    for name, value in values.items():
        part = parts.get(name, BodyPart(name=name))
        if isinstance(value, Mapping) and not part.style:
            value = encode(value).decode()  # the default of an object in a form
        pairs += in_query(
            name, value, style=part.style or "form", explode=part.explode or not part.style, reserved=part.reserved
        )
    return "&".join(f"{name}={value}" for name, value in pairs)


def _parameter(text: str) -> str:
    """Return a text as a parameter of a multipart header (HTML, "multipart/form-data encoding algorithm")."""
    return text.replace("\r", "%0D").replace("\n", "%0A").replace('"', "%22")
