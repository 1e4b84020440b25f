"""Names and URIs of offers that are mounted in a server, below a namespace. Knows no server."""

from __future__ import annotations


class Namespace:
    """A namespace of a server.

    Args:
        namespace: Put before names as `namespace_`, and before the schemes of URIs that others have as `namespace+`.
    """

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._scheme = f"{namespace.replace('_', '-')}+"

    def own_name(self, name: str) -> str | None:
        """Return the own name for an exposed one, or None for one of another."""
        prefix = f"{self.namespace}_"
        if name.startswith(prefix):
            return name.removeprefix(prefix)
        return None

    def own_uri(self, uri: str) -> str:
        """Return the own URI for an exposed one, which may be that of another."""
        return uri.removeprefix(self._scheme)

    def exposed(self, name: str) -> str:
        """Return the exposed name of a tool or a prompt."""
        return f"{self.namespace}_{name}"

    def qualified(self, uri: str) -> str:
        """Return a URI or a template as no other has it."""
        return f"{self._scheme}{uri}"
