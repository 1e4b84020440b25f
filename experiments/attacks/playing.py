"""Plays scenarios with the libraries that are compared, each in an environment of its own. Knows no attack."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import anyio

__all__ = ["CHECKOUT", "NONE", "Outcome", "Peer", "play"]

CHECKOUT = Path(__file__).resolve().parent.parent.parent
NONE = "no such feature"
_PLAYER = Path(__file__).with_name("player.py")
_SECONDS = 90


class Peer(NamedTuple):
    """A library that is played."""

    name: str
    python: str
    environment: Mapping[str, str] = {}


class Outcome(NamedTuple):
    """What came of a scenario; see `player.py`."""

    steps: Sequence[Mapping[str, Any]]
    said: Sequence[str]
    opened: Sequence[str]
    megabytes: int

    def _step(self, number: int) -> Mapping[str, Any]:
        return self.steps[number] if number < len(self.steps) else self.steps[-1]

    def tools(self, number: int) -> Sequence[Mapping[str, Any]]:
        """Return the definitions of a step."""
        return self._step(number).get("tools", ())

    def text(self, number: int) -> str:
        """Return the text of a call, or its error."""
        step = self._step(number)
        return str(step.get("text", step.get("error", "")))

    def error(self, number: int) -> str:
        """Return the error of a step, or nothing."""
        return str(self._step(number).get("error", ""))


async def play(
    peer: Peer, servers: Mapping[str, Any], steps: Sequence[Any], *, sign_in: Mapping[str, str] | None = None
) -> Outcome:
    """Play steps with a peer.

    Raises:
        RuntimeError: The player did not end as it should.
    """
    scenario = {"servers": servers, "steps": steps, "sign_in": sign_in, "pause": 0.3}
    folders = [CHECKOUT, CHECKOUT / "src"] if peer.name.startswith("toolweave") else [CHECKOUT]
    path = os.pathsep.join(map(str, folders))
    environment = {**os.environ, "PYTHONPATH": path, "NO_PROXY": "*", **peer.environment}
    command = [peer.python, "-P", str(_PLAYER), peer.name]
    with anyio.fail_after(_SECONDS):
        done = await anyio.run_process(
            command, input=json.dumps(scenario).encode(), env=environment, check=False, cwd=CHECKOUT
        )
    if done.returncode != 0:
        raise RuntimeError(f"{peer.name}: {done.stderr.decode()[-2000:]}")
    return Outcome(**json.loads(done.stdout.decode().splitlines()[-1]))
