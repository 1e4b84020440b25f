"""Copying a toolset's tools into a registry, in step with the toolset. Opens and closes nothing."""

from __future__ import annotations

from toolweave.tools import Tool, ToolRegistry, ToolsChanged, Toolset, ToolSpec, Unsubscribe


def attach(toolset: Toolset, registry: ToolRegistry) -> Unsubscribe:
    """Keep a toolset's tools in a registry, in step with its changes, until the returned function is called.

    A tool whose name is taken there is renamed. Only the added tools are removed again; a tool that replaced one of
    them stays.
    """
    attached = _RegistrySync(toolset, registry)
    unsubscribe = toolset.subscribe(attached.follow)

    def detach() -> None:
        # First, so that a change which arrives meanwhile does not add tools again.
        unsubscribe()
        attached.remove_all()

    return detach


class _RegistrySync:
    def __init__(self, toolset: Toolset, registry: ToolRegistry) -> None:
        self._toolset = toolset
        self._registry = registry
        self._added: dict[str, Tool] = {}
        for spec in toolset.snapshot():
            self._add(spec)

    def follow(self, change: ToolsChanged) -> None:
        by_name = self._toolset.snapshot().by_name
        for name in (*change.removed, *change.changed):
            self._remove(name)
        for name in (*change.changed, *change.added):  # what was there keeps its name
            if name in by_name and name not in self._added:
                self._add(by_name[name])

    def remove_all(self) -> None:
        for name in list(self._added):
            self._remove(name)

    def _add(self, spec: ToolSpec) -> None:
        self._added[spec.name] = self._registry.add(Tool(spec, self._toolset), on_conflict="rename")

    def _remove(self, name: str) -> None:
        mine = self._added.pop(name, None)
        there = None if mine is None else self._registry.get(mine.name)
        # By identity: under the name there may now be a tool that somebody else has registered, and that stays.
        if mine is not None and there is not None and there.spec is mine.spec:
            self._registry.remove(mine.name)
