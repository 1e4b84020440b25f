"""Docstrings in the three usual styles, and what is made of sloppy ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolweave.schema._docstring import parse_docstring

GOOGLE = """Find files.

    Looks in every folder.

    Args:
        path: Where to start,
            as a URI.
        depth (int, optional): How deep: 0 is here.
        pattern (Callable[[str], bool]): What to match.
        *names: Other names.

    Returns:
        The files.

    Raises:
        OSError: No such folder.

    Example:
        find("/")
    """

NUMPY = """Find files.

    Parameters
    ----------
    path : str
        Where to start,
        as a URI.
    depth, pattern : int, optional
        Two at once.

    Returns
    -------
    list
        The files.

    Notes
    -----
    Slow.
    """

SPHINX = """Find files.

    :param path: Where to start,
        as a URI.
    :type path: str
    :param int depth: How deep.
    :returns: The files.
    :raises OSError: No such folder.
    """


def test_google_style() -> None:
    found = parse_docstring(GOOGLE)

    assert found.parameters == {
        "path": "Where to start, as a URI.",
        "depth": "How deep: 0 is here.",
        "pattern": "What to match.",
        "names": "Other names.",
    }
    assert found.description == 'Find files.\n\nLooks in every folder.\n\nExample:\n    find("/")'


def test_numpy_style() -> None:
    found = parse_docstring(NUMPY)

    assert found.parameters == {
        "path": "Where to start, as a URI.",
        "depth": "Two at once.",
        "pattern": "Two at once.",
    }
    assert found.description == "Find files.\n\nNotes\n-----\nSlow."


def test_sphinx_style() -> None:
    found = parse_docstring(SPHINX)

    assert found.parameters == {"path": "Where to start, as a URI.", "depth": "How deep."}
    assert found.description == "Find files."


@pytest.mark.parametrize("text", [None, "", "   \n  "])
def test_no_docstring_says_nothing(text: str | None) -> None:
    found = parse_docstring(text)

    assert found.description == ""
    assert found.parameters == {}


def test_prose_that_only_looks_like_a_section_stays() -> None:
    text = "Return:\nwhat it says on the tin.\n\nParameters: see the manual.\n\nArgs:\nnone really"

    assert parse_docstring(text).description == text


def test_a_parameter_without_a_text_and_odd_lines_are_skipped() -> None:
    found = parse_docstring("F.\n\nArgs:\n    a:\n    just words\n        more words\n    b: Text.\n")

    assert found.parameters == {"b": "Text."}


def test_text_after_an_unindented_line_is_description_again() -> None:
    found = parse_docstring("F.\n\nArgs:\n    a: Text.\n\nAnd so on.")

    assert found.description == "F.\n\nAnd so on."


@pytest.mark.slow
@given(st.text(alphabet="a:-\n ()*ArgsReturns", max_size=200))
def test_no_docstring_is_too_odd_to_read(text: str) -> None:
    parse_docstring(text)
