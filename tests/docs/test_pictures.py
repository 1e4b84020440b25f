"""The pictures of the documentation show what the terminal shows today."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from benchmarks.bars import CHART, chart
from tests.docs.diagrams import DIAGRAMS, diagrams, draw
from tests.docs.drawing import Screen, masked, picture, recording
from tests.docs.pages import CHECKOUT, pages
from tests.docs.pictures import IMAGES, pictures

MOST_BYTES = 150_000
MAX_BYTES_OF_A_PAGE = 60_000
SHOWN = re.compile(r"!\[(?P<alt>[^\]]*)\]\((?P<path>[^)\s]+)\)")


def readable(svg: str) -> str:
    """Return a picture as it can be compared line by line, what differs from time to time left out."""
    return masked(svg).replace("><", ">\n<")


@pytest.mark.slow
def test_the_pictures_show_what_the_terminal_shows() -> None:
    taken: Mapping[str, str] = anyio.run(pictures)
    drawn = {CHART, IMAGES / "gateway-growth.svg", *diagrams()}  # made of figures and of texts
    kept = {path.name: path.read_text(encoding="utf-8") for path in IMAGES.glob("*.svg") if path not in drawn}

    assert taken.keys() == kept.keys(), "run scripts/pictures"
    for name, svg in taken.items():
        assert readable(svg) == readable(kept[name]), f"run scripts/pictures: {name} is out of date"


def test_the_chart_shows_the_figures_of_the_page() -> None:
    page = (CHECKOUT / "docs" / "performance.md").read_text(encoding="utf-8")
    drawn = chart(page)

    assert CHART.read_text(encoding="utf-8") == drawn, "run scripts/docs"
    alt = next(
        match["alt"]
        for match in SHOWN.finditer((CHECKOUT / "README.md").read_text("utf-8"))
        if CHART.name in match["path"]
    )
    assert re.findall(r"\d+\.\d", alt) == re.findall(r">(\d+\.\d)<", drawn), (
        "the words for the chart in README.md say others"
    )


def test_every_diagram_is_what_its_text_describes() -> None:
    assert {path.stem for path in diagrams()} == {text.stem for text in DIAGRAMS.iterdir()}
    for path, svg in diagrams().items():
        assert path.read_text(encoding="utf-8") == svg, "run scripts/docs"


def test_a_diagram_has_each_box_and_label_once_and_arrows_that_end_at_the_boxes() -> None:
    svg = draw("A title\nbox a 0 0 own | one & two\nbox b 2 0 ours | three\narrow a b | calls\n")

    root = ET.fromstring(svg)
    texts = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
    (line,) = root.iter("{http://www.w3.org/2000/svg}line")
    assert sorted(text or "" for text in texts) == ["calls", "one & two", "three"]
    assert (line.get("x1"), line.get("x2")) == ("176", "360")
    assert root.findtext("{http://www.w3.org/2000/svg}title") == "A title"


def test_pictures_are_small_and_ask_no_host_for_anything() -> None:
    for path in IMAGES.glob("*.svg"):
        text = path.read_text(encoding="utf-8")
        root = ET.fromstring(text)
        assert len(text.encode()) < MOST_BYTES
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert re.findall(r"https?://[^\s\"']+", text) == ["http://www.w3.org/2000/svg"], path.name
        assert not re.search(r"url\(|@import|<script|<image|/home/|/tmp/|/work/", text), path.name


def test_pictures_of_pages_are_small_and_a_test_takes_them() -> None:
    tests = (CHECKOUT / "tests" / "browser").glob("test_*.py")
    source = "".join(one.read_text(encoding="utf-8") for one in tests)
    for path in (*IMAGES.glob("*.png"), *IMAGES.glob("*.webp")):
        assert path.stat().st_size <= (MAX_BYTES_OF_A_PAGE if path.suffix == ".webp" else MOST_BYTES), path.name
        assert path.read_bytes()[:4] == (b"RIFF" if path.suffix == ".webp" else b"\x89PNG")
        assert re.sub(r"(-phone)?-(light|dark)$", "", path.stem) in source, path.name


def test_every_picture_is_shown_somewhere_with_words_for_those_who_cannot_see_it() -> None:
    shown: set[Any] = set()
    for page in pages():
        for match in SHOWN.finditer(page.read_text(encoding="utf-8")):
            if not match["path"].startswith("http"):
                assert len(match["alt"].split()) > 3, f"{page.name}: {match['path']}"
                shown.add((page.parent / match["path"]).resolve())

    assert shown == {path for path in IMAGES.iterdir() if path.suffix in {".svg", ".png", ".webp"}}
    assert IMAGES.is_relative_to(CHECKOUT)


def test_a_picture_keeps_the_text_its_place_and_its_look() -> None:
    svg = picture(Screen("plain\x1b[1;31m red\x1b[0m\n\n   <&> ✓ 日本\n\n", (3, 3)), title="a <title>", columns=20)

    root = ET.fromstring(svg)
    texts = [one for one in root.iter("{http://www.w3.org/2000/svg}text") if one.get("class") != "title"]
    assert [(one.text, one.get("x")) for one in texts] == [("plain", "14"), ("red", "64.4"), ("<&> ✓ 日本", "39.2")]
    assert [one.get("textLength") for one in texts] == ["42", "25.2", "84"]
    assert "font-weight:bold" in svg
    assert len({one.get("class") for one in texts}) == 2
    assert root.findtext("{http://www.w3.org/2000/svg}title") == "a <title>"
    assert svg.count('class="cursor"') == 1


def test_a_recording_holds_each_line_once_and_shows_the_end_where_nothing_plays() -> None:
    screens = [(Screen("same"), 1.0), (Screen("same\nmore"), 3.0)]

    svg = recording(screens, title="t", columns=10)

    assert svg.count(">same<") == 1
    assert "0.000%{transform:translate(0px,0)}25.000%{transform:translate(-112px,0)}" in svg
    assert '<g class="reel" transform="translate(-112,0)">' in svg
    assert "prefers-reduced-motion" in svg


def test_a_time_and_a_turning_spinner_make_no_new_picture() -> None:
    def shot(text: str) -> str:
        return masked(picture(Screen(text), title="t", columns=20))

    assert shot("⠋ run\nok  1.0 s") == shot("⠹ run\nok  12.5 s")
    assert shot("⠋ run\nok  1.0 s") != shot("⠋ run\nno  1.0 s")
    assert shot("\x1b[31mred") != shot("\x1b[32mred")
