"""Several processes with one token: a refresh token that is used twice is worth nothing, so that one of them renews."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from tests.oauth.world import world
from toolweave.oauth import FileTokenStore, sign_in

pytestmark = pytest.mark.slow
BOUND_SECONDS = 120
PROGRAM = """
import asyncio, sys
from toolweave import connect_mcp
from toolweave.oauth import FileTokenStore, OAuth

async def main():
    url, path = sys.argv[1:]
    target = {"name": "s", "url": url, "protocol": "2026-07-28", "auth": OAuth(store=FileTokenStore(path))}
    async with connect_mcp(target) as connection:
        print((await connection.call_tool("t")).text)

asyncio.run(main())
"""


async def test_three_processes_that_find_an_ended_token_renew_it_once(tmp_path: Path) -> None:
    path = tmp_path / "kept" / "tokens.json"
    answers: list[str] = []

    async def run(url: str) -> None:
        command = [sys.executable, "-W", "error", "-c", PROGRAM, url, str(path)]
        with anyio.fail_after(BOUND_SECONDS):
            done = await anyio.run_process(command, check=False, stderr=subprocess.PIPE)
        answers.append(done.stdout.decode().strip() or done.stderr.decode())

    async with world() as here:
        store = FileTokenStore(path)
        settings = here.settings(store=store)
        await sign_in(settings, here.server.url, server="s", store=store, user_agent=here.person)
        here.host.tokens.clear()
        here.host.delay = 0.5
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(run, here.server.url)
        assert answers == ["done"] * 3
        assert len(here.host.forms("refresh_token")) == 1
        (record,) = await store.records()
        assert record.access_token in here.host.tokens
        assert record.refresh_token in here.host.refresh_tokens
