"""Browsers that are signed in to a console: links that are good once, cookies, and the tokens of forms.

A link that was printed becomes a cookie of the browser that opens it first; the admin token does the same by a form.
Only digests are kept, and compared in constant time. Cookies know no ports, so that the port is in the name; a session
is a random id, and ends after twelve hours. Here it ends with the process; `shared_sessions` has those of replicas.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping

from toolweave.config import is_loopback
from toolweave.serve._http.asgi import cookies_in

SESSION_SECONDS = 12 * 3600.0
LINK_SECONDS = 3600.0
_MAX_SESSIONS = 50
_MAX_LINKS = 20
_MAX_ATTEMPTS = 10
_ATTEMPTS_SECONDS = 60.0
_MAX_NOTICES = 10


class ConsoleSession:
    """One browser that is signed in.

    Attributes:
        csrf: The token that its forms bring.
        until: When it ends, by the clock of the sessions.
        notices: Texts that its next page shows, each with whether it is a problem.

    Args:
        name: The value of its cookie, from which the token of its forms is derived: so all replicas have the same.
        until: When it ends.
    """

    def __init__(self, name: str, until: float) -> None:
        self.csrf = hmac.digest(name.encode("utf-8", "replace"), b"toolweave console form", "sha256").hex()
        self.until = until
        self.notices: deque[tuple[str, bool]] = deque(maxlen=_MAX_NOTICES)

    def takes(self, csrf: str) -> bool:
        """Whether a form brings the right token."""
        return hmac.compare_digest(csrf.encode("utf-8", "replace"), self.csrf.encode())

    def say(self, text: str, *, problem: bool = False) -> None:
        """Show a text on the next page."""
        self.notices.append((text, problem))


class ConsoleSessions:
    """The sessions of one console, and its links.

    Args:
        token: The admin token, which also signs in.
        clock: Returns the time in seconds.
    """

    def __init__(self, token: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._token = digest_of(token)
        self._clock = clock
        self._sessions: dict[bytes, ConsoleSession] = {}
        self._links: dict[bytes, float] = {}
        self._failed: deque[float] = deque(maxlen=_MAX_ATTEMPTS)

    def new_link(self) -> str:
        """Return the token of a new link, good once and for an hour."""
        token = secrets.token_urlsafe(32)
        self._drop_old()
        while len(self._links) >= _MAX_LINKS:
            del self._links[next(iter(self._links))]
        self._links[digest_of(token)] = self._clock() + LINK_SECONDS
        return token

    def opens(self, token: str) -> bool:
        """Whether the token of a link is good, which it is not from now on."""
        self._drop_old()
        return self._links.pop(digest_of(token), None) is not None

    def signs_in(self, token: str) -> bool | None:
        """Whether this is the admin token; None after too many attempts, until a minute has passed."""
        now = self._clock()
        if len(self._failed) == _MAX_ATTEMPTS and now - self._failed[0] < _ATTEMPTS_SECONDS:
            return None
        if hmac.compare_digest(digest_of(token), self._token):
            return True
        self._failed.append(now)
        return False

    def add(self) -> str:
        """Begin a session; return the value of its cookie."""
        name = secrets.token_urlsafe(32)
        self.keep(name, SESSION_SECONDS)
        return name

    def keep(self, name: str, seconds: float) -> None:
        """Keep the session of a cookie for so many seconds, unless it is kept already."""
        self._drop_old()
        if digest_of(name) in self._sessions:
            return
        while len(self._sessions) >= _MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[digest_of(name)] = ConsoleSession(name, self._clock() + seconds)

    def forget(self, name: str) -> None:
        """End the session of a cookie."""
        self._sessions.pop(digest_of(name), None)

    def of(self, headers: Mapping[bytes, bytes]) -> ConsoleSession | None:
        """Return the session of the browser that sent a request, or None."""
        name = sent_cookie(headers)
        if name is None:
            session = None
        else:
            session = self._sessions.get(digest_of(name))
        if session is not None and session.until > self._clock():
            return session
        return None

    def _drop_old(self) -> None:
        now = self._clock()
        self._sessions = {name: one for name, one in self._sessions.items() if one.until > now}
        self._links = {token: until for token, until in self._links.items() if until > now}


def sent_cookie(headers: Mapping[bytes, bytes]) -> str | None:
    """Return the value of the cookie that a request brings for its console, or None."""
    wanted = _cookie_name(headers)
    return next((value for name, value in cookies_in(headers) if name == wanted), None)


def setting_cookie(headers: Mapping[bytes, bytes], path: str, value: str) -> tuple[bytes, bytes]:
    """Return the header that sets the cookie of a session."""
    return _cookie(headers, path, value, int(SESSION_SECONDS))


def deleting_cookie(headers: Mapping[bytes, bytes], path: str) -> tuple[bytes, bytes]:
    """Return the header that deletes the cookie of a session."""
    return _cookie(headers, path, "", 0)


def _cookie(headers: Mapping[bytes, bytes], path: str, value: str, seconds: int) -> tuple[bytes, bytes]:
    # a browser keeps no Secure cookie of a plain http page on another machine: the console wants https there
    secure = "" if is_loopback(host_of(headers)[0]) else "; Secure"
    name = _cookie_name(headers)
    text = f"{name}={value}; Path={path}; HttpOnly; SameSite=Strict{secure}; Max-Age={seconds}"
    return b"set-cookie", text.encode("latin-1", "replace")


def host_of(headers: Mapping[bytes, bytes]) -> tuple[str, str]:
    """Return the host and the port of a request's `Host`; the port is "" where it says none."""
    text = headers.get(b"host", b"").decode("latin-1").lower()
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal():
        host = text
        port = ""
    return host.strip("[]"), port[:5]


def _cookie_name(headers: Mapping[bytes, bytes]) -> str:
    return f"toolweave-console-{host_of(headers)[1] or 'default'}"


def digest_of(token: str) -> bytes:
    """Return the SHA-256 of a token."""
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
