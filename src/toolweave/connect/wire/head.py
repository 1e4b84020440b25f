"""The head of an HTTP/1.1 request as bytes. Pure; knows nothing of MCP."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import quote

__all__ = ["request_head"]

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[^\x00\r\n]*")
_UNQUOTED = "/%:@!$&'()*+,;=~-._?"


def request_head(method: str, target: str, host: str, headers: Mapping[str, str], length: int) -> bytes:
    """Return everything before the body; `headers` have lower-case names, `host` counts where they name none.

    Raises:
        ValueError: A header cannot be sent; its value, which may be a secret, is not told.
    """
    lines = [f"{method} {_quoted(target)} HTTP/1.1"]
    if "host" not in headers:
        lines.append(f"host: {host}")
    for name, value in headers.items():
        if not _is_name(name) or not (value.isprintable() or _VALUE.fullmatch(value)):
            raise ValueError(f"the header {name!r} cannot be sent")
        lines.append(f"{name}: {value}")
    if method == "POST":
        lines.append(f"content-length: {length}")
    lines.append("\r\n")
    return "\r\n".join(lines).encode("utf-8", "replace")


@lru_cache(maxsize=64)
def _quoted(target: str) -> str:
    return quote(target, safe=_UNQUOTED)


@lru_cache(maxsize=256)
def _is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None
