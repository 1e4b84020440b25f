"""Screens of a terminal as pictures: an SVG of one, and one that plays several. Pure; looks at no terminal.

A picture has no font, script or style but its own, names no machine, and says when nothing but a time has changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from io import StringIO
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import SVG_EXPORT_THEME as THEME
from rich.text import Text

__all__ = ["Screen", "masked", "picture", "recording"]

COLUMN, LINE, SIZE = 8.4, 19, 14
MARGIN, BAR = 14, 34
_FONTS = "ui-monospace, SFMono-Regular, Menlo, 'DejaVu Sans Mono', Consolas, 'Liberation Mono', monospace"
_TITLE_FONTS = "system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"
_CURSOR = '<rect class="cursor" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"/>'


class Screen(NamedTuple):
    """What a terminal shows, with its escape sequences; where the cursor is, or None where it is hidden."""

    text: str
    cursor: tuple[int, int] | None = None

    @property
    def plain(self) -> str:
        """The text alone, as far as it goes."""
        return "\n".join(Text.from_ansi(line).plain.rstrip() for line in self.text.splitlines()).rstrip()

    def since(self, line: str) -> Screen:
        """Return the screen from a line on."""
        lines = self.text.splitlines()
        first = next(number for number, one in enumerate(lines) if Text.from_ansi(one).plain.rstrip() == line)
        cursor = self.cursor and (self.cursor[0], self.cursor[1] - first)
        return Screen("\n".join(lines[first:]), cursor)


def picture(screen: Screen, *, title: str, columns: int) -> str:
    """Return a picture of a screen."""
    drawing = _Drawing(columns)
    lines = drawing.lines(screen)
    return drawing.framed(title, len(lines), [f'<g transform="translate(0,{y * LINE})">{x}</g>' for y, x in lines], "")


def recording(screens: Sequence[tuple[Screen, float]], *, title: str, columns: int) -> str:
    """Return a picture that plays screens, each for so many seconds, again and again.

    Where nothing plays, or a reader wants no motion, the last one is seen.
    """
    drawing = _Drawing(columns)
    shots = [drawing.lines(screen) for screen, _ in screens]
    width = columns * COLUMN + 2 * MARGIN
    names: dict[str, str] = {}
    strip: list[str] = []
    for number, lines in enumerate(shots):
        uses = [f'<use href="#{names.setdefault(line, f"l{len(names)}")}" y="{y * LINE}"/>' for y, line in lines]
        strip.append(f'<g transform="translate({number * width:g},0)">{"".join(uses)}</g>')
    whole = sum(seconds for _, seconds in screens)
    begun, steps = 0.0, list[str]()
    for number, (_, seconds) in enumerate(screens):
        steps.append(f"{begun / whole:.3%}{{transform:translate({-number * width:g}px,0)}}")
        begun += seconds
    style = (
        f"@keyframes play{{{''.join(steps)}}}.reel{{animation:play {whole:g}s step-end infinite}}"
        "@media(prefers-reduced-motion:reduce){.reel{animation:none}}"
    )
    defined = "\n".join(f'<g id="{name}">{line}</g>' for line, name in names.items())
    last = (1 - len(shots)) * width
    reel = f'<g class="reel" transform="translate({last:g},0)">\n{chr(10).join(strip)}\n</g>'
    return drawing.framed(title, max(map(len, shots)), [f"<defs>\n{defined}\n</defs>", reel], style)


def masked(svg: str) -> str:
    """Return a picture without what differs from time to time: how long a call took, and how far a spinner turned."""
    svg = re.sub(r' textLength="[^"]*"', "", svg)
    return re.sub(r"[\u2800-\u28ff]", "⠋", re.sub(r"\d+\.\d s<", "_ s<", svg))


class _Drawing:
    """One picture; gives each look that text has a class."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._console = Console(file=StringIO(), width=columns, color_system="truecolor")
        self._looks: dict[str, str] = {}

    def lines(self, screen: Screen) -> list[tuple[int, str]]:
        """Return the lines that a screen shows, from the first to the last, by their numbers."""
        texts = [Text.from_ansi(line) for line in screen.text.splitlines()]
        shown = max([number for number, text in enumerate(texts, 1) if text.plain.strip()], default=0)
        if screen.cursor is not None:
            shown = max(shown, screen.cursor[1] + 1)
            texts += [Text()] * (shown - len(texts))
        return [(number, self._line(text, number, screen.cursor)) for number, text in enumerate(texts[:shown])]

    def framed(self, title: str, lines: int, content: Sequence[str], style: str) -> str:
        """Return the whole picture around its content."""
        width, inside = self._columns * COLUMN + 2 * MARGIN, lines * LINE
        height = BAR + inside + MARGIN
        looks = "".join(f".{name}{{{look}}}" for look, name in self._looks.items())
        colours = ("#ff5f57", "#febc2e", "#28c840")
        buttons = "".join(f'<circle cx="{20 + 20 * at}" cy="17" r="6" fill="{one}"/>' for at, one in enumerate(colours))
        body = "\n".join(content)
        return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img" xml:space="preserve">
<title>{escape(title)}</title>
<style>
text{{font:{SIZE}px {_FONTS};white-space:pre}}
.title{{font:600 13px {_TITLE_FONTS};fill:{THEME.foreground_color.hex};text-anchor:middle}}
.cursor{{fill:{THEME.foreground_color.hex};opacity:.7}}
{looks}{style}
</style>
<rect x=".5" y=".5" width="{width - 1:g}" height="{height - 1:g}" rx="8" fill="{THEME.background_color.hex}" stroke="#555"/>
{buttons}
<text class="title" x="{width / 2:g}" y="21">{escape(title)}</text>
<svg x="0" y="{BAR}" width="{width:g}" height="{inside + MARGIN:g}" overflow="hidden">
{body}
</svg>
</svg>
"""  # noqa: E501 - markup

    def _line(self, text: Text, number: int, cursor: tuple[int, int] | None) -> str:
        parts = list(self._texts(text))
        if cursor is not None and cursor[1] == number:
            x = MARGIN + cursor[0] * COLUMN
            parts.append(_CURSOR.format(x=x, y=1, width=COLUMN, height=LINE - 2))
        return "".join(parts)

    def _texts(self, text: Text) -> Iterator[str]:
        column = 0
        for segment in text.render(self._console):
            words = segment.text.strip(" \n")
            before = len(segment.text) - len(segment.text.lstrip(" "))
            if words:
                x, wide = MARGIN + (column + before) * COLUMN, cell_len(words) * COLUMN
                place = f'x="{x:g}" y="{SIZE}" textLength="{wide:g}" lengthAdjust="spacingAndGlyphs"'
                yield f'<text class="{self._look(segment.style)}" {place}>{escape(words, quote=False)}</text>'
            column += cell_len(segment.text.rstrip("\n"))

    def _look(self, style: Style | None) -> str:
        style = style or Style()
        colour = THEME.foreground_color if style.color is None else style.color.get_truecolor(THEME)
        look = f"fill:{colour.hex}"
        for wanted, more in (
            (style.bold, ";font-weight:bold"),
            (style.dim, ";opacity:.6"),
            (style.italic, ";font-style:italic"),
            (style.underline, ";text-decoration:underline"),
        ):
            look += more if wanted else ""
        return self._looks.setdefault(look, f"c{len(self._looks)}")
