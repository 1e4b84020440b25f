"""The warnings of a hub about its servers taken together: each is logged and reported once for as long as it lasts.

Among them are the findings of one server's descriptions that reference another's tools (shadowing).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from toolweave.errors import printable
from toolweave.hub._naming import NameConflict
from toolweave.tools._spec import ToolSpec
from toolweave.trust._scan import Finding, shadowing_findings
from toolweave.trust._shadowing import ShadowIndex

_log = logging.getLogger("toolweave.hub")


class HubWarnings:
    """Keeps which warnings were reported, and the findings between servers.

    Args:
        report: Called with the server and the text of each warning that is new.

    Attributes:
        findings: The definitions that reference another server now.
    """

    def __init__(self, report: Callable[[str, str], None]) -> None:
        self.findings: tuple[Finding, ...] = ()
        self._report = report
        self._index = ShadowIndex()
        self._reported: dict[str, set[str]] = {}

    @property
    def shadows(self) -> list[str]:
        """The findings for people."""
        return [_text(one) for one in self.findings]

    def update(self, about: str, server: str, warnings: Iterable[NameConflict | str]) -> None:
        """Replace the warnings about one thing; one that recurs after it was gone is reported again."""
        texts = {str(warning) for warning in warnings}
        for text in sorted(texts - self._reported.get(about, set())):
            _log.warning("%s", printable(text))
            self._report(server, text)
        self._reported[about] = texts

    def compare(self, changed: Mapping[str, Iterable[ToolSpec]]) -> None:
        """Replace the definitions of these servers, compare them with all others, and report the new findings."""
        for server, specs in changed.items():
            self._index.update(server, specs)
        self.findings = tuple(shadowing_findings(self._index))
        by_server: dict[str, list[str]] = {server: [] for server in changed}
        for one in self.findings:
            by_server.setdefault(one.server or "", []).append(_text(one))
        for server, texts in by_server.items():
            self.update(f"shadows of {server}", server, texts)


def _text(finding: Finding) -> str:
    return f"server {finding.server!r}: {finding}"
