"""One gateway with its console for the tests of a module, each test with a browser of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.console.browsing import Browser, signed_in
from tests.gateway.running import RunningGateway, gateway, write_gateway_config

SERVED = str(Path(__file__).with_name("served.py"))
PAGED = str(Path(__file__).with_name("paged.py"))
SECRET = "hunter2-is-a-secret"


def served(name: str, version: str = "1", **more: Any) -> dict[str, Any]:
    """Return the entry of an upstream."""
    return {"command": sys.executable, "args": [SERVED, name, version], **more}


def link(running: RunningGateway) -> str:
    """Return a new link to the console."""
    return running.admin("POST", "/console", {}).json["path"]


def browse(running: RunningGateway) -> Browser:
    """Return a browser that is signed in."""
    return signed_in(running.base, link(running))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, _session_home: None) -> Iterator[RunningGateway]:
    """A gateway in front of a server that works and one that cannot be started."""
    folder = tmp_path_factory.mktemp("console")
    servers = {
        "kitchen": served("kitchen", env={"API_TOKEN": SECRET}),
        "gone": {"command": "toolweave-test-no-such-command", "args": ["--token", SECRET]},
    }
    section = {
        "virtual": {"waiters": {"servers": ["kitchen"], "title": "For <i>waiters</i>"}},
        "middleware": [
            {
                "name": "access_rules",
                "default": "allow",
                "rules": [{"effect": "deny", "names": ["kitchen_secret"], "clients": ["console"]}],
            }
        ],
    }
    config = write_gateway_config(folder, servers, section)
    with gateway(folder, config, env={"XDG_DATA_HOME": str(folder / "data")}) as one:
        yield one


@pytest.fixture
def browser(running: RunningGateway) -> Browser:
    """A browser that is signed in."""
    return browse(running)
