"""Templates made into pages, in which every text is escaped and every hidden character written out."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from toolweave._text import counted, shortened, visible
from toolweave.gateway._console.requests import ConsoleReply, ConsoleRequest
from toolweave.version import VERSION

MAX_TEXT = 200_000
"""The most characters of one text on a page."""

_FOLDER = Path(__file__).parent
_HTML = (b"content-type", b"text/html; charset=utf-8")
_KINDS = {".css": b"text/css; charset=utf-8", ".js": b"text/javascript; charset=utf-8"}
_SEPARATED = re.compile(r"(?<=[_./:])(?=[^_./:])")
_YEAR = b"private, max-age=31536000, immutable"


class ConsolePages:
    """Renders the pages of a console.

    Args:
        name: The gateway's name.
        runs: Whether there are pages about runs.
    """

    def __init__(self, name: str, *, runs: bool = False) -> None:
        self._env = Environment(
            loader=FileSystemLoader(_FOLDER / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_shown,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        filters: dict[str, Any] = {"counted": counted, "day": _day, "exact": _exact, "json": as_json, "moment": _moment}
        self._env.filters.update(filters, breakable=_breakable)
        values: dict[str, Any] = {"gateway": name, "version": VERSION, "assets": _digests(), "runs": runs}
        self._env.globals.update(values)

    def page(self, asked: ConsoleRequest, template: str, *, status: int = 200, **values: Any) -> ConsoleReply:
        """Return a page, with the pending notices of its session, which are shown once."""
        session = asked.session
        notices = [] if session is None else list(session.notices)
        if session is not None:
            session.notices.clear()
        text = self._env.get_template(template).render(
            asked=asked, base=asked.base, csrf="" if session is None else session.csrf, notices=notices, **values
        )
        return ConsoleReply(status, text.encode(), [_HTML])

    def live(self, asked: ConsoleRequest, template: str, *, summary: str, seconds: int, **values: Any) -> ConsoleReply:
        """Return a page with a part that is kept up to date, or that part alone where htmx asks for it.

        A part that the browser has already is not sent again, so that nothing is read out twice and no focus is lost.

        Args:
            asked: The request.
            template: The page; the part is the template of the same name after `live-`.
            summary: The part in one line, which is read out when it changes.
            seconds: The time between two looks.
            **values: The values of both.
        """
        csrf = asked.signed_in.csrf
        part = self._env.get_template(f"live-{template}").render(asked=asked, base=asked.base, csrf=csrf, **values)
        seen = hashlib.sha256(f"{summary}\0{part}".encode()).hexdigest()[:16]
        if asked.fragment and asked.query.get("seen") == seen:
            return ConsoleReply(204)
        query = {name: text for name, text in asked.query.items() if name != "seen" and text}
        values |= {
            "part": Markup(part),  # noqa: S704  # rendered above, escaped
            "summary": summary,
            "next_look": asked.url(asked.path, **query, seen=seen),
            "seconds": seconds,
        }
        if not asked.fragment:
            return self.page(asked, template, **values)
        return ConsoleReply(200, self._env.get_template("live.html").render(fragment=True, **values).encode(), [_HTML])


def as_json(value: Any, *, indent: int | None = 2) -> str:
    """Return a value as JSON that a person reads."""
    try:
        return shortened(json.dumps(value, ensure_ascii=False, indent=indent, default=str), MAX_TEXT)
    except (RecursionError, ValueError):
        return "too deep to be shown"


def static_file(name: str) -> ConsoleReply | None:
    """Return a file that pages use, or None; its URL has a digest, so that browsers may keep it."""
    body = _files().get(name)
    if body is None:
        return None
    return ConsoleReply(200, body, [(b"content-type", _KINDS[Path(name).suffix]), (b"cache-control", _YEAR)])


@cache
def _files() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (_FOLDER / "static").iterdir() if path.suffix in _KINDS}


def _digests() -> dict[str, str]:
    return {name: hashlib.sha256(body).hexdigest()[:16] for name, body in _files().items()}


def _shown(value: Any) -> Any:
    """Return a value as it is written into a page: every hidden character in a text becomes its number."""
    if isinstance(value, Markup):
        return value
    if value is None:
        return ""
    return visible(value if isinstance(value, str) else str(value))


def _exact(value: str) -> Markup:
    """Return a text escaped and otherwise as it is, for values that come back with a form."""
    return escape(value.encode("utf-8", "replace").decode())


def _breakable(name: str) -> Markup:
    """Return a name that a narrow column breaks after a separator, where a reader expects it."""
    return Markup("<wbr>").join(_SEPARATED.split(visible(name)))


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%H:%M:%S")


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
