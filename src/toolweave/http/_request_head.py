"""The head of an HTTP/1.1 request as bytes. Pure; knows nothing of MCP."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[^\x00\r\n]*")
_UNQUOTED = "/%:@!$&'()*+,;=~-._?"


class SharedHeaders(dict[str, str]):
    """Constant headers that many requests share, by lower-case names.

    Attributes:
        head: The encoded head of the last such request.
        made_from: The rest of what that head was made from, or None: its user compares whether it is still right.
    """

    head: bytes = b""
    made_from: object = None


def request_head(
    method: str, target: str, host: str, headers: Mapping[str, str], *, authority: str = "", content: bool = False
) -> bytes:
    """Return the head of a request without its last empty line; one with `content` ends before the content length.

    `headers` have lower-case names; `host` is used where they name none. `authority` stands before the target as it is,
    where a proxy is asked (RFC 9112, 3.2.2 and 3.2.3).

    Raises:
        ValueError: A header cannot be sent; its value, which may be a secret, is not shown.
    """
    lines = [f"{method} {authority}{quote(target, safe=_UNQUOTED)} HTTP/1.1"]
    if "host" not in headers:
        lines.append(f"host: {host}")
    for name, value in headers.items():
        # Most values are printable, which is asked first because it is much cheaper than the pattern.
        is_legal = value.isprintable() or _VALUE.fullmatch(value) is not None
        if not is_legal or not _NAME.fullmatch(name):
            raise ValueError(f"the header {name!r} cannot be sent")
        lines.append(f"{name}: {value}")
    lines.append("content-length: " if content else "")
    return "\r\n".join(lines).encode("utf-8", "replace")
