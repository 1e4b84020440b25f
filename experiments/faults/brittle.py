"""A small client from which each defence can be taken out; `experiments.faults.defences` names them and their rows.

With nothing taken out it survives all of those rows, each without its defence is lost the way real clients are.
Knows nothing of the judge and asserts nothing.
"""

from __future__ import annotations

import contextlib
import json
import re
import urllib.request
from collections.abc import Generator, Iterable
from typing import Any, cast

import anyio.to_thread

from experiments.faults.wires import MODERN, Http, Json, Pipes

__all__ = ["Brittle"]

PREFIX = "io.modelcontextprotocol/"
INFO = {"name": "brittle", "version": "0"}
META = {f"{PREFIX}protocolVersion": MODERN, f"{PREFIX}clientInfo": INFO, f"{PREFIX}clientCapabilities": {}}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": INFO}
TYPES = {"description": str, "title": str, "annotations": dict, "icons": list, "outputSchema": dict, "_meta": dict}
PAGES = 20
"""Pages that a list may have."""


class Brittle:
    """A client without the defences named; every exchange is one blocking function on a thread."""

    def __init__(self, target: list[str] | str, seconds: float = 0, *, without: Iterable[str] = ()) -> None:
        self.target, self.without = target, frozenset(without)
        self.wire: Http | Pipes | None = None
        self.listed: list[str] | None = None
        self.number, self.modern, self.broken = 0, False, False

    async def open(self) -> None:
        target = self.target
        self.wire = Http(target, self.without) if isinstance(target, str) else Pipes(target, self.without)
        if "bounded_probe" in self.without:
            with contextlib.suppress(RuntimeError):
                await self.ask("server/discover", {"_meta": META})
        self.modern = "error" in await self.ask("initialize", HELLO)
        if not self.modern:
            await self.ask("notifications/initialized", None)
        if "bounded_listening" in self.without and isinstance(self.wire, Http):
            await anyio.to_thread.run_sync(self.wire.listen, abandon_on_cancel=True)
        if "optional_features" in self.without:
            for method in ("resources/list", "prompts/list"):
                _ = (await self.ask(method, {}))["result"]
        try:
            self.listed = await self.list_all()
        except Exception:  # boundary: a list that fails is asked for again when it is wanted
            self.listed = [] if "fresh_lists" in self.without else None

    async def tools(self) -> Iterable[str]:
        if self.listed is None:
            self.listed = await self.list_all()
        return self.listed

    async def call(self, text: str) -> str:
        with self.fatal():
            result = (await self.ask("tools/call", {"name": "echo", "arguments": {"text": text}}))["result"]
            implied = None if self.modern else "complete"
            if "any_result_type" in self.without and result.get("resultType", implied) != "complete":
                raise ValueError("the result is of no known type")
            return cast("str", result["content"][0]["text"])

    async def close(self) -> None:
        if self.wire is not None:
            await anyio.to_thread.run_sync(self.wire.close, abandon_on_cancel=True)

    async def ask(self, method: str, params: Json | None) -> Json:
        """Send a request, or a notification if there are no parameters; return the answer."""
        assert self.wire is not None
        message: Json = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            self.number += 1
            message |= {"id": self.number, "params": {**params, "_meta": META} if self.modern else params}
        return await anyio.to_thread.run_sync(self.wire.exchange, message, self.modern, abandon_on_cancel=True)

    @contextlib.contextmanager
    def fatal(self) -> Generator[None]:
        """Hold one call apart from the next, or remember for good that one went wrong."""
        if self.broken:
            raise ConnectionError("the connection is broken")
        try:
            yield
        except Exception:
            self.broken = "call_by_call" in self.without
            raise

    async def list_all(self) -> list[str]:
        """Return the names on all pages; an end that the server does not give is a bound of ours."""
        found: list[Any] = []  # whatever the server lists
        cursor: Any = None
        seen: list[str] = []
        while len(seen) < PAGES:
            answer = await self.ask("tools/list", {} if cursor is None else {"cursor": cursor})
            if "error" in answer and "bounded_retries" in self.without:
                continue
            found += answer["result"]["tools"]
            cursor = answer["result"].get("nextCursor")
            if "bounded_lists" in self.without:
                if "nextCursor" not in answer["result"]:
                    break
                cursor = cursor or None  # asks for the first page again
                continue
            if "lenient_cursors" in self.without and not isinstance(cursor or "", str):
                raise TypeError("the cursor is no text")
            if not isinstance(cursor, str) or cursor in seen:
                break
            seen.append(cursor)
        return await anyio.to_thread.run_sync(self.checked, found)

    def checked(self, tools: list[Any]) -> list[str]:
        """Return the names of the tools; raise at what an absent defence would have let pass."""
        names = [str(tool["name"]) for tool in tools]
        if "unique_names" in self.without and len(set(names)) < len(names):
            raise ValueError("a name comes twice")
        if "any_name" in self.without and not all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names):
            raise ValueError("a name is not allowed")
        for tool in tools:
            if "any_type" in self.without:
                check_types(tool)
            if "any_schema" in self.without:
                check_schema(tool["inputSchema"])
            if "local_references" in self.without:
                fetch_references(json.dumps(tool))
        return list(dict.fromkeys(names))


def check_types(tool: Json) -> None:
    """Raise if an optional member has a wrong type."""
    for key, kind in TYPES.items():
        if key in tool and not isinstance(tool[key], kind):
            raise TypeError(f"{key} has a wrong type")


def check_schema(schema: Json) -> None:
    """Raise if a schema is not one of an object, or has a pattern that is none."""
    if schema["type"] != "object":
        raise ValueError("the schema is of no object")
    for pattern in re.findall(r'"pattern": "([^"]*)"', json.dumps(schema)):
        re.compile(pattern)


def fetch_references(text: str) -> None:
    """Fetch what a schema points at."""
    for address in re.findall(r'"\$ref": "(http[^"]*)"', text):
        urllib.request.urlopen(address).close()
