"""What can be said of the page on conformance without the suite, which only continuous integration installs."""

from __future__ import annotations

import pytest

from tests.conformance.page import CLIENT, GATEWAY, GATEWAY_OF_OTHERS, INTRODUCTION, OTHERS, PAGE, SERVER


@pytest.mark.parametrize(
    "text",
    [INTRODUCTION, SERVER, GATEWAY, GATEWAY_OF_OTHERS, OTHERS, CLIENT],
    ids=["introduction", "server", "gateway", "other servers", "other clients", "client"],
)
def test_the_page_has_the_words_that_its_script_writes(text: str) -> None:
    assert text in PAGE.read_text(encoding="utf-8"), "edit tests/conformance/page.py and the page alike"
