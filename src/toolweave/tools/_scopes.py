"""OAuth scopes that an offer needs (RFC 6749, 3.3). Knows no token."""

from __future__ import annotations

import re
from collections.abc import Iterable

_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


def scope_list(scopes: Iterable[str]) -> tuple[str, ...]:
    """Return scopes as a tuple, each once.

    Raises:
        ValueError: One of them is not a valid scope: printable ASCII without spaces, quotes and backslashes.
    """
    if isinstance(scopes, str):
        listed = (scopes,)
    else:
        listed = tuple(dict.fromkeys(scopes))
    for scope in listed:
        if not isinstance(scope, str) or not _SCOPE.fullmatch(scope):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(
                f"{scope!r} is not a valid scope: it has no spaces, quotes or backslashes, and is printable ASCII"
            )
    return listed
