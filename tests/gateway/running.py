"""A gateway in a process of its own, before upstreams that say who they are and hold calls. Judges nothing."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["RunningGateway", "Spoken", "gateway", "spoken", "until", "upstream", "write_gateway_config"]

SECONDS = 60.0

UPSTREAM = """
import os, sys, time
from pathlib import Path
from toolweave import create_mcp_server

server = create_mcp_server(name=sys.argv[1], version=sys.argv[2])
folder = Path(sys.argv[3])

@server.tool
def who() -> dict[str, object]:
    "Say who this is."
    return {"name": sys.argv[1], "version": sys.argv[2], "pid": os.getpid()}

@server.tool
def add(a: int, b: int) -> dict[str, int]:
    "Add two numbers."
    return {"sum": a + b}

@server.tool
def fail() -> str:
    "Fail."
    raise ValueError("on purpose")

@server.tool
def hold(name: str) -> str:
    "Say that it runs, and answer once it is released."
    (folder / f"{name}.running").touch()
    while not (folder / f"{name}.release").exists():
        time.sleep(0.02)
    return f"held by version {sys.argv[2]}"

@server.resource(f"state://{sys.argv[1]}", name="state")
def state() -> str:
    return sys.argv[1]

@server.prompt
def greet() -> str:
    "Greet."
    return f"Hello from {sys.argv[1]}"

server.run_stdio()
"""


def upstream(folder: Path, name: str, version: str = "1") -> dict[str, Any]:
    """Return the entry of an upstream."""
    file = folder / "upstream.py"
    if not file.exists():
        file.write_text(UPSTREAM)
    return {"command": sys.executable, "args": [str(file), name, version, str(folder)]}


def write_gateway_config(
    folder: Path, servers: Mapping[str, Any], section: Mapping[str, Any] | None = None, name: str = "gateway.json"
) -> Path:
    """Write a config at once, as a careful editor does."""
    path, content = folder / name, {"mcpServers": servers}
    new = folder / f"{name}.new"
    new.write_text(json.dumps(content if section is None else {**content, "gateway": section}))
    new.replace(path)
    return path


class Spoken:
    """An answer over plain HTTP."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


def spoken(
    base: str, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, *, raw: bool = False
) -> Spoken:
    """Send one request on a connection of its own."""
    host = base.partition("://")[2]
    connection = http.client.HTTPConnection(host, timeout=SECONDS)
    try:
        data = body if raw else None if body is None else json.dumps(body)
        kind = {} if body is None else {"content-type": "application/json"}
        connection.request(method, path, data, {**kind, **(headers or {})})
        answer = connection.getresponse()
        return Spoken(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    finally:
        connection.close()


class RunningGateway:
    """A gateway that runs.

    Attributes:
        base: Its address.
        said: What it said of itself.
        process: Its process.
        env: The environment in which its commands find it.
    """

    def __init__(self, said: dict[str, Any], process: subprocess.Popen[str], env: Mapping[str, str], log: Path) -> None:
        self.base: str = said["base"]
        self.said = said
        self.process = process
        self.env = env
        self._log = log

    @property
    def log(self) -> str:
        """What it wrote to standard error so far."""
        return self._log.read_text()

    def entry(self, path: str = "/mcp", **more: Any) -> dict[str, Any]:
        """Return the config entry of one of its endpoints."""
        return {"url": self.base + path, **more}

    def spoken(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Spoken:
        """Send one plain request."""
        return spoken(self.base, method, path, body, headers)

    @property
    def token(self) -> str:
        """Its admin token, as commands of this machine find it."""
        (file,) = (Path(self.env["XDG_STATE_HOME"]) / "toolweave" / "gateways").glob("*.token")
        return file.read_text()

    def admin(self, method: str, path: str, body: Any = None) -> Spoken:
        """Send one request to the admin API."""
        return self.spoken(method, f"/admin{path}", body, {"authorization": f"Bearer {self.token}"})

    def status(self) -> Any:
        """Return its status."""
        return self.admin("GET", "/status").json

    def hang_up(self) -> None:
        """Send SIGHUP."""
        self.process.send_signal(signal.SIGHUP)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.process.send_signal(signal.SIGTERM)


@contextmanager
def gateway(
    folder: Path,
    config: Path,
    *args: object,
    env: Mapping[str, str] | None = None,
    address: str = "127.0.0.1:0",
    drain: float | None = 0.5,
) -> Generator[RunningGateway, None, None]:
    """Run a gateway over HTTP on a free port; `drain` is None for one without any option."""
    command = [sys.executable, "-m", "toolweave", "gateway", "--config", str(config), *map(str, args)]
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), **(env or {})}
    log = folder / f"gateway-{time.monotonic_ns()}.log"
    with (
        log.open("w") as stderr,
        subprocess.Popen(
            [*command, "--http", address, "--json", *([] if drain is None else ["--drain", str(drain)])],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, log.read_text()
            yield RunningGateway(json.loads(line), process, environment, log)
        finally:
            process.terminate()
            try:
                process.communicate(timeout=SECONDS)
            finally:
                process.kill()


def until(holds: Callable[[], object], what: str = "it") -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"{what} never came"
        time.sleep(0.02)
