"""Pictures of pages for the documentation: in light and dark, on a wide screen and on a phone, as small WebP files."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

__all__ = ["PICTURES", "WIDE", "take", "take_both"]

PICTURES = os.environ.get("TOOLWEAVE_TAKE_PICTURES")
"""A folder, to take the pictures of the documentation anew."""
WIDE = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 780}
QUALITY = 0.72
_TO_WEBP = """async ([png, quality]) => {
    const image = new Image();
    image.src = "data:image/png;base64," + png;
    await image.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [image.width, image.height];
    canvas.getContext("2d").drawImage(image, 0, 0);
    return canvas.toDataURL("image/webp", quality);
}"""


def take(page: Any, name: str, *schemes: str, whole: bool = False) -> None:
    """Take the pictures of a page, where they are wanted; `whole` is all of it, as far as it can be scrolled."""
    for scheme in schemes if PICTURES else ():
        page.emulate_media(color_scheme=scheme)
        taken = page.screenshot(full_page=whole, animations="disabled", caret="hide")
        (Path(PICTURES or ".") / f"{name}-{scheme}.webp").write_bytes(_as_webp(page, taken))


def take_both(page: Any, name: str, *schemes: str, whole: bool = False) -> None:
    """Take pictures of a page, where they are wanted: on a wide screen and a phone, by default in light and dark."""
    if PICTURES:
        before = page.viewport_size
        for size, ending in ((WIDE, ""), (PHONE, "-phone")):
            page.set_viewport_size(size)
            page.evaluate("window.scrollTo(0, 0)")
            take(page, f"{name}{ending}", *(schemes or ("light", "dark")), whole=whole)
        page.set_viewport_size(before)
        page.emulate_media(color_scheme="light")


def _as_webp(page: Any, png: bytes) -> bytes:
    """Return a picture as WebP, by the browser that took it, on a page without rules for pictures."""
    other = page.context.browser.new_page()
    made: str = other.evaluate(_TO_WEBP, [base64.b64encode(png).decode(), QUALITY])
    other.close()
    return base64.b64decode(made.partition(",")[2])
