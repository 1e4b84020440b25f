"""A person at a browser without a screen: opens the page that is given, fills in what it asks, and follows it.

`python person.py NAME URL`: signs in as NAME, consents, and ends on the page that asks for nothing more. Run as the
program of `BROWSER`, it is the browser of a command.
"""

from __future__ import annotations

import sys
import urllib.error
import urllib.parse
import urllib.request
from html.parser import HTMLParser
from http.cookiejar import CookieJar, DefaultCookiePolicy

_MAX_PAGES = 15
_SECONDS = 20


class Page(HTMLParser):
    """The first form of a page: where it goes, and its fields."""

    def __init__(self) -> None:
        super().__init__()
        self.action: str | None = None
        self.fields: dict[str, str] = {}
        self._ended = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if self._ended:
            return
        if tag == "form" and self.action is None:
            self.action = given.get("action", "")
        elif tag in ("input", "button") and self.action is not None and given.get("name"):
            # of several buttons the first is pressed, which is the one that goes on
            self.fields.setdefault(given["name"], given.get("value", ""))

    def handle_endtag(self, tag: str) -> None:
        self._ended = self._ended or (tag == "form" and self.action is not None)


def visit(name: str, url: str) -> str:
    """Open a page, fill in its forms as NAME until there are none left, and return the last page."""
    jar = CookieJar(DefaultCookiePolicy(rfc2965=False, strict_ns_domain=DefaultCookiePolicy.DomainLiberal))
    browser = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(jar))
    data: bytes | None = None
    for _ in range(_MAX_PAGES):
        try:
            with browser.open(url, data, _SECONDS) as answer:
                here, text = answer.url, answer.read().decode()
        except urllib.error.HTTPError as exc:
            here, text = exc.url, exc.read().decode()
        page = Page()
        page.feed(text)
        if page.action is None:
            return text
        fields = page.fields | {key: name for key in ("login", "password") if key in page.fields}
        fields.pop("abort", None)
        url, data = urllib.parse.urljoin(here, page.action), urllib.parse.urlencode(fields).encode()
    raise SystemExit(f"still asked after {_MAX_PAGES} pages: {url}")


if __name__ == "__main__":
    visit(*sys.argv[1:])
