r"""Foreign text made fit to be shown: cut, and every character that is not visible text written out.

The one list of such characters, for terminals, logs, errors, models and scans: control characters, marks of direction,
tags, fillers and everything else without a glyph. Imports nothing of Toolweave.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import islice

_MAX_PRINTED = 10_000
_CONTROLS = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # but tab, line feed and carriage return
_FORMATS = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"  # soft hyphen, joiners and fillers without a glyph
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f"  # zero-width, bidirectional marks, embeddings and isolates
    "\u2028\u2029"  # line and paragraph separators
    "\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb"  # fillers, unused variation selectors, byte order mark
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"  # shorthand, music, tags, more selectors
)
_SURROGATES = "\ud800-\udfff"
_ASCII_HIDDEN = bytes((*range(9), 11, 12, *range(14, 32), 127))
JOINERS = "\u200c\u200d"
# Greedy up to the last fence: a text within the object may itself hold a code block.
_CODE_BLOCK = re.compile(r"\s*```[\w-]*\s*(\{.*\})\s*```\s*", re.DOTALL)
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def shortened(text: str, limit: int) -> str:
    """Cut a text to `limit` characters and append its full length; a shorter text is returned unchanged.

    Every message that quotes foreign text cuts it with this function.
    """
    if len(text) <= limit:
        return text
    return f"{text[:limit]}... ({len(text):,} characters in all)"


def without_code_block(text: str) -> str:
    """Return the JSON object in a text that is nothing but a code block around it; any other text as it is."""
    found = _CODE_BLOCK.fullmatch(text)
    if found is None:
        return text
    return found[1]


def printable(text: str) -> str:
    """Make foreign text safe for a log or a terminal: cut to 10,000 characters, hidden characters escaped.

    Every line after the first is indented, so that a server's text cannot pass for a log record.
    """
    text = visible(shortened(text, _MAX_PRINTED))
    if "\n" not in text:
        return text
    return "\n".join(_indented(text.split("\n")))


def counted(number: int, noun: str) -> str:
    """Return a number of things in words, such as `1 tool` and `2 tools`; for nouns whose plural has an `s`."""
    if number == 1:
        return f"{number} {noun}"
    return f"{number} {noun}s"


def alternatives(choices: Sequence[str]) -> str:
    """Return choices in words, such as `a, b or c`."""
    if len(choices) < 2:
        return "".join(choices)
    return f"{', '.join(choices[:-1])} or {choices[-1]}"


def with_sentence(text: str, sentence: str) -> str:
    """Return a message with another sentence behind it; a message ends without a full stop, unless it is a question."""
    if not sentence:
        return text
    if text.endswith("?"):
        return f"{text} {sentence}"
    return f"{text}. {sentence}"


def one_line(text: str, limit: int) -> str:
    """Make foreign text fit to be quoted within a line: white space joined, cut, hidden characters escaped."""
    return visible(shortened(" ".join(text.split()), limit), keep="")


def visible(text: str, *, keep: str = "\t\n") -> str:
    r"""Return `text` with every character that is not visible text written out, such as `\x1b` or `\u202e`.

    The result can be encoded as UTF-8. A joiner (U+200C, U+200D) stays where it stands between two letters of a script
    that writes with it, or between two parts of an emoji: there it is spelling.

    Args:
        text: Any text.
        keep: The characters among tab, line feed and carriage return that stay.
    """
    if is_plain(text, keep=keep):
        return text
    return replace_hidden(text, _written_out, keep=keep)


def is_plain(text: str, *, keep: str = "\t\n\r") -> bool:
    """Whether a text surely has no hidden character; quick, and false for some whose joiners are spelling."""
    if text.isascii() and keep == "\t\n\r":
        data = text.encode()
        # a tenth of what a pattern takes
        return len(data.translate(None, _ASCII_HIDDEN)) == len(data)
    return _pattern(keep).search(text) is None


def replace_hidden(text: str, replacement: Callable[[str], str], *, keep: str = "\t\n") -> str:
    """Return `text` with every hidden character replaced; see `visible`."""
    return _pattern(keep).sub(lambda found: found[0] if _is_spelling(found) else replacement(found[0]), text)


def hidden_joiners(text: str, limit: int) -> Iterator[str]:
    """Yield those of the first `limit` joiners that are no spelling where they stand."""
    joiners = islice(re.finditer(f"[{JOINERS}]", text), limit)
    yield from (found[0] for found in joiners if not _is_spelling(found))


@lru_cache(4_096)
def takes_joiner(char: str) -> bool:
    """Whether a character is a letter, a mark or a pictograph that is written with joiners."""
    import unicodedata  # hardly any text needs it

    joined = _joined().fullmatch(char) and is_plain(char)
    return bool(joined) and unicodedata.category(char)[0] in "LMS"


@cache
def _pattern(keep: str) -> re.Pattern[str]:
    controls = "".join(char for char in "\t\n\r" if char not in keep)
    return re.compile(f"[{_CONTROLS}{controls}{_FORMATS}{_SURROGATES}]")


@cache
def _joined() -> re.Pattern[str]:
    """Return the letters of the scripts that write with joiners (Arabic, Indic, their kin), and the parts of emoji."""
    return re.compile(
        "[\u0590-\u10ff\u1780-\u18af\u1a00-\u1cff\ua800-\uabff\ufb50-\ufdff\ufe70-\ufefc\U00010a00-\U00011fff"
        "\u2190-\u21ff\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\ufe0f\U0001f000-\U0001faff]"
    )


def _is_spelling(found: re.Match[str]) -> bool:
    """Whether a joiner is between two characters that it joins."""
    text = found.string
    place = found.start()
    if text[place] not in JOINERS or not 0 < place < len(text) - 1:
        return False
    return takes_joiner(text[place - 1]) and takes_joiner(text[place + 1])


def _written_out(char: str) -> str:
    code = ord(char)
    if code > 0xFF:
        if code <= 0xFFFF:
            return f"\\u{code:04x}"
        return f"\\U{code:08x}"
    return _NAMED.get(char) or f"\\x{code:02x}"


def _indented(lines: list[str]) -> list[str]:
    return [lines[0], *(line if line.startswith("  ") or not line else f"  {line}" for line in lines[1:])]
