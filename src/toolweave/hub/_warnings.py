"""The warnings of a hub about its servers taken together: each is logged and reported once for as long as it lasts.

Among them are the findings of one server's descriptions that reference another's tools (shadowing). A server may have
100,000 tools, so definitions are compared in steps between which the event loop does other work. Reading the findings
before the last step does the rest at once: the steps change when work is done, and never its result.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from toolweave.config import ServerConfig
from toolweave.connect import McpConnection
from toolweave.definitions import Finding
from toolweave.definitions._scan import shadowing_findings
from toolweave.definitions._shadowing import ShadowIndex
from toolweave.errors import printable
from toolweave.hub._naming import NameConflict
from toolweave.tools import ToolSpec

_log = logging.getLogger("toolweave.hub")
_OVER = object()
_SERVERS_PER_STEP = 20
"""Servers whose last definitions are compared in one step; most servers have fewer than one step holds."""


def log_failure(error: Exception, config: ServerConfig | None, *, is_retried: bool = False) -> None:
    """Log the failure of a server; the record has its config as `upstream`, for handlers that know a next step."""
    if is_retried:
        text = "%s; it is tried again until it can be reached"
    else:
        text = "%s"
    _log.warning(text, error, extra={"upstream": config})


def lost_pins(clients: Mapping[str, McpConnection], configured: Collection[str]) -> Iterator[str]:
    """Yield warnings about servers that were renamed beside their pins, which then compare nothing.

    Args:
        clients: The connections by the names of their servers.
        configured: The names of all servers of the config. A pin under one of these is that server's own.
    """
    for name, client in clients.items():
        for pinned in sorted(set(client.pinned_as).difference(configured, clients)):
            yield (
                f"server {name!r}: toolweave.lock has its pins as {pinned!r}, so nothing is compared; "
                f"rename them there, or run `toolweave pin {name}`"
            )


class HubWarnings:
    """Keeps which warnings were reported, and the findings between servers.

    Args:
        report: Called with the server and the text of each warning that is new.
    """

    def __init__(self, report: Callable[[str, str], None]) -> None:
        self._findings: tuple[Finding, ...] = ()
        self._steps: deque[Iterator[None]] = deque()
        self._is_scheduled = False
        self._changed: set[str] = set()
        self._report = report
        self._index = ShadowIndex()
        self._reported: dict[str, set[str]] = {}

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The definitions that reference another server now."""
        self.finish()
        return self._findings

    @property
    def shadows(self) -> list[str]:
        """The findings as human-readable texts."""
        return list(map(_text, self.findings))

    def update(self, about: str, server: str, warnings: Iterable[NameConflict | str]) -> None:
        """Replace the warnings about one thing; one that recurs after it was gone is reported again."""
        texts = set(map(str, warnings))
        for text in sorted(texts - self._reported.get(about, set())):
            _log.warning("%s", printable(text))
            self._report(server, text)
        self._reported[about] = texts

    def compare(self, changed: Mapping[str, Iterable[ToolSpec]]) -> None:
        """Replace the definitions of these servers, compare them with all others, and report the new findings.

        A few definitions are compared at once, more in steps.
        """
        self._changed.update(changed)
        self._steps.extend(self._index.updating(server, specs) for server, specs in changed.items())
        self._step()
        self._schedule()

    def finish(self) -> None:
        """Compare the remaining definitions now."""
        while self._steps:
            self._step()

    async def finish_in_steps(self) -> None:
        """Compare the remaining definitions, and let other tasks run between the steps."""
        while self._steps:
            self._step()
            await asyncio.sleep(0)

    def _schedule(self) -> None:
        """Schedule the next step behind the callbacks that are ready now."""
        if not self._steps or self._is_scheduled:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            # Without an event loop, nothing else waits.
            self.finish()
            return
        self._is_scheduled = True
        loop.call_soon(self._step_in_loop)

    def _step_in_loop(self) -> None:
        self._is_scheduled = False
        if self._steps:
            self._step()
            self._schedule()

    def _step(self) -> None:
        """Compare some definitions; report the findings after the last one."""
        for _ in range(min(len(self._steps), _SERVERS_PER_STEP)):
            if next(self._steps[0], _OVER) is not _OVER:
                return
            self._steps.popleft()
        if not self._steps:
            self._conclude()

    def _conclude(self) -> None:
        changed = self._changed
        self._changed = set()
        self._findings = tuple(shadowing_findings(self._index))
        by_server: dict[str, list[str]] = {server: [] for server in changed}
        for one in self._findings:
            by_server.setdefault(one.server or "", []).append(_text(one))
        for server, texts in by_server.items():
            self.update(f"shadows of {server}", server, texts)


def _text(finding: Finding) -> str:
    return f"server {finding.server!r}: {finding}"
