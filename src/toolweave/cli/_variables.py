"""Environment variables of the command. Imports nothing, since most command lines ask it nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

_PREFIX = "TOOLWEAVE_"
VARIABLES = ("API_HEADERS_SECRET", "API_TOKEN", "BACKEND", "MODEL", "NO_BROWSER", "REGISTRY", "TOKEN_KEY")
"""The environment variables that are read, without their prefix."""


def misspelt_variables(names: Iterable[str]) -> Iterator[str]:
    """Yield a warning for each environment variable whose name looks like one of ours, and that nothing reads.

    A misspelt key for tokens would leave them unencrypted. Other names with the prefix may be an owner's own.
    """
    import difflib  # only a variable with the prefix needs it

    for name in names:
        if name.removeprefix(_PREFIX) in VARIABLES:
            continue
        word = name.upper().removeprefix(_PREFIX)
        for meant in difflib.get_close_matches(word, VARIABLES, n=1, cutoff=0.75):
            yield f"warning: the environment variable {name} is not read; did you mean {_PREFIX}{meant}?"
