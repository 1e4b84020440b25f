"""What processes promise each other that share a store: in a file, and on a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.racing import outputs_of_racers
from toolweave.state import open_store

pytestmark = pytest.mark.slow

COUNT_UP = """
import anyio, sys
from toolweave.state import open_store

async def main():
    async with open_store(sys.argv[1]) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        for _ in range(100):
            written = None
            while written is None:
                found = await store.get("c", "n")
                value, revision = (0, 0) if found is None else (found.value, found.revision)
                written = await store.put("c", "n", value + 1, expect=revision)

anyio.run(main)
"""


@pytest.fixture(params=["in a file", "on a server"])
def place(request: pytest.FixtureRequest, tmp_path: Path, redis_url: str) -> str:
    """Where the store is."""
    return str(tmp_path / "store.db") if request.param == "in a file" else redis_url


async def test_processes_that_share_a_store_lose_no_write(place: str) -> None:
    # they also make the file at the same time
    await outputs_of_racers([["-c", COUNT_UP, place]] * 3)
    async with open_store(place) as store:
        found = await store.get("c", "n")

    assert found is not None
    assert found.value == 300
