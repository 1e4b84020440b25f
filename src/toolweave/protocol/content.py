"""Content blocks of the MCP specification: types, parsing and serialization.

Parsing is lenient: a malformed block becomes `UnknownContent`, never a lost result.
"""

from __future__ import annotations

import base64
import json
from types import NoneType
from typing import Any, ClassVar, TypeAlias

import msgspec

from toolweave._json_types import (
    Json,
    JsonObject,
    as_object,
    as_text,
    new_object,
    object_or_empty,
    text_entries,
    text_or_empty,
    without_none,
)
from toolweave._value import Value
from toolweave.protocol.spellings import MEDIA_NAMES

__all__ = [
    "AudioContent",
    "Block",
    "ContentBlock",
    "EmbeddedResource",
    "ImageContent",
    "ResourceLink",
    "TextContent",
    "UnknownContent",
    "block_json",
    "content_block",
    "is_binary_block",
    "is_odd_block",
    "plain_base64",
    "resource_json",
]

_MAX_UNKNOWN = 2_000
"""Characters of a block of an unknown type that are shown."""
_URL_SAFE = str.maketrans("-_", "+/")
_ROLES = frozenset({"user", "assistant"})


class Block(Value, frozen=True, kw_only=True):
    """The fields of every content block.

    Attributes:
        annotations: Hints about the audience and priority, as received, or None.
        meta: The block's `_meta`.
        raw: The block as received, empty for one made locally; not compared.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"raw"})
    annotations: JsonObject | None = None
    meta: JsonObject = msgspec.field(default_factory=new_object)
    raw: JsonObject = msgspec.field(default_factory=new_object)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__struct_fields__ if name != "raw")

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # its members may be dicts

    @property
    def audience(self) -> frozenset[str]:
        """The roles that the block is for, `"user"` and `"assistant"`; both where it names neither of them."""
        annotations = self.annotations
        if annotations is None:
            annotations = object_or_empty(self.raw.get("annotations"))
        named = text_entries(annotations.get("audience"))
        return _ROLES.intersection(named) or _ROLES


class TextContent(Block, frozen=True, kw_only=True):
    """A block of text. Server text is untrusted."""

    type: ClassVar[str] = "text"
    text: str

    def render(self) -> str:
        """Return the text itself."""
        return self.text


class _Media(Block, frozen=True, kw_only=True):
    """The fields of images and audio; `data` is base64 as on the wire."""

    type: ClassVar[str]
    data: str
    mime_type: str

    def decode(self) -> bytes:
        """Return the bytes of the content.

        Raises:
            ValueError: The server's base64 is broken.
        """
        return base64.b64decode(self.data, validate=True)

    def render(self) -> str:
        """Return a visible placeholder for text-only output."""
        return f"[{self.type}: {self.mime_type}, {_size(self.data)}]"


class ImageContent(_Media, frozen=True, kw_only=True):
    """An image; `data` is base64 as on the wire."""

    type: ClassVar[str] = "image"


class AudioContent(_Media, frozen=True, kw_only=True):
    """Audio; `data` is base64 as on the wire."""

    type: ClassVar[str] = "audio"


class ResourceLink(Block, frozen=True, kw_only=True):
    """A pointer to a resource of the same server; read it with `read_resource(uri)`."""

    type: ClassVar[str] = "resource_link"
    uri: str
    name: str = ""
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None

    def render(self) -> str:
        """Return `name (uri)`."""
        return f"{self.title or self.name or 'resource'} ({self.uri})"


class EmbeddedResource(Block, frozen=True, kw_only=True):
    """A resource inside the result; exactly one of `text` and `blob` (base64) is set."""

    type: ClassVar[str] = "resource"
    uri: str
    mime_type: str | None = None
    text: str | None = None
    blob: str | None = None

    def decode(self) -> bytes:
        """Return the resource's bytes, UTF-8 for text.

        Raises:
            ValueError: The server's base64 is broken.
        """
        if self.blob is not None:
            return base64.b64decode(self.blob, validate=True)
        return (self.text or "").encode()

    def render(self) -> str:
        """Return the text, or a visible placeholder for binary data."""
        if self.text is not None:
            return self.text
        return f"[resource: {self.uri}, {self.mime_type or 'application/octet-stream'}, {_size(self.blob or '')}]"


class UnknownContent(Block, frozen=True, kw_only=True):
    """A block of a type this version does not know, or a malformed one; the whole of it is in `raw`."""

    type: str = "unknown"

    def render(self) -> str:
        """Return the block's text, or its beginning as JSON, behind the name of its type."""
        if not self.raw:
            return f"[{self.type}: content this version cannot show]"
        text = self.raw.get("text")
        if not isinstance(text, str):
            text = json.dumps(self.raw, ensure_ascii=False, default=str)
        if len(text) > _MAX_UNKNOWN:
            text = f"{text[:_MAX_UNKNOWN]}..."
        return f"[{self.type}] {text}"


