"""Plays an experiment with a library, in the Python that has it, against servers that it starts."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio

from experiments.features.rows import ALLOWED, BROKEN_CALLS, DESCRIPTIONS, GOOD, PATHS, ROWS, TOKEN, Cell, Observed
from tests.oauth.world import world

__all__ = ["CHECKOUT", "observe", "played"]

CHECKOUT = Path(__file__).resolve().parents[2]
_SERVER = Path(__file__).with_name("server.py")
_SECONDS = 90


def scene_in(folder: Path, row: str) -> dict[str, Any]:
    """Return what the player of a row needs, with its files written to a folder."""
    journal = folder / "requests.jsonl"
    journal.touch()
    definition = folder / "description.txt"
    command = [sys.executable, str(_SERVER), "--journal", str(journal), "--tools", ROWS[row].tools, *ROWS[row].options]
    if row == "pins":
        definition.write_text(DESCRIPTIONS[0], encoding="utf-8")
        command += ["--definition", str(definition)]
    file = folder / ".vscode" / "mcp.json"
    file.parent.mkdir()
    server = {"type": "stdio", "command": command[0], "args": command[1:], "env": {"TOKEN": "${input:token}"}}
    prompt = {"type": "promptString", "id": "token", "description": "A token", "password": True}
    file.write_text(json.dumps({"inputs": [prompt], "servers": {"s": server}}), encoding="utf-8")
    return {
        "command": command,
        "journal": str(journal),
        "folder": str(folder),
        "definition": str(definition),
        "descriptions": DESCRIPTIONS,
        "calls": [GOOD, *BROKEN_CALLS.values()],
        "file": str(file),
        "inputs": {"token": TOKEN},
        "paths": PATHS,
        "allowed": ALLOWED,
    }


async def observe(library: str, python: str, row: str, folder: Path) -> Observed:
    """Play an experiment and return what was observed.

    Raises:
        RuntimeError: The player did not end as it should.
    """
    scene = scene_in(folder, row)
    async with world() as here:
        scene["url"] = here.server.url
        environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "NO_PROXY": "*", "HOME": str(folder)}
        command = [python, "-P", "-m", "experiments.features.player", library, row]
        with anyio.fail_after(_SECONDS):
            done = await anyio.run_process(
                command, input=json.dumps(scene).encode(), env=environment, check=False, cwd=folder
            )
    if done.returncode != 0:
        raise RuntimeError(f"{library}, {row}: {done.stderr.decode()[-2000:]}")
    lines = Path(scene["journal"]).read_text(encoding="utf-8").splitlines()
    requests = [json.loads(line) for line in lines]
    return Observed(json.loads(done.stdout.decode().splitlines()[-1]), requests, len(here.host.authorizations()))


async def played(library: str, python: str, row: str, folder: Path) -> tuple[Cell, Observed]:
    """Play an experiment and return its cell, and what was observed."""
    observed = await observe(library, python, row, folder)
    return ROWS[row].cell(library, observed), observed
