"""The chart of the README: bars from the table of ratios in docs/performance.md, readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path

__all__ = ["CHART", "chart", "redraw"]

CHECKOUT = Path(__file__).parents[1]
CHART = CHECKOUT / "docs" / "images" / "performance.svg"
SECTION = "### CPU of the client per call, in units of raw\n"
CASES = {"stdio, 100 B, 16 callers": "over stdio", "http, 100 B, 16 callers": "over HTTP"}
CLIENTS = {
    "toolweave": "Toolweave",
    "sdk": "MCP SDK",
    "fastmcp": "FastMCP",
    "pydantic-ai": "Pydantic AI",
    "langchain": "LangChain adapters",
}
TITLE = "CPU of a client per call, 16 callers, in multiples of a client written by hand"
WIDTH, LABELS, BAR, GAP, TOP = 760, 150, 18, 8, 44
STYLE = "text{font:13px sans-serif;fill:#6e7781}.head{font-weight:bold}.ours{fill:#0072b2}.theirs{fill:#8c959f}"


def ratios(page: str) -> dict[str, dict[str, float]]:
    """Return the figures of the section by case and client; one that was not measured is left out."""
    lines = page.split(SECTION)[1].split("\n### ", maxsplit=1)[0].strip().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    names = rows[0]
    return {
        row[0]: {name: float(cell) for name, cell in zip(names[1:], row[1:], strict=True) if cell} for row in rows[2:]
    }


def group(top: float, title: str, figures: Mapping[str, float], longest: float) -> str:
    """Return the bars of one case, whose upper edge is at `top`."""
    parts = [f'<text x="0" y="{top - 8:g}" class="head">{escape(title)}</text>']
    for at, (client, figure) in enumerate(figures.items()):
        y = top + at * (BAR + GAP)
        width = max(figure / longest * (WIDTH - LABELS - 60), 1)
        look = "ours" if client == "toolweave" else "theirs"
        parts.append(f'<text x="{LABELS - 10}" y="{y + 14:g}" text-anchor="end">{escape(CLIENTS[client])}</text>')
        parts.append(f'<rect class="{look}" x="{LABELS}" y="{y:g}" width="{width:.1f}" height="{BAR}" rx="2"/>')
        parts.append(f'<text x="{LABELS + width + 8:.1f}" y="{y + 14:g}">{figure:.1f}</text>')
    return "".join(parts)


def chart(page: str) -> str:
    """Return the chart of a page's figures."""
    found = ratios(page)
    groups = [
        (title, {name: found[case][name] for name in CLIENTS if name in found[case]}) for case, title in CASES.items()
    ]
    longest = max(figure for _, figures in groups for figure in figures.values())
    parts = [f'<text x="0" y="16" class="head">{escape(TITLE)}</text>']
    top = TOP + 14.0
    for title, figures in groups:
        parts.append(group(top, title, figures, longest))
        top += len(figures) * (BAR + GAP) + 34
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top - 30:g}" width="{WIDTH}" role="img">'
    return f"{head}\n<title>{escape(TITLE)}</title>\n<style>{STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n"


def redraw() -> None:
    """Draw the chart anew from the page as it is."""
    page = (CHECKOUT / "docs" / "performance.md").read_text(encoding="utf-8")
    CHART.write_text(chart(page), encoding="utf-8")


if __name__ == "__main__":
    redraw()
