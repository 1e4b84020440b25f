"""Diagrams of the documentation: SVG drawn from the text files in docs/diagrams, readable on light and dark pages.

The first line of a file is its title. `box NAME COLUMN ROW KIND | LABEL | SECOND LINE` places a box on a grid, and
`arrow FROM TO | LABEL` or `dashed FROM TO | LABEL` connects two of them. `lane NAME KIND | LABEL` and
`step FROM TO | LABEL` make a sequence instead. Boxes are filled and arrows are mid-grey, so that one picture is
legible on both backgrounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

__all__ = ["DIAGRAMS", "diagrams", "draw"]

DIAGRAMS = Path(__file__).parents[2] / "docs" / "diagrams"
IMAGES = DIAGRAMS.parent / "images"
COLUMN, ROW, MARGIN = 176, 104, 8
WIDTH, HEIGHT = 168, 52
LANE, STEP = 212, 40
FILLS = {"own": "#57606a", "ours": "#0072b2", "server": "#2f7d4f", "file": "#8a5a00", "failed": "#a8412c"}
LINE = "#7d8590"
STYLE = (
    "text{font:14px system-ui,'Segoe UI',Helvetica,Arial,sans-serif;text-anchor:middle}"
    f".box{{fill:#fff;font-weight:600}}.more{{fill:#fff;font-size:12px}}.label{{fill:{LINE};font-size:12px}}"
    f"line{{stroke:{LINE};stroke-width:1.5}}.dashed{{stroke-dasharray:5 4}}path{{fill:{LINE}}}"
)


class Box(NamedTuple):
    """A filled rectangle by its centre."""

    x: float
    y: float
    kind: str
    lines: tuple[str, ...]

    def svg(self) -> str:
        """Return the rectangle with its one or two lines of text."""
        left, top = self.x - WIDTH / 2, self.y - HEIGHT / 2
        parts = [f'<rect x="{left:g}" y="{top:g}" width="{WIDTH}" height="{HEIGHT}" rx="7" fill="{FILLS[self.kind]}"/>']
        baselines = (5,) if len(self.lines) == 1 else (-3, 15)
        for baseline, look, text in zip(baselines, ("box", "more"), self.lines, strict=False):
            parts.append(f'<text class="{look}" x="{self.x:g}" y="{self.y + baseline:g}">{escape(text)}</text>')
        return "".join(parts)

    def edge(self, x: float, y: float) -> tuple[float, float]:
        """Return the point of the border on the way to another centre."""
        across, down = x - self.x, y - self.y
        share = min(
            WIDTH / 2 / abs(across) if across else float("inf"),
            HEIGHT / 2 / abs(down) if down else float("inf"),
        )
        return self.x + across * share, self.y + down * share


def draw(source: str) -> str:
    """Return the picture that a text describes."""
    title, *lines = [line for line in source.splitlines() if line.strip()]
    entries = [_entry(line) for line in lines]
    if any(words[0] == "lane" for words, _ in entries):
        width, height, parts = _sequence(entries)
    else:
        width, height, parts = _grid(entries)
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n"
        f"{body}\n</svg>\n"
    )


def _entry(line: str) -> tuple[list[str], list[str]]:
    head, *labels = line.split("|")
    return head.split(), [label.strip() for label in labels if label.strip()]


def _grid(entries: list[tuple[list[str], list[str]]]) -> tuple[float, float, list[str]]:
    """Draw boxes on a grid and the arrows between them."""
    boxes: dict[str, Box] = {}
    arrows: list[str] = []
    for (kind, *words), labels in entries:
        if kind == "box":
            name, column, row, fill = words
            x = MARGIN + WIDTH / 2 + float(column) * COLUMN
            y = MARGIN + HEIGHT / 2 + float(row) * ROW
            boxes[name] = Box(x, y, fill, tuple(labels))
        else:
            start, end = boxes[words[0]], boxes[words[1]]
            arrows.append(_arrow(start.edge(end.x, end.y), end.edge(start.x, start.y), kind, "".join(labels)))
    width = max(box.x for box in boxes.values()) + WIDTH / 2 + MARGIN
    height = max(box.y for box in boxes.values()) + HEIGHT / 2 + MARGIN
    return width, height, [*arrows, *(box.svg() for box in boxes.values())]


def _sequence(entries: list[tuple[list[str], list[str]]]) -> tuple[float, float, list[str]]:
    """Draw a lane for each party and the steps from the top to the bottom."""
    lanes: dict[str, Box] = {}
    steps: list[str] = []
    y = MARGIN + HEIGHT + STEP
    for (kind, *words), labels in entries:
        if kind == "lane":
            x = MARGIN + WIDTH / 2 + len(lanes) * LANE
            lanes[words[0]] = Box(x, MARGIN + HEIGHT / 2, words[1], tuple(labels))
        else:
            start, end = lanes[words[0]].x, lanes[words[1]].x
            steps.append(_arrow((start, y), (end, y), kind, "".join(labels)))
            y += STEP
    width = MARGIN + WIDTH + (len(lanes) - 1) * LANE + MARGIN
    lines = list(_lifelines(lanes, y - STEP / 2))
    return width, y, [*lines, *steps, *(box.svg() for box in lanes.values())]


def _lifelines(lanes: dict[str, Box], bottom: float) -> Iterator[str]:
    for lane in lanes.values():
        yield f'<line class="dashed" x1="{lane.x:g}" y1="{MARGIN + HEIGHT}" x2="{lane.x:g}" y2="{bottom:g}"/>'


def _arrow(start: tuple[float, float], end: tuple[float, float], kind: str, label: str) -> str:
    look = ' class="dashed"' if kind == "dashed" else ""
    angle = math.degrees(math.atan2(end[1] - start[1], end[0] - start[0]))
    line = (
        f'<line{look} x1="{start[0]:g}" y1="{start[1]:g}" x2="{end[0]:g}" y2="{end[1]:g}"/>'
        f'<path d="M-9 -5L0 0L-9 5z" transform="translate({end[0]:g},{end[1]:g}) rotate({angle:g})"/>'
    )
    if not label:
        return line
    x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
    place, shift = _beside(end[0] - start[0], end[1] - start[1])
    text = f'x="{x + shift[0]:g}" y="{y + shift[1]:g}" style="text-anchor:{place}"'
    return f'{line}<text class="label" {text}>{escape(label)}</text>'


def _beside(across: float, down: float) -> tuple[str, tuple[float, float]]:
    """Return how a label is anchored and moved so that it does not cross a line of this direction."""
    if down == 0:
        return "middle", (0, -6)
    if across == 0:
        return "start", (8, 4)
    rises_to_the_right = across * down < 0
    return ("end", (-4, -4)) if rises_to_the_right else ("start", (4, -4))


def diagrams() -> dict[Path, str]:
    """Return the pictures by their paths, as the texts describe them."""
    return {IMAGES / f"{text.stem}.svg": draw(text.read_text(encoding="utf-8")) for text in DIAGRAMS.glob("*.txt")}
