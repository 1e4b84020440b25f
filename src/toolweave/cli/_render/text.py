"""Escaping of server texts for a terminal: invisible characters are made visible.

The only module that puts text in a terminal's form; which characters are hidden, `toolweave._text` decides. Knows
nothing of views.
"""

from __future__ import annotations

import json
from typing import Any

from toolweave._text import replace_hidden, takes_joiner, visible

_JOINERS = "\u200c\u200d"


def safe_text(text: str, *, multiline: bool = False) -> str:
    r"""Return `text` with every character that is not visible text written out, such as `\x1b` or `\u202e`.

    The result is printable, encodable as UTF-8, and one line unless `multiline`, which lets line feeds
    and tabs through and turns CR LF into a line feed; see `visible`.
    """
    if multiline:
        return visible(text.replace("\r\n", "\n"))
    return visible(text, keep="")


def safe_json(value: Any, *, indent: int | None = 2, ascii_only: bool = False) -> str:
    """Return `value` as JSON that loses nothing and carries no control or direction character raw.

    Other scripts stay readable unless `ascii_only`; what `safe_text` would write out becomes a JSON escape.
    """
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent, default=str)
    return replace_hidden(text, _json_escape)


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
            self._before = shown[-1] if takes_joiner(shown[-1]) else ""
        return safe

    def end(self) -> str:
        """Return the rest; the next piece begins another text."""
        held = self._held
        self._held = ""
        self._before = ""
        return safe_text(held)


def clip(text: str, width: int) -> str:
    """Return at most `width` characters of `text`, with an ellipsis where it was cut."""
    if len(text) <= width:
        return text
    return text[: max(width - 1, 0)].rstrip() + "…"


def _json_escape(char: str) -> str:
    if char != "\x7f":
        return json.dumps(char)[1:-1]
    return "\\u007f"
