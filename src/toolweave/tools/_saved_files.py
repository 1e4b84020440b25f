"""Save the binary blocks of a result (images, sounds, embedded resources) as files, and replace them by links.

File names are generated; no text of a server becomes part of a path but the letters and digits of its tool's name.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from toolweave.protocol.content import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    is_binary_block,
)
from toolweave.tools._wrappers import BaseToolset, transformed
from toolweave.tools.media import LARGEST
from toolweave.tools.result import ToolResult
from toolweave.tools.spec import ToolSpec
from toolweave.tools.toolset import Toolset

_log = logging.getLogger("toolweave.tools")

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


def files_saved(toolset: Toolset, folder: str | os.PathLike[str], *, max_bytes: int = LARGEST) -> BaseToolset:
    """Return the toolset with the binary blocks of its results saved as new files, and replaced by links.

    A block stays as it is, with its bytes, if its base64 is broken, it is larger than `max_bytes` or the folder cannot
    be written to; the last is logged, since the call itself succeeded.

    Args:
        toolset: The toolset.
        folder: Where the files go; it is made when it is not there.
        max_bytes: Bytes of the largest file.
    """

    async def save(result: ToolResult, spec: ToolSpec) -> ToolResult:
        if not any(map(is_binary_block, result.content)):
            return result
        import anyio.to_thread  # results are rarely binary

        work = partial(save_files, result, folder, stem=spec.original_name, max_bytes=max_bytes)
        try:
            return await anyio.to_thread.run_sync(work)
        except OSError as exc:
            _log.warning("a file of tool %r is not saved: %s", spec.name, exc.strerror or type(exc).__name__)
            return result

    return transformed(toolset, save)


def save_files(
    result: ToolResult, folder: str | os.PathLike[str], *, stem: str = "result", max_bytes: int = LARGEST
) -> ToolResult:
    """Write the binary blocks of a result to new files and return it with `file:` links instead of them.

    A file appears whole or not at all, and none that exists is touched. A block with broken base64 or of more than
    `max_bytes` stays as it is.

    Args:
        result: The result.
        folder: Where the files go; it is made when it is not there.
        stem: The beginning of their names, of which letters, digits, `_` and `-` are used.
        max_bytes: Bytes of the largest file.

    Raises:
        OSError: The folder cannot be written to.
    """
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-")[:60] or "result"
    return result.replace_content(_links(result, Path(folder), stem, max_bytes))


def _links(result: ToolResult, folder: Path, stem: str, max_bytes: int) -> Iterator[ContentBlock]:
    for block in result.content:
        data = _bytes(block, max_bytes)
        yield block if data is None else _link(block, data, folder, stem)


def _bytes(block: ContentBlock, max_bytes: int) -> bytes | None:
    """Return the bytes of a block that is to be saved, else None."""
    if not isinstance(block, (ImageContent, AudioContent, EmbeddedResource)) or not is_binary_block(block):
        return None
    if isinstance(block, EmbeddedResource):
        encoded = block.blob or ""
    else:
        encoded = block.data
    if len(encoded) * 3 // 4 - 2 > max_bytes:
        return None
    try:
        data = block.decode()
    except ValueError:  # what a server calls base64 may be none
        return None
    if len(data) <= max_bytes:
        return data
    return None


def _link(block: ContentBlock, data: bytes, folder: Path, stem: str) -> ResourceLink:
    kind = getattr(block, "mime_type", None)
    path = _write_new(folder, stem, _SUFFIXES.get((kind or "").partition(";")[0].strip().lower(), ".bin"), data)
    return ResourceLink(
        uri=path.absolute().as_uri(),
        name=path.name,
        mime_type=kind,
        size=len(data),
        annotations=block.annotations,
        meta=block.meta,
    )


def _write_new(folder: Path, stem: str, suffix: str, data: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / f".{stem}-{secrets.token_hex(8)}.partial"
    try:
        # Exclusive: neither overwrites nor follows a link.
        with written.open("xb") as file:
            file.write(data)
        return _placed(written, folder, stem, suffix)
    finally:
        written.unlink(missing_ok=True)


def _placed(written: Path, folder: Path, stem: str, suffix: str) -> Path:
    """Give a file the first name that is free; the name of another is never taken over."""
    number = 1
    while True:
        path = folder / f"{stem}-{number}{suffix}"
        try:
            _move(written, path)
        except FileExistsError:
            number += 1
        else:
            return path


def _move(written: Path, path: Path) -> None:
    try:
        os.link(written, path)
    # An `OSError` as well, but the caller tries the next name.
    except FileExistsError:
        raise
    except OSError:
        # A file system without hard links: the name is taken first, and empty for a moment.
        path.open("xb").close()
        written.replace(path)
