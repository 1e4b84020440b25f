"""The log on the terminal: warnings of the library and of other packages, escaped like all output."""

from __future__ import annotations

import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from toolweave.cli._render.text import safe_text
from toolweave.cli._screen import note, wrapped

if TYPE_CHECKING:
    from toolweave.config import ServerConfig


@contextmanager
def log_to_screen(*, verbose: bool, failures: bool = False) -> Generator[None]:
    """Show the log on standard error during the block: warnings, and with `verbose` informational messages.

    Failed servers are left to the views, unless `failures`.
    """
    handler = _ScreenHandler(failures=failures)
    logger = logging.getLogger("toolweave")
    before = logger.level
    logging.root.addHandler(handler)  # other libraries warn too, and their words are no safer
    logger.setLevel(logging.INFO if verbose else logging.WARNING)
    try:
        yield
    finally:
        logging.root.removeHandler(handler)
        logger.setLevel(before)


class _ScreenHandler(logging.Handler):
    def __init__(self, *, failures: bool) -> None:
        super().__init__()
        self._failures = failures

    def filter(self, record: logging.LogRecord) -> bool:
        # servers that failed are shown by the views, with what to do about it
        failure = not self._failures and record.name == "toolweave.hub" and isinstance(record.args, tuple)
        return not (failure and any(isinstance(value, Exception) for value in record.args or ()))

    def emit(self, record: logging.LogRecord) -> None:
        text = safe_text(f"{record.levelname.lower()}: {record.getMessage()}", multiline=True)
        note(wrapped(text, stream=sys.stderr))
        upstream = getattr(record, "upstream", None)
        if upstream is not None:
            _note_next_step(upstream, record)


def _note_next_step(upstream: ServerConfig, record: logging.LogRecord) -> None:
    """Write what to do about a server that failed, if its error does not say it."""
    from toolweave.connect._hints import hint_of  # late: few logs are of a failure

    if isinstance(record.args, tuple):
        arguments = record.args
    else:
        arguments = ()
    error = next((value for value in arguments if isinstance(value, Exception)), None)
    hint = None if error is None else hint_of(upstream, error, in_service=True)
    if hint:
        note(wrapped(safe_text(f"hint: {hint}"), stream=sys.stderr))
