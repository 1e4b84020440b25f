"""Secret strings, and the names that usually have one. Knows nothing of servers, only names and texts."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit, urlunsplit

from toolweave._masking import MASK

_SENSITIVE_NAME = (
    r"(?i)key|token|secret|pass|credential|auth|bearer|cookie|signature|(^|_)(pat|pw|sig|dsn|otp)(_|$)|_pwd(_|$)"
)


class Secret:
    """A string that shows as `***` wherever it is printed, formatted or logged.

    Equality and hash are those of the string. No serializer knows the type, so a secret cannot
    slip into JSON; `reveal()` is the one way to the value. Pickling and copying keep the value.

    Raises:
        TypeError: The value is neither a string nor a `Secret`.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str | Secret) -> None:
        if isinstance(value, Secret):
            value = value.reveal()
        if not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a Secret wraps a string, not {type(value).__name__}")
        self._value = value

    def reveal(self) -> str:
        """Return the string itself."""
        return self._value

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Secret):
            return self._value == other._value
        return NotImplemented

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
    if isinstance(value, Secret):
        return value.reveal()
    return value


def wrap(value: str | Secret) -> Secret:
    """Return the value as a `Secret`."""
    if isinstance(value, Secret):
        return value
    return Secret(value)


def looks_secret(name: str) -> bool:
    """Return whether a variable, flag, header or query parameter of this name usually holds a secret."""
    return re.search(_SENSITIVE_NAME, name.replace("-", "_")) is not None


def split_user_info(url: str) -> tuple[str, str | None]:
    """Split `https://user:password@host/` into the plain URL and `user:password`, decoded.

    Raises:
        ValueError: The text is not a URL.
    """
    parts = urlsplit(url)
    info, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, None
    return urlunsplit((parts.scheme, host, parts.path, parts.query, parts.fragment)), unquote(info)
