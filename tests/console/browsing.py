"""A browser without a window: cookies, pages and forms over real HTTP. Judges nothing."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from html.parser import HTMLParser
from urllib.parse import urlencode, urljoin, urlsplit

__all__ = ["Browser", "Page", "SentForm", "signed_in"]

_VOID = {"input", "meta", "link", "img", "br"}


class SentForm:
    """A form of a page: where it leads, and the fields as they stand."""

    def __init__(self, action: str, method: str) -> None:
        self.action = action
        self.method = method
        self.fields: dict[str, str] = {}
        self.labels: dict[str, str] = {}
        self.buttons: list[str] = []


class _Reader(HTMLParser):
    """Collects what the tests ask about; `convert_charrefs` makes texts what a person reads."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.forms: list[SentForm] = []
        self.texts: list[str] = []
        self.ids: dict[str, str] = {}
        self._path: list[str] = []
        self._label: str | None = None
        self._area: str | None = None
        self._select: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.tags.append((tag, found))
        if tag not in _VOID:
            self._path.append(tag)
        if "id" in found:
            self.ids[found["id"]] = tag
        if tag == "form":
            self.forms.append(SentForm(found.get("action", ""), found.get("method", "get")))
        elif tag == "label":
            self._label = found.get("for")
        elif self.forms:
            self._field(tag, found)

    def _field(self, tag: str, found: dict[str, str]) -> None:
        fields, name = self.forms[-1].fields, found.get("name", "")
        if tag == "input" and name:
            fields[name] = found.get("value", "")
        elif tag == "textarea":
            self._area = name
            fields[name] = ""
        elif tag == "select":
            self._select = name
        elif tag == "option" and self._select is not None and ("selected" in found or self._select not in fields):
            fields[self._select] = found.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._path:
            while self._path.pop() != tag:
                pass
        if tag == "label":
            self._label = None
        elif tag == "textarea" and self._area is not None:
            fields = self.forms[-1].fields
            fields[self._area] = fields[self._area].removeprefix("\n")  # as a browser reads it
            self._area = None
        elif tag == "select":
            self._select = None

    def handle_data(self, data: str) -> None:
        if self._area is not None:
            self.forms[-1].fields[self._area] += data
        if self._label is not None and data.strip() and self.forms:
            self.forms[-1].labels.setdefault(self._label, data.strip())
        if self._path and self._path[-1] == "button" and self.forms:
            self.forms[-1].buttons.append(data.strip())
        self.texts.append(data)


class Page:
    """An answer, read as a page."""

    def __init__(self, status: int, headers: list[tuple[str, str]], body: bytes, url: str) -> None:
        self.status = status
        self.headers = {name.lower(): value for name, value in headers}
        self.cookies = [value for name, value in headers if name.lower() == "set-cookie"]
        self.body = body
        self.url = url
        self.html = body.decode().replace("<wbr>", "")  # where a line may break, which a reader does not see
        reader = _Reader()
        reader.feed(self.html)
        self.tags = reader.tags
        self.forms = reader.forms
        self.ids = reader.ids
        self.text = " ".join(" ".join(reader.texts).split())

    def form(self, action: str, **having: str) -> SentForm:
        """Return the form that leads to a path, with these values in hidden fields."""
        for form in self.forms:
            if urlsplit(form.action).path.endswith(action) and having.items() <= form.fields.items():
                return form
        raise AssertionError(f"no form leads to {action} with {having}: {[one.action for one in self.forms]}")

    def named(self, form: SentForm, label: str) -> str:
        """Return the name of the field with this label."""
        found = next(one for one, text in form.labels.items() if text == label)
        return next(attributes["name"] for _, attributes in self.tags if attributes.get("id") == found)


class Browser:
    """A browser with the cookies of one host.

    Attributes:
        base: The address of the gateway.
        cookie: The cookie that it has, as it is sent.
    """

    def __init__(self, base: str) -> None:
        self.base = base
        self.cookie: str | None = None

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Page:
        """Fetch a page; redirects are not followed."""
        return self._send("GET", path, None, headers or {})

    def post(self, path: str, fields: Mapping[str, str], headers: Mapping[str, str] | None = None) -> Page:
        """Send a form as browsers do; redirects are not followed."""
        given = {"origin": self.base, "sec-fetch-site": "same-origin", **(headers or {})}
        kind = {"content-type": "application/x-www-form-urlencoded"}
        sent = {name: value for name, value in given.items() if value}
        return self._send("POST", path, urlencode(fields).encode(), {**kind, **sent})

    def submit(self, form: SentForm, **changes: str) -> Page:
        """Send a form of a page with some fields changed, and follow to the next page."""
        found = self.post(form.action, {**form.fields, **changes})
        return self.get(urljoin(found.url, found.headers["location"])) if found.status == 303 else found

    def _send(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Page:
        connection = http.client.HTTPConnection(self.base.partition("://")[2], timeout=60)
        try:
            own: dict[str, str] = {} if self.cookie is None else {"cookie": self.cookie}
            connection.request(method, path.partition("#")[0], body, {**own, **headers})
            answer = connection.getresponse()
            page = Page(answer.status, answer.getheaders(), answer.read(), path)
        finally:
            connection.close()
        for text in page.cookies:
            pair, _, attributes = text.partition(";")
            self.cookie = None if "Max-Age=0" in attributes else pair
        return page


def signed_in(base: str, link: str) -> Browser:
    """Return a browser that has opened a link."""
    browser = Browser(base)
    page = browser.get(link)
    assert page.status == 200, page.text
    return browser
