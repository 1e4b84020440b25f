"""Detect tool descriptions that reference another server's tools (shadowing)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from toolweave.tools._spec import ToolSpec
from toolweave.trust._scan import Finding, shadowing_findings
from toolweave.trust._shadowing import ShadowIndex


class HubShadows:
    """The findings about the servers of one hub taken together.

    Attributes:
        findings: The findings now.
    """

    def __init__(self) -> None:
        self.findings: tuple[Finding, ...] = ()
        self._index = ShadowIndex()

    @property
    def warnings(self) -> list[str]:
        """The findings for people."""
        return [_text(one) for one in self.findings]

    def update(self, changed: Mapping[str, Iterable[ToolSpec]]) -> dict[str, list[str]]:
        """Replace the definitions of these servers; return the warnings about each of them and about all others."""
        for server, specs in changed.items():
            self._index.update(server, specs)
        self.findings = tuple(shadowing_findings(self._index))
        by_server: dict[str, list[str]] = {server: [] for server in changed}
        for one in self.findings:
            by_server.setdefault(one.server or "", []).append(_text(one))
        return by_server


def _text(finding: Finding) -> str:
    return f"server {finding.server!r}: {finding}"
