"""What replicas keep in their shared store expires: each collection has a bound."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import anyio

from tests.gateway.scale.replicas import OldClient, message, replicas
from tests.gateway.scale.test_tasks_elsewhere import at_replica, begun, outcome
from tests.gateway.test_tasks import Slow, ended
from tests.gateway.upstreams import LEGACY, MODERN
from toolweave.middleware import RateLimit, StoreLimits
from toolweave.serve import create_mcp_server
from toolweave.state import Change, MemoryStore, Put
from toolweave.tools import tool

SOURCES = Path(__file__).resolve().parents[3] / "src" / "toolweave"
DAY = 86_400.0
BOUNDS = {
    "gateway-added": 30 * DAY,
    "gateway-allowed": 90 * DAY,
    "gateway-console-links": 3600.0,
    "gateway-console-pages": DAY / 2,
    "gateway-console-sessions": DAY / 2,
    "gateway-ended-calls": 600.0,
    "gateway-events": 600.0,
    "gateway-known": 60.0,
    "gateway-limits": 366 * DAY,
    "gateway-living": 6.0,
    "gateway-mail": 120.0,
    "gateway-sessions": 7 * DAY,
    "gateway-tasks": DAY,
}
"""The seconds that a document of each collection is kept after its last write, at most."""
ENDLESS = {"gateway-revoked"}
"""Collections without an end: a key that was revoked must not be accepted again. They have a document for each key."""


class RecordingStore(MemoryStore):
    """A store that notes how long each document is to be kept."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, list[float | None]] = {}

    async def write(self, changes: Sequence[Change], *, signal: str | None = None) -> Sequence[int] | None:
        for one in changes:
            if isinstance(one, Put):
                self.kept.setdefault(one.collection, []).append(one.ttl)
        return await super().write(changes, signal=signal)


def test_every_collection_of_gateways_has_a_bound() -> None:
    sources = [
        path.read_text(encoding="utf-8")
        for room in ("gateway", "middleware")
        for path in (SOURCES / room).rglob("*.py")
    ]
    named = {name for text in sources for name in re.findall(r'= "(gateway-[a-z-]+)"\n', text)}
    assert named == set(BOUNDS) | ENDLESS


def test_every_write_to_the_shared_store_has_an_end() -> None:
    for path in (SOURCES / "gateway").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for call in re.findall(r"(?:store\.put|\bPut)\((?:[^()]|\([^()]*(?:\([^()]*\)[^()]*)*\))*\)", text):
            is_endless = path.name == "revoked_keys.py" and "_REVOKED" in call
            assert is_endless or "ttl=" in call, f"{path.name}: {call}"


@tool
def echo(text: str) -> str:
    """Return the text."""
    return text


async def test_documents_of_sessions_tasks_limits_and_replicas_expire_within_their_bounds() -> None:
    store = RecordingStore()
    limit = RateLimit(calls=100, seconds=60, store=StoreLimits(store))
    upstream = create_mcp_server("up", tools=[echo])
    async with replicas({"up": upstream}, stores=[store, store], middleware=[limit]) as urls:
        client = OldClient()
        with anyio.fail_after(30):
            await client.begin(urls[0])
            for url in urls:
                await client.post(url, message("logging/setLevel", 1, level="info"))
                await client.post(url, message("tools/call", 2, name="up_echo", arguments={"text": "x"}))
    for era in (LEGACY, MODERN):
        slow = Slow("required")
        slow.go.set()
        async with at_replica(slow, store, era) as raw:
            name = await begun(raw, "slow")
            await ended(raw, name)
            await outcome(raw, name)

    assert {"gateway-living", "gateway-known", "gateway-limits", "gateway-tasks"} <= set(store.kept) <= set(BOUNDS)
    for collection, seconds in store.kept.items():
        assert all(one is not None and 0 < one <= BOUNDS[collection] for one in seconds), collection
