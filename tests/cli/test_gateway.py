"""`toolweave gateway`: one that runs, and the commands that show and change it."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import COMMAND, Done, on_terminal, toolweave, write_config
from tests.cli.conftest import Cli
from tests.gateway.running import gateway, spoken, until, upstream, write_gateway_config
from toolweave import connect_mcp

TEST_SECONDS = 90

NUMBERS = [sys.executable, "-m", "toolweave.cli.demo.numbers"]


@pytest.mark.slow
async def test_a_config_is_served_over_stdio(folder: Path) -> None:
    config = write_config(folder, {"numbers": NUMBERS})
    entry = {"command": sys.executable, "args": ["-m", "toolweave", "gateway", "--config", str(config)]}
    async with connect_mcp(entry, name="g") as connection:
        assert (await connection.call_tool("numbers_add", {"values": [1, 2]})).structured_content == {"sum": 3}
        assert connection.server_info["name"] == "toolweave"


@pytest.mark.slow
def test_servers_are_added_listed_and_removed_by_command(folder: Path) -> None:
    section = {"virtual": {"v": {"title": "Viewed"}}}
    config = write_gateway_config(folder, {"a": upstream(folder, "a")}, section)
    with gateway(folder, config) as running:

        def run(*words: object) -> Done:
            command, *rest = words
            return toolweave("gateway", command, "--url", running.base, *rest, env=running.env)

        added = run("add", "b", "--", *NUMBERS)
        assert (added.code, added.out) == (0, "server 'b' is ready, with 3 tools\n")
        entry = run("add", "c", "--json", "--entry", json.dumps({"command": NUMBERS[0], "args": NUMBERS[1:]}))
        assert (entry.json["name"], entry.json["tools"]) == ("c", 3)
        listed = run("list")
        assert [line.split()[:2] for line in listed.out.splitlines() if " ready " in line] == [
            ["a", "ready"],
            ["b", "ready"],
            ["c", "ready"],
        ]
        assert [one["added"] for one in run("list", "--json").json["servers"]] == [False, True, True]
        assert run("remove", "c").code == 0
        gone = run("remove", "c", "--json")
        assert (gone.code, gone.json["error"]["kind"]) == (2, "invalid_input")

        shown = run("status")
        assert shown.code == 0
        assert "/mcp/v" in shown.out
        assert "Viewed" in shown.out
        assert run("status", "--json").json["ready"] is True

        failed = run("add", "x", "--", "toolweave-test-no-such-command")
        assert (failed.code, "server 'x'" in failed.err) == (3, True)

        write_gateway_config(folder, {"d": upstream(folder, "d")}, section)
        changed = run("reload")
        assert (changed.code, changed.out.splitlines()) in (
            (0, ["added: d", "removed: a", "unchanged: 1"]),
            (0, ["unchanged: 2"]),  # it had seen the change itself
        )
        config.write_text("{")
        refused = run("reload", "--json")
        assert (refused.code, str(config) in refused.json["error"]) == (2, True)
        assert run("reload").code == 2

        config.write_text("")
        lost = run("reload")
        assert (lost.code, "toolweave gateway reload --yes" in lost.err) == (2, True)
        applied = run("reload", "--yes")
        assert (applied.code, applied.out.splitlines()) == (0, ["removed: d", "unchanged: 1"])


@pytest.mark.slow
def test_a_gateway_that_is_not_ready_shows_in_the_exit_code(folder: Path) -> None:
    servers = {"gone": {"command": "toolweave-test-no-such-command"}}
    config = write_gateway_config(folder, servers, {"required": ["gone"]})
    with gateway(folder, config) as running:
        done = toolweave("gateway", "status", "--url", running.base, env=running.env)

        assert done.code == 3
        assert "not ready" in done.out
        assert "no such command" in done.out or "not found" in done.out or "failed" in done.out


@pytest.mark.slow
def test_the_status_of_a_gateway_shows_the_next_step_for_each_server_that_failed(folder: Path) -> None:
    program = "import sys; sys.exit('ModuleNotFoundError: No module named 'tides'')"
    config = write_gateway_config(folder, {"tides": {"command": sys.executable, "args": ["-c", program]}})
    with gateway(folder, config) as running:
        until(lambda: running.status()["upstreams"][0]["error"], "the failure")
        shown = toolweave("gateway", "status", "--url", running.base, env=running.env)
        found = toolweave("gateway", "status", "--url", running.base, "--json", env=running.env).json

        step = "its Python has no module 'tides': install the package that has it"
        assert f"hint: server 'tides': {step}" in " ".join(shown.err.split())
        assert found["upstreams"][0]["hint"].startswith(step)


@pytest.mark.slow
def test_a_gateway_without_the_package_of_its_console_prints_how_to_get_it(folder: Path) -> None:
    config = write_config(folder, {"numbers": NUMBERS})
    without_jinja = (
        "import importlib.util as u, sys\n"
        "found = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'jinja2' else found(name, *rest)\n"
        "from toolweave.cli.main import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    words = ("gateway", "--config", config, "--http", "127.0.0.1:0", "--drain", "0")
    with on_terminal(*words, cwd=folder, program=(sys.executable, "-c", without_jinja)) as terminal:
        assert terminal.wait_for(r"no console: pip install 'toolweave\[console\]' adds it")


@pytest.mark.slow
def test_a_terminal_shows_a_link_to_the_console_and_a_log_does_not(folder: Path) -> None:
    config = write_config(folder, {"numbers": NUMBERS})
    words = ("gateway", "--config", config, "--http", "127.0.0.1:0", "--drain", "0")
    told = folder / "told"
    with on_terminal(*words, cwd=folder) as terminal:
        shown = terminal.wait_for(r"console: http://\S+/ui/\?token=[\w-]{43}\s")
        found = re.search(r"console: (http://[^/]+)(\S+)", shown)
        assert found is not None
        assert "set-cookie" in spoken(found[1], "GET", found[2]).headers

    logged = ("/bin/sh", "-c", f"exec \"$@\" 2>'{told}'", "sh", *COMMAND)
    told.touch()
    with on_terminal(*words, cwd=folder, program=logged):
        until(lambda: "makes a link that signs in" in told.read_text(), "the line about the console")
        assert "token=" not in told.read_text()


@pytest.mark.parametrize(
    "words, message",
    [
        (["--http", "8000"], "a config is expected"),
        (["--config", "c.json", "--metrics"], "--metrics goes with --http"),
        (["--config", "c.json", "--ui"], "--ui goes with --http"),
        (["--config", "c.json", "--http", "0", "--ui", "--no-ui"], "--ui does not go with --no-ui"),
        (["--config", "c.json", "--http", "0", "--ui", "--workers", "2"], "does not go with --workers"),
        (["--config", "c.json", "--json"], "standard output carries the protocol"),
        (["--config", "c.json", "--http", "here:there"], "expected a port or HOST:PORT"),
        (["--config", "missing.json", "--http", "0"], "the file does not exist"),
        (["--config", "c.json", "--http", "0", "--admin-token-env", "TOOLWEAVE_TEST_UNSET"], "is not set"),
        (["--config", "empty.json"], "no server to serve"),
        (["add", "x"], "one of --server-url"),
        (["add", "x", "--entry", "{"], "is not JSON"),
        (["add", "x", "--entry", "[]"], "must be an object"),
        (["list", "--url", "nowhere"], "not the address of a gateway"),
    ],
)
def test_wrong_usage_is_told_and_exits_with_2(cli: Cli, folder: Path, words: list[Any], message: str) -> None:
    write_config(folder, {"numbers": NUMBERS}, "c.json")
    write_config(folder, {}, "empty.json")

    done = cli("gateway", *words)

    assert done.code == 2
    assert message in done.err
