"""Content blocks for language models: text, or media whose type its bytes confirm. Pure; independent of APIs.

One block that an API refuses fails the whole request, now and with every later turn of the conversation. So nothing
here trusts a server: base64 is decoded, a type is read from the first bytes, text is valid Unicode and never blank.
"""

from __future__ import annotations

import base64
from collections.abc import Container, Iterable, Iterator
from pathlib import PurePosixPath
from typing import NamedTuple
from urllib.parse import urlsplit

from toolweave.protocol.content import AudioContent, ContentBlock, EmbeddedResource, ImageContent
from toolweave.tools.media import sniff

PDF = "application/pdf"
SHOWN = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp", PDF})
"""The media types that the APIs of the large providers accept in a message."""
SOUNDS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
"""The audio types that some of them accept, with their names for them."""


class Media(NamedTuple):
    """Media that a model can be sent; `data` is valid base64."""

    mime_type: str
    data: str
    name: str

    @property
    def url(self) -> str:
        """The media as a `data:` URL."""
        return f"data:{self.mime_type};base64,{self.data}"

    def decode(self) -> bytes:
        """Return its bytes."""
        return base64.b64decode(self.data)


def shown(blocks: Iterable[ContentBlock], taken: Container[str] = SHOWN) -> Iterator[str | Media]:
    """Yield each block as media of an accepted type, else as its text or a note."""
    for block in blocks:
        media = _media(block)
        if media is not None and media.mime_type in taken:
            yield media
        elif (text := clean(block.render())).strip():
            yield text


def clean(text: str) -> str:
    """Return the text without lone surrogates, which no request can encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        # UTF-16 joins the halves of a pair that were sent apart. Only those that stay alone are replaced.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _media(block: ContentBlock) -> Media | None:
    match block:
        case ImageContent():
            return _checked(block, block.data, "", "image")
        case AudioContent():
            return _checked(block, block.data, block.mime_type, "sound")
        case EmbeddedResource(blob=str() as blob):
            name = PurePosixPath(urlsplit(block.uri).path).name or "file"
            return _checked(block, blob, block.mime_type or "", clean(name))
        case _:
            return None


def _checked(
    block: ImageContent | AudioContent | EmbeddedResource, data: str, declared: str, name: str
) -> Media | None:
    """Return the media under the type that its bytes show; None if they are not of a supported type."""
    try:
        content = block.decode()
    except ValueError:  # what a server calls base64 may be none
        return None
    if content.startswith(b"%PDF-"):
        return Media(PDF, data, name if name.lower().endswith(".pdf") else f"{name}.pdf")
    kind = sniff(content)
    if kind in SHOWN:
        return Media(kind, data, name)
    declared = declared.partition(";")[0].strip().lower()
    if content and declared in SOUNDS:
        return Media(declared, data, name)
    return None
