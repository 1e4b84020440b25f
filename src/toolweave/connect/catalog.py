"""The tools of one connection as they are known now: snapshots, their changes, their validators.

Lists through the session it is given and remembers; knows nothing of how the session came to be.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import anyio

from toolweave.config import ServerConfig
from toolweave.connect.listing import Listing, list_all, read_tools
from toolweave.errors import ProtocolError, SchemaError
from toolweave.schema.validate import Validator
from toolweave.tools.names import aliases, selected
from toolweave.tools.spec import ToolSpec
from toolweave.tools.toolset import Listeners, ToolsChanged, ToolSnapshot

__all__ = ["Catalog"]

_log = logging.getLogger("toolweave.connect")
_METHOD_NOT_FOUND = -32601

Request = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
Refusal = Callable[[Mapping[str, Any]], str | None]


class Catalog:
    """One server's tools: an immutable snapshot that is replaced as a whole (requirements C8, C9).

    Attributes:
        snapshot: What is offered now; version 0 before the first listing.
        problems: What was left out of the last listing, and why.
        pages: How many requests the last listing took.
        ttl_seconds: How long the server says the list may be kept, or None.
    """

    def __init__(self, config: ServerConfig) -> None:
        self.snapshot = ToolSnapshot()
        self.listeners = Listeners()
        self.problems: tuple[str, ...] = ()
        self.pages = 0
        self.ttl_seconds: float | None = None
        self._config = config
        self._fetched_at: float | None = None
        self._fetching: anyio.Event | None = None
        self._outcome: Exception | None = None
        self._generation = 0
        self._by_original: dict[str, ToolSpec] = {}
        self._validators: dict[tuple[str, str], tuple[object, Validator | None]] = {}

    @property
    def fresh(self) -> bool:
        """Whether the snapshot may be used without asking the server again."""
        if self._fetched_at is None:
            return False
        return self.ttl_seconds is None or anyio.current_time() < self._fetched_at + self.ttl_seconds

    @property
    def listed(self) -> bool:
        """Whether the tools were listed since the last `expire`."""
        return self._fetched_at is not None

    def expire(self) -> None:
        """Ask the server again at the next use."""
        self._fetched_at = None

    def find(self, name: str) -> ToolSpec | None:
        """Return the tool of this exposed name, alias or original name."""
        return self.snapshot.find(name) or self._by_original.get(name)

    async def refresh(self, request: Request, refusal: Refusal | None = None) -> ToolsChanged:
        """List all tools again and swap the snapshot atomically; concurrent refreshes share one listing.

        Raises:
            ServerError: The list could not be had; the old snapshot stays.
        """
        before = self.snapshot
        while self._fetching is not None:
            generation = self._generation
            await self._fetching.wait()
            if self._generation != generation:  # else the one who fetched was cancelled: take over
                if self._outcome is not None:
                    raise self._outcome
                return ToolsChanged.between(before, self.snapshot)
        done = self._fetching = anyio.Event()
        try:
            self._outcome = None
            await self._fetch(request, refusal)
            self._generation += 1
        except Exception as exc:
            self._outcome = exc
            self._generation += 1
            raise
        finally:
            self._fetching = None
            done.set()
        change = ToolsChanged.between(before, self.snapshot)
        self.listeners.emit(change)
        return change

    def validator(self, spec: ToolSpec, which: str) -> Validator | None:
        """Return the compiled `"input"` or `"output"` schema of a tool; None when it cannot be judged by it."""
        schema = spec.input_schema if which == "input" else spec.output_schema
        known = self._validators.get((spec.original_name, which))
        if known is not None and known[0] is schema:
            return known[1]
        compiled: Validator | None = None
        if schema is not None:
            try:
                compiled = Validator(schema)
            except SchemaError as exc:  # permissive, and said once (requirements R45, R62, D12)
                _log.warning(
                    "server %r: tool %r: its %s schema cannot be used, so nothing is checked against it: %s",
                    self._config.name,
                    spec.original_name,
                    which,
                    exc,
                )
        self._validators[spec.original_name, which] = (schema, compiled)
        return compiled

    async def _fetch(self, request: Request, refusal: Refusal | None) -> None:
        server = self._config.name
        try:
            listing = await list_all(request, "tools/list", "tools", server=server)
        except ProtocolError as exc:
            if exc.code != _METHOD_NOT_FOUND:
                raise
            listing = Listing()  # a server without tools, such as one of prompts only
        read = read_tools(listing.entries, server=server, refusal=refusal)
        self._adopt(read.specs)
        self.pages, self.ttl_seconds = listing.pages, listing.ttl_seconds
        self.problems = (*listing.problems, *read.problems)
        self._fetched_at = anyio.current_time()
        for problem in self.problems:
            _log.warning("server %r: %s", server, problem)

    def _adopt(self, specs: list[ToolSpec]) -> None:
        config = self._config
        kept = [
            replace(
                spec,
                name=f"{config.tool_prefix or ''}{spec.name}",
                original_name=spec.name,
                aliases=aliases(config.name, spec.name),
            )
            for spec in specs
            if selected(spec.name, include=config.include, exclude=config.exclude, server=config.name)
        ]
        self._by_original = {spec.original_name: spec for spec in kept}
        self._validators.clear()
        if tuple(kept) != tuple(self.snapshot) or self.snapshot.version == 0:
            self.snapshot = ToolSnapshot(kept, version=self.snapshot.version + 1)
