"""Escaping of server texts for a terminal: invisible characters are made visible.

The only module that decides which characters reach a terminal.
Knows nothing of views.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

__all__ = ["SafeStream", "clip", "safe_json", "safe_text"]

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
_JOINERS = "\u200c\u200d"
_JOINED = re.compile(
    "[\u0590-\u10ff\u1780-\u18af\u1a00-\u1cff\ua800-\uabff\ufb50-\ufdff\ufe70-\ufefc\U00010a00-\U00011fff"
    "\u2190-\u21ff\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\ufe0f\U0001f000-\U0001faff]"
)
"""Letters of the scripts that write with joiners (Arabic, Indic and their kin), and the parts of emoji."""
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def safe_text(text: str, *, multiline: bool = False) -> str:
    r"""Return `text` with every character that is no visible text written out, such as `\x1b` or `\u202e`.

    The result is printable, encodable as UTF-8, and one line unless `multiline`, which lets line feeds
    and tabs through and turns CR LF into a line feed. A joiner (U+200C, U+200D) stays where it stands between two
    letters of a script that writes with it, or between two parts of an emoji: there it is spelling.
    """
    if multiline:
        return _HIDDEN_IN_TEXT.sub(_visible, text.replace("\r\n", "\n"))
    return _HIDDEN.sub(_visible, text)


def safe_json(value: Any, *, indent: int | None = 2, ascii_only: bool = False) -> str:
    """Return `value` as JSON that loses nothing and carries no control or direction character raw.

    Other scripts stay readable unless `ascii_only`; what `safe_text` would write out becomes a JSON escape.
    """
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent, default=str)
    return _HIDDEN_IN_TEXT.sub(_json_escape, text)


class SafeStream:
    """Escapes a text that is streamed in pieces, so that a joiner at the edge of a piece keeps its neighbours."""

    def __init__(self) -> None:
        self._before = ""
        self._held = ""

    def feed(self, text: str) -> str:
        """Return the part of the text so far that can be shown; a joiner at its end waits for the next character."""
        raw = self._held + text
        shown = raw.rstrip(_JOINERS)
        self._held = raw[len(shown) :]
        safe = safe_text(self._before + shown, multiline=True)[len(self._before) :]
        if shown:
            self._before = shown[-1] if _is_joined(shown[-1]) else ""
        return safe

    def end(self) -> str:
        """Return the rest; the next piece begins another text."""
        held, self._held, self._before = self._held, "", ""
        return safe_text(held)


def clip(text: str, width: int) -> str:
    """Return at most `width` characters of `text`, with an ellipsis where it was cut."""
    return text if len(text) <= width else text[: max(width - 1, 0)].rstrip() + "…"


def _visible(match: re.Match[str]) -> str:
    character = match.group()
    if _is_spelling(match):
        return character
    code = ord(character)
    if code > 0xFF:
        return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
    return _NAMED.get(character) or f"\\x{code:02x}"


def _is_spelling(match: re.Match[str]) -> bool:
    """Return whether a joiner is between two characters that it joins."""
    text, place = match.string, match.start()
    if text[place] not in _JOINERS or not 0 < place < len(text) - 1:
        return False
    return _is_joined(text[place - 1]) and _is_joined(text[place + 1])


def _is_joined(char: str) -> bool:
    """Return whether a character is a letter, a mark or a pictograph that takes joiners."""
    joined = _JOINED.fullmatch(char) and not _HIDDEN.search(char)
    return bool(joined) and unicodedata.category(char)[0] in "LMS"


def _json_escape(match: re.Match[str]) -> str:
    if _is_spelling(match):
        return match.group()
    return json.dumps(match.group())[1:-1] if match.group() != "\x7f" else "\\u007f"
