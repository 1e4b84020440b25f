"""Libraries that are loaded late cost no bound of a connection and no call."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import anyio
import pytest

from tests.connect.targets import connected
from tests.servers.fixtures import echo_command
from tests.servers.sdk_server import low_level
from toolweave import ConfigError, connect_mcp
from toolweave.connect import _transports

SLOW = "import time\ntime.sleep({seconds})\nfrom toolweave.connect._sdk import in_process_channel\n"
EXHAUSTED = """
import anyio, os, resource, sys
from toolweave import connect_mcp

async def main():
    async with connect_mcp({"command": sys.argv[1], "args": sys.argv[2:]}) as connection:
        tools = await connection.list_tools()
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
        try:
            open("/dev/null")
            print("left")
        except OSError:
            print("none left")
        first = await tools["echo"].execute({"text": ["not", "plain"]})  # has to be checked
        print(first.error.retryable, first.text)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        print((await tools["echo"].execute({"text": "again"})).text)

anyio.run(main)
"""


@pytest.mark.slow
async def test_what_loading_the_sdk_takes_does_not_count_against_the_bound_of_connecting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_sdk.py").write_text(SLOW.format(seconds=4))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(_transports, "_SDK", "slow_sdk")
    config = {"server": low_level()}
    options = {"timeout": {"connect": 2, "probe": 0.5, "list": 0.5, "close": 0.5}}
    async with connected({**config, **options}, 30) as connection:
        assert (await connection.call_tool("echo", {"text": "hi"})).text == "hi"
        assert connection.report.steps[0].name == "load the SDK"


async def test_a_connection_can_be_given_up_while_the_sdk_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slower_sdk.py").write_text(SLOW.format(seconds=1))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(_transports, "_SDK", "slower_sdk")
    with anyio.fail_after(20):
        with anyio.move_on_after(0.2) as given_up:
            async with connected({"server": low_level()}):
                raise AssertionError("it was there before the SDK was")
        assert given_up.cancelled_caught


async def test_a_server_object_of_the_sdk_without_the_sdk_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no_sdk.py").write_text("import mcp_that_is_not_installed\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(_transports, "_SDK", "no_sdk")
    with anyio.fail_after(20), pytest.raises(ConfigError, match=r"pip install 'toolweave\[sdk\]'"):
        await connect_mcp({"server": low_level()})


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="platform: counts descriptors as Linux does")
async def test_a_first_call_without_a_file_descriptor_left_is_an_error_and_the_next_one_works() -> None:
    command = [sys.executable, "-c", EXHAUSTED, *echo_command()]
    with anyio.fail_after(60):
        done = await anyio.run_process(command, check=False)
    lines = done.stdout.decode().splitlines()
    assert [lines[0], lines[-1]] == ["none left", "again"], done.stderr.decode()
    assert re.fullmatch(
        r"True arguments cannot be checked: .*Too many open files.*; close files or connections", lines[1]
    )
