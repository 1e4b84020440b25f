"""A server's process gets no more than its entry says: environment, limits, and a sandbox, tried by real processes."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.definitions.changing_server import definition, write
from tests.programs import ran
from toolweave import ConfigError, ConnectError, ServerConfig, connect_mcp
from toolweave.config import ResourceLimits, Sandbox

SERVER = Path(__file__).parents[1] / "definitions" / "changing_server.py"


def sandboxed() -> str | None:
    """Return why there is no sandbox here, or None."""
    program = shutil.which("bwrap")
    if program is None:
        return "platform: bwrap is not installed; apt-get install bubblewrap"
    words = [program, "--ro-bind", "/", "/", "--unshare-user-try", "--unshare-pid", "--unshare-net", "true"]
    done = ran(words)
    return None if done.returncode == 0 else f"platform: bwrap does not work here: {done.stderr.strip()}"


NO_SANDBOX = sandboxed()
needs_sandbox = pytest.mark.skipif(NO_SANDBOX is not None, reason=str(NO_SANDBOX))


def entry(folder: Path, **settings: Any) -> dict[str, Any]:
    """Return the entry of a server that tells what it may do."""
    file = write(folder / "tools.json", definition("probe"))
    return {"command": sys.executable, "args": [str(SERVER), str(file)], "cwd": str(folder), **settings}


async def probed(config: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    async with connect_mcp(config, name="confined") as connection:
        result = await connection.call_tool("probe", {"write": [], "ports": [], **arguments})
    return json.loads(result.text)


@pytest.fixture
def port() -> Iterator[int]:
    """A port of the host that accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


async def test_a_server_gets_no_secret_of_our_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "ghp_secret")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")

    names = (await probed(entry(tmp_path, env={"OWN": "1"})))["environment"]

    assert {"PATH", "HOME", "OWN"} <= set(names)
    assert not {"GITHUB_TOKEN", "ANTHROPIC_API_KEY"} & set(names)


@pytest.mark.skipif(sys.platform != "linux", reason="platform: RLIMIT_DATA bounds memory on Linux alone")
async def test_limits_hold_in_the_process_of_the_server(tmp_path: Path) -> None:
    limits = {"memory_bytes": 300_000_000, "cpu_seconds": 50, "open_files": 64, "processes": 5_000}

    seen = await probed(entry(tmp_path, limits=limits), memory=600_000_000)

    assert seen["memory"] == "MemoryError"
    assert (seen["limits"]["RLIMIT_DATA"], seen["limits"]["RLIMIT_CPU"]) == (300_000_000, 50)
    assert (seen["limits"]["RLIMIT_NOFILE"], seen["limits"]["RLIMIT_NPROC"]) == (64, 5_000)


async def test_without_limits_a_server_has_ours(tmp_path: Path) -> None:
    import resource

    seen = await probed(entry(tmp_path))

    assert seen["limits"]["RLIMIT_NOFILE"] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]


async def test_a_server_within_limits_is_the_process_we_started_and_ends_with_the_connection(tmp_path: Path) -> None:
    async with connect_mcp(entry(tmp_path, limits={"open_files": 64}), name="confined") as connection:
        process = connection.report.process
        assert process is not None
        command = Path(f"/proc/{process.pid}/cmdline").read_bytes() if sys.platform == "linux" else b"changing_server"
        assert b"changing_server" in command

    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


@needs_sandbox
async def test_in_the_sandbox_only_what_is_named_is_writable(tmp_path: Path) -> None:
    folder, own = tmp_path / "project", tmp_path / "own"
    folder.mkdir()
    own.mkdir()
    config = entry(folder, sandbox={"type": "bwrap", "writable": [str(own)]})

    seen = await probed(config, write=[str(folder), str(own), "/usr", "/tmp"])

    assert seen["write"] == {str(folder): "OSError", str(own): "done", "/usr": "OSError", "/tmp": "done"}
    assert (own / "mark").exists()
    assert not Path("/tmp/mark").exists()  # it has a temporary folder of its own


@needs_sandbox
@pytest.mark.parametrize(("network", "outcome"), [(True, "done"), (False, "ConnectionRefusedError")])
async def test_the_sandbox_has_the_network_or_not(tmp_path: Path, port: int, network: bool, outcome: str) -> None:
    seen = await probed(entry(tmp_path, sandbox={"type": "bwrap", "network": network}), ports=[port])

    assert seen["connect"] == [outcome] if network else seen["connect"][0] != "done"


@needs_sandbox
async def test_in_the_sandbox_no_other_process_is_seen(tmp_path: Path) -> None:
    assert (await probed(entry(tmp_path, sandbox="bwrap")))["processes"] <= 3


@needs_sandbox
async def test_limits_hold_in_the_sandbox_too(tmp_path: Path) -> None:
    seen = await probed(entry(tmp_path, sandbox="bwrap", limits={"open_files": 64}))

    assert seen["limits"]["RLIMIT_NOFILE"] == 64


@needs_sandbox
async def test_a_writable_folder_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    config = entry(tmp_path, sandbox={"type": "bwrap", "writable": ["nowhere"]})

    with pytest.raises(ConnectError, match=r"sandbox\.writable.*nowhere.*does not exist"):
        await connect_mcp(config, name="confined")


async def test_without_the_program_nothing_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ConnectError, match=r"needs the program 'bwrap'.*install bubblewrap"):
        await connect_mcp(entry(tmp_path, sandbox="bwrap"), name="confined")


async def test_where_the_system_refuses_namespaces_nothing_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    with pytest.raises(ConnectError, match=r"No permissions to create new namespace; .*allow user namespaces"):
        await connect_mcp(entry(tmp_path, sandbox="bwrap"), name="confined")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"limits": {"memory": 1}}, "'limits' has no setting 'memory'"),
        ({"limits": {"memory_bytes": 0}}, "at least 1"),
        ({"limits": {"memory_bytes": "much"}}, "whole number"),
        ({"limits": 3}, "must be an object"),
        ({"sandbox": "chroot"}, "known: bwrap"),
        ({"sandbox": {"type": "bwrap", "writeable": []}}, "'sandbox' has no setting 'writeable'"),
        ({"sandbox": {"type": "bwrap", "network": "no"}}, "true or false"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        ServerConfig(name="x", command="y", **settings)


def test_the_settings_survive_a_round_trip() -> None:
    config = ServerConfig(
        name="x", command="y", limits=ResourceLimits(open_files=64), sandbox=Sandbox(writable=["a"], network=False)
    )
    made = config.to_dict()

    assert made["limits"] == {"open_files": 64}
    assert ServerConfig(**config.to_mapping()) == config
