"""A small check of a page in a browser: contrast, names, sizes of targets, overflow, order of headings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["problems"]

_CHECK = Path(__file__).with_suffix(".js").read_text(encoding="utf-8").partition("\n")[2]


def problems(page: Any) -> list[str]:
    """Return what a person might not be able to read or reach on a page, also on a small screen and in print large.

    Contrast of texts (WCAG 2.2, 1.4.3), names of controls (4.1.2), sizes of targets (2.5.8), order of headings, and
    content that can only be read by scrolling sideways (1.4.10).
    """
    size = page.viewport_size
    found: list[str] = page.evaluate(_CHECK)
    page.set_viewport_size({"width": 320, "height": 640})
    narrow: list[str] = page.evaluate(_CHECK)
    page.set_viewport_size(size)
    return [*found, *(f"at 320 pixels: {one}" for one in narrow if one not in found)]
