"""What may reach a terminal: every character a person cannot see is written out."""

from __future__ import annotations

import itertools
import json
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolweave.cli._render.text import SafeStream, clip, safe_json, safe_text

ANY_TEXT = st.text(st.characters())  # lone surrogates included
VISIBLE_FORMATS = "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
"""Format characters with a glyph of their own."""


JOINERS = "\u200c\u200d"


def is_spelling(text: str, place: int) -> bool:
    """Whether a joiner stands between two characters that are seen, of a script or an emoji that is written with it."""
    around = text[place - 1 : place] + text[place + 1 : place + 2]
    kinds = {unicodedata.category(character)[0] for character in around}
    return len(around) == 2 and not around.isascii() and kinds <= {"L", "M", "S"}


def hidden(text: str, allowed: str = "") -> list[str]:
    return [
        character
        for place, character in enumerate(text)
        if character not in allowed
        and not (character in JOINERS and is_spelling(text, place))
        and (
            unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"}
            or unicodedata.bidirectional(character) in {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
            or "\u200b" <= character <= "\u200f"
            or "\U000e0000" <= character <= "\U000e0fff"
        )
    ]


@pytest.mark.slow
@given(ANY_TEXT)
@example("\x1b]0;owned\x07\u202e\u200b\U000e0041\x9b31m\r\n\t")
def test_safe_text_is_one_line_without_a_hidden_character(text: str) -> None:
    safe = safe_text(text)

    assert hidden(safe) == []
    assert safe.splitlines() in ([safe], [])
    safe.encode("utf-8")


@given(ANY_TEXT)
def test_multiline_safe_text_lets_only_line_feeds_and_tabs_through(text: str) -> None:
    assert hidden(safe_text(text, multiline=True), "\n\t") == []


@given(ANY_TEXT)
def test_safe_text_twice_is_safe_text_once(text: str) -> None:
    assert safe_text(safe_text(text)) == safe_text(text)


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"], max_codepoint=0x2FFF)))
def test_visible_text_stays_as_it_is(text: str) -> None:
    text = "".join(c for c in text if c not in "\u115f\u1160\u17b4\u17b5\u2065")

    assert safe_text(text) == text


def test_every_format_character_without_a_glyph_is_written_out() -> None:
    formats = {chr(number) for number in range(0x110000) if unicodedata.category(chr(number)) == "Cf"}
    shown = {one for one in formats if one in VISIBLE_FORMATS or "\U00013430" <= one <= "\U0001343f"}

    assert len(formats) > 150
    assert {one for one in formats if safe_text(one) == one} == shown


@pytest.mark.parametrize(
    "text, shown",
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nb", "a\\nb"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\U000e0041", "\\U000e0041"),
        ("\x9b", "\\x9b"),
        ("\ud800", "\\ud800"),
        ("❤️ Grüße 日本語 שלום", "❤️ Grüße 日本語 שלום"),
    ],
)
def test_a_hidden_character_is_written_as_its_escape(text: str, shown: str) -> None:
    assert safe_text(text) == shown


def test_windows_line_ends_become_line_feeds() -> None:
    assert safe_text("a\r\nb\rc", multiline=True) == "a\nb\\rc"


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ANY_TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner),
    max_leaves=10,
)


@pytest.mark.slow
@given(JSON_VALUES)
@example({"\x7f\x9b": "\u202e\U000e0041\ud800 é"})
def test_safe_json_loses_nothing_and_hides_nothing(value: object) -> None:
    text = safe_json(value)

    assert json.loads(text) == value
    assert hidden(text, "\n") == []


def test_safe_json_leaves_other_scripts_readable() -> None:
    assert safe_json("日本語 é") == '"日本語 é"'


def test_clipped_text_ends_in_an_ellipsis() -> None:
    assert (clip("abcdef", 4), clip("abcd", 4)) == ("abc…", "abcd")


SPELLED = [
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian, with a non-joiner
    "\u0915\u094d\u200d\u0937",  # Devanagari, with a joiner
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",  # a family
    "\u2764\ufe0f\u200d\U0001f525",  # a heart on fire
    "\U0001f3f4\u200d\u2620\ufe0f",  # a flag
]


@pytest.mark.parametrize("text", SPELLED)
def test_a_joiner_that_spells_a_word_or_an_emoji_stays(text: str) -> None:
    assert safe_text(text) == text
    assert json.loads(safe_json(text)) == text
    assert text in safe_json(text)


@pytest.mark.parametrize(
    "text",
    [
        *("a\u200db", "\u200d\u0645", "\u0645\u200c", "\u0645\u200c\u200c\u062e", "x\u200c\u0645", "\u0645\u200d "),
        *("\u0645\u200e\u062e", "\u0645\u202e\u062e", "\u061c\u200d\u0645", "\u0645\u200b\u062e"),
    ],
)
def test_a_joiner_that_joins_nothing_and_every_other_mark_is_written_out(text: str) -> None:
    assert "\\u" in safe_text(text)
    assert hidden(safe_text(text)) == []


@given(st.sampled_from(SPELLED) | ANY_TEXT, st.lists(st.integers(0, 12), max_size=4))
def test_a_text_that_comes_in_pieces_is_as_safe_as_the_whole(text: str, cuts: list[int]) -> None:
    stream = SafeStream()
    places = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    pieces = [text[start:end] for start, end in itertools.pairwise(places)]

    shown = "".join([*map(stream.feed, pieces), stream.end()])

    assert hidden(shown, "\n\t") == []
    if text in SPELLED:
        assert shown == text
