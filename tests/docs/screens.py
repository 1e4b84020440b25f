"""The pictures of pages in docs/screens.md: six pages, each in light and dark, on a wide screen and on a phone."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["SCREENS", "screens"]

SCREENS = {
    "console-servers": ("The console", "The servers of a gateway: one is ready, one failed with its reason"),
    "console-tool": ("A tool in the console", "A tool: the form for its arguments, and the result of a call"),
    "sign-in-page": ("A sign-in", "The last page of a sign-in in the browser: close this page"),
    "site-home": ("The documentation", "The first page of the documentation, with links for each task"),
    "site-guide": ("A guide", "A guide of the documentation: the task, then the smallest code"),
    "site-reference": ("The reference", "A page of the reference: a class with its parameters and attributes"),
}
"""The title and the words for each page, by the name of its pictures; tests in a browser take them."""


def screens() -> Iterator[str]:
    """Yield a section for each page with its four pictures."""
    yield "Six pages in light and dark, on a wide screen and on a phone.\n\n"
    for name, (title, words) in SCREENS.items():
        yield f"## {title}\n\n"
        yield f"![{words}, in light.](images/{name}-light.webp)\n![{words}, in dark.](images/{name}-dark.webp)\n\n"
        yield f"![{words}, on a phone.](images/{name}-phone-light.webp)\n"
        yield f"![{words}, on a phone in dark.](images/{name}-phone-dark.webp)\n\n"
