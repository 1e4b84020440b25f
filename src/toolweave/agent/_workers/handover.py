"""The handover of a run whose worker is asked to stop: between its turns and calls, so that no outcome is lost.

Knows neither stores nor queues. A turn or a call that is under way continues, and none is begun any more; when the last
one has been recorded, the run is stopped, and another worker continues after it. The journals of a run and of the runs
that its tools started share one handover, so that a run is stopped only when none of them is in the middle of a call.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

import anyio


class Handover:
    """The turns and calls of one run that are under way, and the request to hand the run over.

    Args:
        stop: Stops the run; nothing of it is under way then.
    """

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._under_way: set[str] = set()
        self._requested = False

    def request(self) -> None:
        """Hand the run over as soon as nothing of it is under way."""
        self._requested = True
        self._stop_if_idle()

    async def begin(self, key: str) -> None:
        """Note that a turn or call begins; wait for the end of the run if it is to be handed over."""
        if self._requested:
            self._stop_if_idle()
            # Until the others have ended, and the run is stopped.
            await anyio.sleep_forever()
        self._under_way.add(key)

    def end(self, key: str) -> None:
        """Note that the outcome of a turn or call is recorded."""
        self._under_way.discard(key)
        self._stop_if_idle()

    def _stop_if_idle(self) -> None:
        if self._requested and not self._under_way:
            self._stop()


_current: ContextVar[Handover | None] = ContextVar("toolweave-handover", default=None)


def current_handover() -> Handover | None:
    """Return the handover of the run of this context, or None."""
    return _current.get()


def set_handover(handover: Handover | None) -> None:
    """Set the handover of the runs that are started in this context from now on."""
    _current.set(handover)
