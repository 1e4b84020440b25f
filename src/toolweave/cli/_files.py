"""Saving the binary blocks of a result to files: images, sounds and embedded resources.

File names are generated; no text of a server becomes part of a path.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from toolweave.cli._exit_codes import CommandError
from toolweave.protocol.content import AudioContent, ContentBlock, EmbeddedResource, ImageContent

__all__ = ["Saved", "save_blobs"]

_SUFFIXES = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "image/avif": ".avif",
    "image/bmp": ".bmp",
    "image/tiff": ".tiff",
    "image/svg+xml": ".svg",
    "audio/wav": ".wav",
    "audio/x-wav": ".wav",
    "audio/mpeg": ".mp3",
    "audio/ogg": ".ogg",
    "audio/flac": ".flac",
    "audio/mp4": ".m4a",
    "audio/webm": ".weba",
    "video/mp4": ".mp4",
    "video/webm": ".webm",
    "application/pdf": ".pdf",
    "application/zip": ".zip",
    "application/gzip": ".gz",
    "application/json": ".json",
    "text/plain": ".txt",
    "text/csv": ".csv",
    "text/html": ".html",
}
"""File suffixes by MIME type; every other type becomes `.bin`, so that no file is executable by its name."""

Saved = tuple[ContentBlock, "Path | None"]
"""A block and its file, None when its base64 is invalid."""


def save_blobs(blocks: Iterable[ContentBlock], folder: Path, *, stem: str) -> Iterator[Saved]:
    """Write every binary block of a result to a new file in `folder` and yield each with its path.

    The folder is made when it is not there; no file that exists is touched.

    Raises:
        CommandError: The folder cannot be written to.
    """
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-")[:60] or "result"
    for block in blocks:
        if not isinstance(block, (ImageContent, AudioContent, EmbeddedResource)):
            continue
        if isinstance(block, EmbeddedResource) and block.blob is None:
            continue  # text, which was printed
        try:
            data = block.decode()
        except ValueError:
            yield block, None
            continue
        suffix = _SUFFIXES.get((block.mime_type or "").partition(";")[0].strip().lower(), ".bin")
        yield block, _write_new(folder, stem, suffix, data)


def _write_new(folder: Path, stem: str, suffix: str, data: bytes) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        number = 1
        while True:
            path = folder / f"{stem}-{number}{suffix}"
            try:
                with path.open("xb") as file:  # exclusive: neither overwrites nor follows a link
                    file.write(data)
            except FileExistsError:
                if not folder.is_dir():
                    raise
                number += 1
            else:
                return path
    except OSError as exc:
        raise CommandError(f"cannot save to {str(folder)!r}: {exc.strerror or exc}") from None
