"""Line charts with two logarithmic axes, as SVG that is readable on light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Panel", "picture"]

WIDTH, HEIGHT, MARGIN, TOP = 380, 260, 56, 60
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
DASHES = ("", "6 3", "2 3", "8 3 2 3")
STYLE = "text{font:12px sans-serif;fill:#57606a}path,line{fill:none}.grid{stroke:#8c959f;stroke-width:.4}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One chart.

    Attributes:
        title: The title of its horizontal axis.
        lines: Points by the name of their line.
    """

    title: str
    lines: Mapping[str, Sequence[tuple[float, float]]]


def decades(values: Sequence[float]) -> range:
    """Return the powers of ten around values."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return range(low, max(high, low + 1) + 1)


def chart(panel: Panel, left: float, vertical: range) -> str:
    """Return one chart, whose left edge is here."""
    across = decades([x for points in panel.lines.values() for x, _ in points])
    bottom = TOP + HEIGHT

    def place(x: float, y: float) -> tuple[float, float]:
        right = (math.log10(x) - across[0]) / (across[-1] - across[0])
        up = (math.log10(y) - vertical[0]) / (vertical[-1] - vertical[0])
        return left + right * WIDTH, bottom - up * HEIGHT

    parts: list[str] = []
    for power in across:
        x, _ = place(10**power, 10 ** vertical[0])
        parts.append(f'<line class="grid" x1="{x:.0f}" y1="{TOP}" x2="{x:.0f}" y2="{bottom}"/>')
        parts.append(f'<text x="{x:.0f}" y="{bottom + 18}" text-anchor="middle">{10**power:,g}</text>')
    for power in vertical:
        _, y = place(10 ** across[0], 10**power)
        parts.append(f'<line class="grid" x1="{left}" y1="{y:.0f}" x2="{left + WIDTH}" y2="{y:.0f}"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.0f}" text-anchor="end">{10.0**power:g}</text>')
    for number, points in enumerate(panel.lines.values()):
        path = " L".join("{:.1f} {:.1f}".format(*place(x, y)) for x, y in points)
        stroke = f'stroke="{COLOURS[number]}" stroke-width="2" stroke-dasharray="{DASHES[number]}"'
        parts.append(f'<path d="M{path}" {stroke}/>')
    middle = left + WIDTH / 2
    parts.append(f'<text x="{middle:.0f}" y="{bottom + 38}" text-anchor="middle">{escape(panel.title)}</text>')
    return "".join(parts)


def picture(title: str, panels: Sequence[Panel]) -> str:
    """Return charts beside each other, with one legend and one vertical axis for all."""
    heights = decades([y for panel in panels for points in panel.lines.values() for _, y in points])
    width, height = len(panels) * (WIDTH + MARGIN) + MARGIN / 2, TOP + HEIGHT + 50
    parts = [f'<text x="{MARGIN}" y="20" font-weight="bold">{escape(title)}</text>']
    for number, name in enumerate(panels[0].lines):
        x = MARGIN + number * 190
        stroke = f'stroke="{COLOURS[number]}" stroke-width="2" stroke-dasharray="{DASHES[number]}"'
        parts.append(f'<line x1="{x}" y1="38" x2="{x + 30}" y2="38" {stroke}/><text x="{x + 36}" y="42">{name}</text>')
    parts += [chart(panel, MARGIN + number * (WIDTH + MARGIN), heights) for number, panel in enumerate(panels)]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img">'
    return f"{head}<title>{escape(title)}</title><style>{STYLE}</style>{''.join(parts)}</svg>\n"
