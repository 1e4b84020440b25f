"""The answers at a sign-in that differ from the standards and are still read: logged once, and kept."""

from __future__ import annotations

import logging

from toolweave.errors import printable

_log = logging.getLogger("toolweave.oauth")

_MAX_KINDS = 20


class OddAnswers:
    """The odd forms in the answers of one authorization server.

    Args:
        whose: Names it in the log, such as `server 'mail': signing in`.
    """

    def __init__(self, whose: str) -> None:
        self._whose = whose
        self._found: dict[str, None] = {}

    @property
    def problems(self) -> tuple[str, ...]:
        """The odd forms, each once."""
        return tuple(self._found)

    def note(self, problem: str) -> None:
        """Log and keep an odd form the first time."""
        if problem in self._found or len(self._found) >= _MAX_KINDS:
            return
        self._found[problem] = None
        _log.warning("%s: %s", self._whose, printable(problem))