ContentBlock: TypeAlias = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource | UnknownContent
"""Any block of a tool result (MCP specification, `ContentBlock`)."""


def is_binary_block(block: ContentBlock) -> bool:
    """Return whether a block holds data in base64: an image, audio, or an embedded resource with a blob."""
    if isinstance(block, EmbeddedResource):
        return block.blob is not None
    return isinstance(block, (ImageContent, AudioContent))


def is_odd_block(block: ContentBlock) -> bool:
    """Return whether a received block is unknown, malformed, or has data or a media type in another form."""
    if isinstance(block, TextContent):
        return False
    if isinstance(block, UnknownContent):
        return True
    if has_odd_data(block):
        return True
    if isinstance(block, EmbeddedResource):
        return bool(MEDIA_NAMES.misspelled(block.raw["resource"]))
    return bool(MEDIA_NAMES.misspelled(block.raw))


def has_odd_data(block: ContentBlock) -> bool:
    """Return whether a received block has data that is not plain base64."""
    if isinstance(block, (ImageContent, AudioContent)):
        return block.raw.get("data") is not block.data
    if isinstance(block, EmbeddedResource):
        return block.blob is not None and block.raw["resource"].get("blob") is not block.blob
    return False


def content_block(item: Any) -> ContentBlock:
    """Parse one content block; a malformed one or one of an unknown type becomes `UnknownContent`."""
    block = as_object(item)
    if block is None:
        return UnknownContent(type="malformed", raw={"value": item})
    kind = block.get("type", "malformed")
    make = _MAKERS.get(kind) if isinstance(kind, str) else None
    if make is None:
        return UnknownContent(type=str(kind), raw=block)
    made = make(block)
    if made is None:
        return UnknownContent(type=str(kind), raw=block)
    if "annotations" in block or "_meta" in block:
        # Members that a block of any type may have, and few do.
        annotations = as_object(block.get("annotations"))
        return made.replace(annotations=annotations, meta=object_or_empty(block.get("_meta")))
    return made


def _text(block: JsonObject) -> ContentBlock | None:
    text = block.get("text")
    if isinstance(text, str):
        return TextContent(text=text, raw=block)
    return None


def _image(block: JsonObject) -> ContentBlock | None:
    found = _media(block, "image/png")
    if found is None:
        return None
    return ImageContent(data=found[0], mime_type=found[1], raw=block)


def _audio(block: JsonObject) -> ContentBlock | None:
    found = _media(block, "audio/wav")
    if found is None:
        return None
    return AudioContent(data=found[0], mime_type=found[1], raw=block)


def _media(block: JsonObject, default: str) -> tuple[str, str] | None:
    """Return the data of a block as plain base64, and its type."""
    data = block.get("data")
    mime = block.get("mimeType")
    if not isinstance(data, str) or not isinstance(mime, (str, NoneType)):
        return None
    plain, found = plain_base64(data)
    if mime is None:
        return plain, found or default
    return plain, mime


