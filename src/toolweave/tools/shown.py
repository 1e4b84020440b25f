"""Blocks as a language model is shown them: text, or media whose type its bytes confirm. Pure; knows no API.

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

__all__ = ["PDF", "SHOWN", "SOUNDS", "Media", "clean", "shown"]

PDF = "application/pdf"
SHOWN = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp", PDF})
"""What the APIs of the large providers take in a message."""
SOUNDS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
"""What some of them hear, with the names they have for it."""


class Media(NamedTuple):
    """What is no text and can be shown as itself; `data` is sound base64."""

    mime_type: str
    data: str
    name: str

    @property
    def url(self) -> str:
        """The whole of it as a `data:` URL."""
        return f"data:{self.mime_type};base64,{self.data}"

    def decode(self) -> bytes:
        """Return its bytes."""
        return base64.b64decode(self.data)


def shown(blocks: Iterable[ContentBlock], taken: Container[str] = SHOWN) -> Iterator[str | Media]:
    """Yield each block as media of a type that is taken, else as its text or the note that stands for it (C17)."""
    for block in blocks:
        media = _media(block)
        if media is not None and media.mime_type in taken:
            yield media
        elif (text := clean(block.render())).strip():
            yield text


def clean(text: str) -> str:
    """Return the text without halves of surrogate pairs, which no request can carry."""
    try:
        text.encode()
    except UnicodeEncodeError:
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
    """Return the media under the type that its bytes tell; None for what is not what an API would take it for."""
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
    return Media(declared, data, name) if content and declared in SOUNDS else None
