"""Programs one operation of which fails: `python -m tests.faults.errno_programs WHAT FOLDER`.

Each prints what is certain, and exits with 1 and one line on standard error if what it was asked to do failed.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio

from tests.agent.killed_run import RUN, agent_of
from toolweave import connect_mcp, create_mcp_server
from toolweave.errors import StoreError
from toolweave.middleware import AuditLog
from toolweave.models import UserMessage
from toolweave.oauth import FileTokenStore, TokenKey, TokenRecord
from toolweave.state import SqliteStore
from toolweave.tools import tool

CALLS = 5


def token_of(name: str) -> TokenRecord:
    """Return the record of a token that is called so."""
    return TokenRecord(TokenKey(f"https://{name}.example", f"https://{name}.example/mcp"), access_token=name)


def token_store(folder: Path) -> FileTokenStore:
    """Return the store of tokens in a folder."""
    return FileTokenStore(folder / "tokens" / "tokens.json")


async def tokens(folder: Path) -> None:
    """Save one more token."""
    store = token_store(folder)
    async with store.locked(token_of("b").key, seconds=5):
        await store.save(token_of("b"))
    print("saved")


async def documents(folder: Path) -> None:
    """Write one more document, and read the one that was there."""
    async with SqliteStore(folder / "store.db") as store:
        await store.put("c", "b", {"n": 2})
        print("saved")
        found = await store.get("c", "a")
    assert found is not None
    assert found.value == {"n": 1}


@tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


async def audited(folder: Path) -> None:
    """Make calls that an audit log has."""
    server = create_mcp_server(name="s", version="1", tools=[double], middleware=[AuditLog(path=str(folder / "audit"))])
    async with connect_mcp(server) as connection:
        for number in range(CALLS):
            print((await connection.call_tool("double", {"number": number})).text)


async def journal(folder: Path) -> None:
    """Run an agent whose tool writes three lines."""
    async with SqliteStore(folder / "store.db") as store:
        agent = agent_of(folder, store, lambda place: None)
        print((await agent.begin([UserMessage.of("write all lines")], run_id=RUN)).text)


PROGRAMS: dict[str, Callable[[Path], Awaitable[Any]]] = {
    "tokens": tokens,
    "documents": documents,
    "audited": audited,
    "journal": journal,
}


async def run(what: str, folder: Path) -> int:
    try:
        await PROGRAMS[what](folder)
    except StoreError as error:
        print(json.dumps(str(error)), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s")
    sys.exit(anyio.run(run, sys.argv[1], Path(sys.argv[2])))