def plain_base64(data: str) -> tuple[str, str | None]:
    """Return base64 in the plain alphabet, and the type in its prefix; nearly always the text itself and None.

    Servers send data URLs, lines of 76 characters, and the alphabet for URLs. All of the bytes are there.
    """
    found: str | None = None
    if data.startswith("data:"):
        head, comma, rest = data.partition(",")
        if not comma or not head.endswith(";base64"):
            return data, None
        found = head.removeprefix("data:").partition(";")[0] or None
        data = rest
    # Each search is several times cheaper than a copy, and nearly all data is plain.
    if any(space in data for space in "\n \r\t"):
        data = "".join(data.split())
    if "-" in data or "_" in data:
        data = data.translate(_URL_SAFE)
    return data, found


def _link(block: JsonObject) -> ContentBlock | None:
    uri = as_text(block.get("uri"))
    size = block.get("size")
    if uri is None:
        return None
    return ResourceLink(
        uri=uri,
        name=text_or_empty(block.get("name")),
        title=as_text(block.get("title")),
        description=as_text(block.get("description")),
        mime_type=as_text(block.get("mimeType")),
        size=size if isinstance(size, int) else None,
        raw=block,
    )


def _resource(block: JsonObject) -> ContentBlock | None:
    inner = object_or_empty(block.get("resource"))
    uri = as_text(inner.get("uri"))
    if uri is None:
        return None
    text = as_text(inner.get("text"))
    blob = as_text(inner.get("blob"))
    mime = as_text(inner.get("mimeType"))
    if text is None and blob is None:
        return None
    if blob is not None:
        blob, found = plain_base64(blob)
        if mime is None:
            mime = found
    return EmbeddedResource(uri=uri, mime_type=mime, text=text, blob=blob, raw=block)


_MAKERS = {"text": _text, "image": _image, "audio": _audio, "resource_link": _link, "resource": _resource}


def block_json(block: ContentBlock) -> Json:
    """Return one content block as JSON; a received block is returned unchanged.

    A locally made block of an unknown type becomes a text block with its placeholder.
    """
    if block.raw:
        return dict(block.raw)
    made: Json
    if type(block) is TextContent:
        made = {"type": "text", "text": block.text}
    elif isinstance(block, (ImageContent, AudioContent)):
        made = {"type": block.type, "data": block.data, "mimeType": block.mime_type}
    elif isinstance(block, ResourceLink):
        made = _link_json(block)
    elif isinstance(block, EmbeddedResource):
        made = {"type": "resource", "resource": resource_json(block)}
    else:
        made = {"type": "text", "text": block.render()}
    if block.annotations is not None:
        made["annotations"] = dict(block.annotations)
    if block.meta:
        made["_meta"] = dict(block.meta)
    return made


def resource_json(resource: EmbeddedResource) -> Json:
    """Return the contents of a resource as JSON, as `resources/read` and embedded resources have them."""
    made: Json = {"uri": resource.uri}
    if resource.mime_type is not None:
        made["mimeType"] = resource.mime_type
    if resource.blob is not None:
        return made | {"blob": resource.blob}
    return made | {"text": resource.text or ""}


def _link_json(link: ResourceLink) -> Json:
    made: Json = {"type": "resource_link", "uri": link.uri, "name": link.name or link.uri}
    optional = {
        "title": link.title,
        "description": link.description,
        "mimeType": link.mime_type,
        "size": link.size,
    }
    return made | without_none(optional)


def _size(base64_text: str) -> str:
    size = len(base64_text) * 3 // 4 - base64_text[-2:].count("=")
    if size < 1000:
        return f"{size} B"
    if size < 1_000_000:
        return f"{size / 1000:.1f} kB"
    return f"{size / 1_000_000:.1f} MB"
