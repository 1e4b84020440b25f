"""Makes text from servers fit for a terminal: what a person cannot see is made visible.

The one place that decides which characters reach a terminal (RELIABILITY 4: escapes, bidirectional
marks, zero-width and tag characters smuggle instructions past the reader). Knows nothing of views.
"""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["clip", "safe_json", "safe_text"]

_FORMATS = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"  # soft hyphen, joiners and fillers without a glyph
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f"  # zero-width, bidirectional marks, embeddings and isolates
    "\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb"  # fillers, unused variation selectors, byte order mark
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"  # shorthand, music, tags, more selectors
)
_LINE_BREAKS = "\u2028\u2029"
_SURROGATES = "\ud800-\udfff"
_HIDDEN = re.compile(f"[\x00-\x1f\x7f-\x9f{_FORMATS}{_LINE_BREAKS}{_SURROGATES}]")
_HIDDEN_IN_TEXT = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_FORMATS}{_LINE_BREAKS}{_SURROGATES}]")
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def safe_text(text: str, *, multiline: bool = False) -> str:
    r"""Return `text` with every character that is no visible text written out, such as `\x1b` or `\u202e`.

    The result is printable, encodable as UTF-8, and one line unless `multiline`, which lets line feeds
    and tabs through and turns CR LF into a line feed.
    """
    if multiline:
        return _HIDDEN_IN_TEXT.sub(_visible, text.replace("\r\n", "\n"))
    return _HIDDEN.sub(_visible, text)


def safe_json(value: Any, *, indent: int | None = 2) -> str:
    """Return `value` as JSON that loses nothing and carries no control or direction character raw.

    Other scripts stay readable; what `safe_text` would write out becomes a JSON escape.
    """
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    return _HIDDEN_IN_TEXT.sub(_json_escape, text)


def clip(text: str, width: int) -> str:
    """Return at most `width` characters of `text`, with an ellipsis where it was cut."""
    return text if len(text) <= width else text[: max(width - 1, 0)].rstrip() + "…"


def _visible(match: re.Match[str]) -> str:
    character = match.group()
    code = ord(character)
    if code > 0xFF:
        return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
    return _NAMED.get(character) or f"\\x{code:02x}"


def _json_escape(match: re.Match[str]) -> str:
    return json.dumps(match.group())[1:-1] if match.group() != "\x7f" else "\\u007f"
