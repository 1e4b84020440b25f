"""Config files that cost time, memory or the stack: each is one error, before anybody is asked for trust."""

from __future__ import annotations

import json
import os
import re
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolweave.config import load_config
from toolweave.errors import ConfigError


def failure(path: Path) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    return caught.value


NESTED: dict[str, Callable[[int], str]] = {
    "config.toml": lambda levels: "mcp_servers." + ".".join(["a"] * levels) + " = 1\n",
    "tables.toml": lambda levels: "[mcp_servers." + ".".join(["a"] * levels) + "]\n",
    "inline.toml": lambda levels: "mcp_servers = " + "{a = " * levels + "1" + "}" * levels,
    "mcp.yaml": lambda levels: "mcpServers: " + "{a: " * levels + "1" + "}" * levels,
    "mcp.json": lambda levels: '{"mcpServers":' + '{"a":' * levels + "1" + "}" * levels + "}",
    "list.json": lambda levels: '{"mcpServers":{"a":{"command":"x","args":' + "[" * levels + "]" * levels + "}}}",
}


@pytest.mark.parametrize("levels", [150, 300, 600, 1200, 50_000])
@pytest.mark.parametrize("name", NESTED)
def test_a_config_that_is_nested_too_deeply_is_a_config_error(name: str, levels: int, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(NESTED[name](levels))

    assert re.search("levels deep|too deep|dotted parts", str(failure(path)))


@pytest.mark.parametrize("levels", [150, 600, 5_000])
def test_a_value_from_code_that_is_nested_too_deeply_is_a_config_error(levels: int) -> None:
    value: Any = "x"
    for _ in range(levels):
        value = {"a": value}

    with pytest.raises(ConfigError, match="more than 100 levels deep"):
        load_config({"mcpServers": {"a": value}})


def test_a_value_from_code_that_contains_itself_is_a_config_error() -> None:
    entry: dict[str, Any] = {"command": "x"}
    entry["env"] = entry

    with pytest.raises(ConfigError, match="more than 100 levels deep"):
        load_config({"mcpServers": {"a": entry}})


@pytest.mark.parametrize(
    "text",
    [
        ".".join(["a"] * 20_000) + " = 1\n",
        "x = {" + ". ".join(["a"] * 20_000) + " = 1}\n",
        "[[" + " .".join(['"a"'] * 20_000) + "]]\n",
        "b = 1\n" + ".".join(["'a'"] * 51) + " = 1\n",
    ],
)
def test_a_toml_key_of_very_many_parts_is_refused_before_it_is_parsed(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)

    tracemalloc.start()
    try:
        said = str(failure(path))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert "a key has more than 50 dotted parts" in said
    assert peak < 20_000_000


def test_points_in_strings_of_toml_are_not_parts_of_a_key(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    dotted = ".".join(["a"] * 200)
    path.write_text(f'[mcp_servers.x]\ncommand = "{dotted}"\nargs = [\'{dotted}\', "\\"{dotted}"]\n')

    assert load_config(path).servers["x"].command == dotted


def test_a_file_with_very_many_servers_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {f"s{number}": {"command": "x"} for number in range(10_001)}}))

    assert "it has 10,001 servers; at most 10,000 are read" in str(failure(path))


@pytest.mark.slow
@pytest.mark.parametrize("same_name", [False, True])
def test_a_server_costs_the_same_however_many_a_file_has(same_name: bool, tmp_path: Path) -> None:
    def seconds_each(count: int) -> float:
        servers = [{"name": "s" if same_name else f"s{number}", "command": "x"} for number in range(count)]
        start = time.thread_time()
        load_config({"mcpServers": servers})
        return (time.thread_time() - start) / count

    assert seconds_each(6_000) < 6 * min(seconds_each(300) for _ in range(3))


@pytest.mark.parametrize("name", ["mcp.json", "config.toml", "mcp.yaml"])
def test_a_named_pipe_or_a_device_is_refused_without_waiting_for_a_writer(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    link = tmp_path / f"link-{name}"
    link.symlink_to("/dev/zero")

    assert "not a regular file" in str(failure(tmp_path / name))
    assert "not a regular file" in str(failure(link))


def test_a_config_that_the_shell_pipes_in_is_read() -> None:
    reader, writer = os.pipe()
    os.write(writer, b'{"mcpServers": {"a": {"command": "x"}}}')
    os.close(writer)
    try:
        assert list(load_config(f"/dev/fd/{reader}").servers) == ["a"]
    finally:
        os.close(reader)
