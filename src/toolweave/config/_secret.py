"""Secret strings, and the masking of texts that may hold them.

Knows nothing of servers, only names and texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

MASK = "***"
"""The text shown instead of a secret."""

_SENSITIVE_NAME = (
    r"(?i)key|token|secret|pass|credential|auth|bearer|cookie|signature|(^|_)(pat|pw|sig|dsn|otp)(_|$)|_pwd(_|$)"
)
_URL = r"[A-Za-z][A-Za-z0-9+.-]*://"
_USER_INFO = r"(?<=://)[^/\s@]*@"
_USER_AT_HOST = r"^(?!(?:npm|jsr|github|gitlab|git|file|pypi):)[^\s:@/]+:(?!\d+/)[^@\s]+@(?!sha256:)"
"""`user:password@host`, but not packages (`npm:name@1.0`) and images (`host:5000/name@...`, `name:tag@sha256:...`)."""
_KNOWN_PREFIX = (
    r"(?<![A-Za-z0-9])(?:gh[oprsu]_\w+|github_pat_\w+|glpat-[\w-]+|xox[a-z]-[\w-]+|sk-(?=[\w-]*[A-Z0-9])[\w-]{6,}"
    r"|A[KS]IA[A-Z0-9]{8,}|eyJ[\w-]{8,}(?:\.[\w-]*)*)"
)
_PORT_OR_PATH = r"(?s)(?:[\d.]+:)*\d+(?:-\d+)?(?::\d+(?:-\d+)?)?(?:/(?:tcp|udp))?|[~.]|.*[/\\].*|@.*"
"""A number, a port or ports of a container, a path, a scoped package."""
_FLAG = r"(?s)(--?[A-Za-z][\w.-]*)(=?)(.*)"
_HEADER_ARGUMENT = r"(?s)([A-Za-z][\w-]*): *(.+)"

Hide = Callable[[str], str]
"""Returns the replacement for a secret."""


class Secret:
    """A string that shows as `***` wherever it is printed, formatted or logged.

    Equality and hash are those of the string. No serializer knows the type, so a secret cannot
    slip into JSON; `reveal()` is the one way to the value. Pickling and copying keep the value.

    Raises:
        TypeError: The value is neither a string nor a `Secret`.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str | Secret) -> None:
        raw = value.reveal() if isinstance(value, Secret) else value
        if not isinstance(raw, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a Secret wraps a string, not {type(raw).__name__}")
        self._value = raw

    def reveal(self) -> str:
        """Return the string itself."""
        return self._value

    def __eq__(self, other: object) -> bool:
        return self._value == other._value if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __bool__(self) -> bool:
        return bool(self._value)

    def __str__(self) -> str:
        return MASK

    def __repr__(self) -> str:
        return f"Secret({MASK!r})"

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        return Secret, (self._value,)


def reveal(value: str | Secret) -> str:
    """Return the string behind a value that may be a `Secret`."""
    return value.reveal() if isinstance(value, Secret) else value


def wrap(value: str | Secret) -> Secret:
    """Return the value as a `Secret`."""
    return value if isinstance(value, Secret) else Secret(value)


def looks_secret(name: str) -> bool:
    """Return whether a variable, flag, header or query parameter of this name usually holds a secret."""
    return re.search(_SENSITIVE_NAME, name.replace("-", "_")) is not None


def mask_values(text: str, values: Iterable[str]) -> str:
    """Return the text with every one of the values replaced by the mask, longest first."""
    for value in sorted({value for value in values if value}, key=len, reverse=True):
        text = text.replace(value, MASK)
    return text


def _masked(value: str) -> str:
    return MASK


def mask_url(url: str, hide: Hide = _masked) -> str:
    """Return the URL without its user info, and with the values of secret-looking query parameters masked.

    A text that is no URL becomes the mask alone when it may hold user info, else it is unchanged. `hide` returns
    the replacement for each secret.
    """
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return hide(url) if "@" in url or "?" in url else url
    netloc = parts.netloc
    if "@" in netloc:
        info, _, host = netloc.rpartition("@")
        netloc = f"{hide(info)}@{host}"
    hidden = parts.query
    if any(looks_secret(name) for name, _ in query):
        shown = [(name, hide(value) if looks_secret(name) else value) for name, value in query]
        hidden = "&".join(f"{quote(name)}={quote(value, safe='*/:')}" for name, value in shown)
    if (netloc, hidden) == (parts.netloc, parts.query):
        return url
    return urlunsplit((parts.scheme, netloc, parts.path, hidden, parts.fragment))


def without_user_info(text: str) -> str:
    """Return a text with the user info taken out of the URLs in it."""
    return re.sub(_USER_INFO, "", text)


def secrets_in(args: Sequence[str]) -> tuple[str, ...]:
    """Return the secrets that `mask_args` hides, each also without its scheme (`Bearer X`) or user name."""
    found: list[str] = []

    def hide(value: str) -> str:
        _, _, behind_scheme = value.partition(" ")
        _, _, password = value.partition(":")
        found.extend(text for one in (value, behind_scheme, password) for text in (one, unquote(one)) if text)
        return MASK

    mask_args(args, hide)
    return tuple(dict.fromkeys(found))


def mask_args(args: Sequence[str], hide: Hide = _masked) -> tuple[str, ...]:
    """Return the arguments with the values of secret-looking flags, headers and URLs masked.

    Covers `--token X`, `--token=X`, `-e API_KEY=X`, `API_KEY=X`, `Authorization: X` and URLs, and any of these
    behind a flag: `--env=API_KEY=X`, `--header=Authorization: X`. Without a telling name `user:X@host` is covered,
    `-p X` unless X is a port or a path, and tokens with the prefix of a known service, such as `ghp_X`. `hide` returns
    the replacement for each secret.
    """
    shown: list[str] = []
    hide_next = False
    for number, arg in enumerate(args):
        flag = re.fullmatch(_FLAG, arg)
        if hide_next and not flag:
            shown.append(hide(arg))
            hide_next = False
            continue
        hide_next = bool(flag and not flag[2] and not flag[3] and looks_secret(flag[1]))
        if arg == "-p":
            hide_next = any(_may_be_password(value, args[:number]) for value in args[number + 1 : number + 2])
        shown.append(_mask_argument(arg, hide))
    return tuple(shown)


def _mask_argument(arg: str, hide: Hide) -> str:
    if re.match(_URL, arg):
        return mask_url(arg, hide)
    header = re.fullmatch(_HEADER_ARGUMENT, arg.lstrip("-"))
    if header and looks_secret(header[1]):
        return f"{arg[: -len(header[2])]}{hide(header[2])}"
    name, equals, value = arg.partition("=")
    if equals and value:
        return f"{name}={hide(value) if looks_secret(name) else _mask_argument(value, hide)}"
    arg = re.sub(_USER_INFO, lambda found: f"{hide(found[0][:-1])}@", arg)
    arg = re.sub(_USER_AT_HOST, lambda found: f"{hide(found[0][:-1])}@", arg)
    return re.sub(_KNOWN_PREFIX, lambda found: hide(found[0]), arg)


def _may_be_password(value: str, before: Sequence[str]) -> bool:
    """Return whether the value of `-p` may be a password: no port, no path and no package of `npx -y -p`."""
    return re.fullmatch(_PORT_OR_PATH, value) is None and not {"-y", "--yes"}.intersection(before)


def split_user_info(url: str) -> tuple[str, str | None]:
    """Split `https://user:password@host/` into the plain URL and `user:password`, decoded.

    Raises:
        ValueError: The text is no URL.
    """
    parts = urlsplit(url)
    info, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, None
    return urlunsplit((parts.scheme, host, parts.path, parts.query, parts.fragment)), unquote(info)
