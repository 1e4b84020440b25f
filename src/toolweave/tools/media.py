"""Bytes, files and images that a function returns: their media types and their content.

`result.py` makes content blocks of them. Imports no imaging library: a function that returns an image has one.
"""

from __future__ import annotations

import io
import os
from base64 import b64encode, urlsafe_b64encode
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from toolweave._files import is_file
from toolweave._value import Value
from toolweave.errors import ErrorKind, ToolError

__all__ = ["BINARY", "BINARY_TYPES", "LARGEST", "File", "Payload", "is_binary", "named_type", "payload", "sniff"]

BINARY = "application/octet-stream"
LARGEST = 32 * 1024 * 1024
"""Maximum bytes of a file in a result."""

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"\xff\xf3", "audio/mpeg"),
    (b"\xff\xf2", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
# Memoryview is generic for type checkers.
BINARY_TYPES: tuple[type[Any], ...] = (
    bytes,
    bytearray,
    memoryview,
)
_TEXTUAL = frozenset(
    {"application/json", "application/xml", "application/javascript", "application/yaml", "application/toml"}
)
_TYPES = {".md": "text/markdown", ".yaml": "application/yaml", ".yml": "application/yaml", ".toml": "application/toml"}
_PNG_MODES = frozenset({"1", "L", "LA", "I;16", "P", "RGB", "RGBA"})
_PNG_MODE_OF = {"I": "I;16", "F": "L", "La": "LA", "PA": "RGBA", "RGBa": "RGBA"}


@dataclass(frozen=True, slots=True)
class File:
    """A file to return from a tool, a resource or a prompt, with a media type or URI of your own.

    Attributes:
        source: The content, or the path of a file that is read when the result is made.
        mime_type: Its media type; by default derived from the file's name or its first bytes.
        uri: The URI of the embedded resource; the file's URI by default, for bytes one made of their digest.
    """

    source: bytes | str | os.PathLike[str]
    _: KW_ONLY
    mime_type: str | None = None
    uri: str | None = None


class Payload(Value, frozen=True, kw_only=True):
    """Content with its media type, and its URI if it has one."""

    data: bytes
    mime_type: str
    uri: str | None = None

    @property
    def text(self) -> str | None:
        """The content as text, if its media type is textual and it is UTF-8; else None."""
        if not _is_textual(self.mime_type):
            return None
        try:
            return self.data.decode()
        except UnicodeDecodeError:
            return None

    @property
    def base64(self) -> str:
        """The content in base64."""
        return b64encode(self.data).decode("ascii")

    @property
    def name(self) -> str:
        """The URI, or one made of the digest of the bytes (RFC 6920)."""
        if self.uri is not None:
            return self.uri
        import hashlib  # bytes are rarely without a place and of no kind

        digest = urlsafe_b64encode(hashlib.sha256(self.data).digest()).rstrip(b"=")
        return f"ni:///sha-256;{digest.decode('ascii')}"


def is_binary(value: object) -> bool:
    """Whether a value is content, also as an item of a list: bytes, a `File`, an image of PIL's."""
    return isinstance(value, (*BINARY_TYPES, File)) or _is_image(value)


def payload(value: Any) -> Payload | None:
    """Return the content of bytes, a `File`, an image of PIL's or the path of a file; None for any other value.

    Raises:
        OSError: A file cannot be read.
        ToolError: A file is too large for a result (`TOO_LARGE`).
    """
    if isinstance(value, BINARY_TYPES):
        return _of_bytes(bytes(value))
    if isinstance(value, File):
        if isinstance(value.source, bytes):
            return _of_bytes(value.source, value.mime_type, value.uri)
        return _of_path(Path(value.source), value.mime_type, value.uri)
    if isinstance(value, Path):
        if is_file(value):
            return _of_path(value)
        return None
    if _is_image(value):
        return _of_image(value)
    return None


def sniff(data: bytes) -> str | None:
    """Return the media type that the first bytes show, or None."""
    for magic, mime_type in _MAGIC:
        if data.startswith(magic):
            return mime_type
    if data[:4] == b"RIFF":
        return _RIFF.get(data[8:12])
    if data[4:8] == b"ftyp":
        brand = data[8:12]
        if brand == b"avif":
            return "image/avif"
        if brand == b"M4A ":
            return "audio/mp4"
        return None
    return None


def _of_bytes(data: bytes, mime_type: str | None = None, uri: str | None = None) -> Payload:
    return Payload(data=data, mime_type=mime_type or sniff(data) or BINARY, uri=uri)


def _of_path(path: Path, mime_type: str | None = None, uri: str | None = None) -> Payload:
    size = path.stat().st_size
    # Before it is read: a file of gigabytes must not be in memory first.
    if size > LARGEST:
        raise ToolError(
            f"file {path.name!r} has {size:,} bytes, a result carries up to {LARGEST:,}; return a ResourceLink to it",
            kind=ErrorKind.TOO_LARGE,
        )
    data = path.read_bytes()
    return Payload(data=data, mime_type=mime_type or _type(path, data), uri=uri or path.absolute().as_uri())


def named_type(path: Path) -> str | None:
    """Return the media type that the name of a file shows, or None."""
    import mimetypes  # reads the system's tables

    return _TYPES.get(path.suffix.lower()) or mimetypes.guess_type(path.name)[0]


def _type(path: Path, data: bytes) -> str:
    known = named_type(path) or sniff(data)
    if known is not None:
        return known
    try:
        data.decode()
    except UnicodeDecodeError:
        return BINARY
    # A NUL is valid UTF-8, but text files do not have it.
    if b"\0" in data:
        return BINARY
    return "text/plain"


def _is_image(value: object) -> bool:
    return any((base.__module__, base.__name__) == ("PIL.Image", "Image") for base in type(value).__mro__)


def _of_image(image: Any) -> Payload:  # duck-typed
    written = io.BytesIO()
    # As it was read: a photo is several times larger as PNG, and every other image would lose by JPEG.
    if image.format == "JPEG" and image.mode in {"L", "RGB", "CMYK"}:
        image.save(written, format="JPEG")
    else:
        fits = image.mode in _PNG_MODES
        (image if fits else image.convert(_PNG_MODE_OF.get(image.mode, "RGB"))).save(written, format="PNG")
    return _of_bytes(written.getvalue())


def _is_textual(mime_type: str) -> bool:
    kind = mime_type.partition(";")[0].strip().lower()
    return kind.startswith("text/") or kind in _TEXTUAL or kind.endswith(("+json", "+xml", "+yaml"))
