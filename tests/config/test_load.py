"""Config files and the same content as values, through `load_config`."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from toolweave import create_mcp_server
from toolweave.config import (
    LoadedConfig,
    Secret,
    ServerConfig,
    Timeouts,
    load_config,
    merge_loaded,
)
from toolweave.errors import ConfigError

ENTRY = {"command": "uvx", "args": ["pkg"]}
EXPECTED = ServerConfig(name="a", command="uvx", args=["pkg"])


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def failure(path: Path) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    return caught.value


@pytest.mark.requirement("R8")
@pytest.mark.parametrize(
    "document",
    [
        {"mcpServers": {"a": ENTRY}},
        {"mcp_servers": {"a": ENTRY}},
        {"servers": {"a": ENTRY}},
        {"servers": [{"name": "a", **ENTRY}]},
        {"context_servers": {"a": ENTRY}},
        {"mcp": {"servers": {"a": ENTRY}, "inputs": []}},
        {"mcp": {"a": {"type": "local", "command": ["uvx", "pkg"]}}},
        {"tools": {"mcp_servers": {"a": ENTRY}}},
        {"tool": {"toolweave": {"servers": {"a": ENTRY}}}},
        {"tool": {"toolweave": {"mcpServers": {"a": ENTRY}}}},
        {"amp.mcpServers": {"a": ENTRY}},
        [{"name": "a", **ENTRY}],
        [{"serverName": "a", "transport": "stdio", "connection": ENTRY}],
        {"name": "a", **ENTRY},
        {"serverName": "a", "transport": "stdio", "connection": ENTRY},
        {"a": ENTRY},
        {"$schema": "x", "a": ENTRY},
    ],
)
def test_every_outline_holds_the_same_server(document: Any, tmp_path: Path) -> None:
    path = write(tmp_path, "any.json", json.dumps(document))

    loaded = load_config(path)

    assert loaded.servers["a"] == EXPECTED
    assert loaded.paths == (path,)


@pytest.mark.requirement("R4")
def test_the_squidbot_example_loads_verbatim(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "settings.json",
        """{"mcp_servers": {
             "github": {"transport": "stdio", "command": "uvx", "args": ["mcp-server-github"],
                        "env": {"GITHUB_TOKEN": "..."}},
             "myapi": {"transport": "http", "url": "http://localhost:8080/mcp"}}}""",
    )

    loaded = load_config(path)

    assert loaded.servers == {
        "github": ServerConfig(
            name="github", command="uvx", args=["mcp-server-github"], env={"GITHUB_TOKEN": Secret("...")}
        ),
        "myapi": ServerConfig(name="myapi", url="http://localhost:8080/mcp"),
    }
    assert (loaded.errors, loaded.warnings) == ({}, ())


@pytest.mark.requirement("R5")
def test_the_kitn_list_loads() -> None:
    loaded = load_config(
        {
            "servers": [
                {"name": "gh", "transport": {"type": "http", "url": "https://h/mcp"}, "headers": {"A": "b"}},
                {"name": "db", "transport": {"type": "stdio", "command": "node", "args": ["s.js"]}},
            ]
        }
    )

    assert list(loaded.servers) == ["gh", "db"]


@pytest.mark.requirement("F3")
def test_yaml_services_load(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "axle.yaml",
        """\
services:
  mcp:
    - name: filesystem
      transport: stdio
      command: npx
      args: ["-y", "@modelcontextprotocol/server-filesystem", "/home/user"]
      protocol: 2025-06-18
    - name: github
      transport: http
      url: http://localhost:3000/mcp
    - name: bad
      transport: http
""",
    )

    loaded = load_config(path)

    fs = loaded.servers["filesystem"]
    assert fs.args == ("-y", "@modelcontextprotocol/server-filesystem", "/home/user")
    assert fs.protocol == "2025-06-18"
    assert loaded.servers["github"].url == "http://localhost:3000/mcp"
    assert [(source.line if (source := config.source) else None) for config in loaded.servers.values()] == [3, 8]
    assert loaded.errors["bad"].line == 11


@pytest.mark.requirement("R8")
def test_codex_toml_loads_with_lines(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "config.toml",
        """\
model = "o9"

[mcp_servers.docs]
command = "npx"
args = ["-y", "docs"]

[mcp_servers.docs.env]
API_KEY = "v"

[mcp_servers."with space"]
url = "ftp://h"

[mcp_servers]
inline = { command = "" }
""".replace('[mcp_servers]\ninline = { command = "" }\n', ""),
    )

    loaded = load_config(path)

    assert loaded.servers["docs"].env_values() == {"API_KEY": "v"}
    assert loaded.servers["docs"].source is not None
    assert loaded.servers["docs"].source.line == 3
    assert loaded.errors["with space"].line == 10


def test_toml_lists_and_inline_tables_have_lines(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "x.toml",
        """\
[[services.mcp]]
name = "one"
command = "x"

[[services.mcp]]
name = "two"

[tool.toolweave.servers]
three = { transport = "http" }
'four' = { command = "x" }
""",
    )

    loaded = load_config(path)

    assert set(loaded.servers) == {"one", "four"}
    assert {name: error.line for name, error in loaded.errors.items()} == {"two": 5, "three": 9}


def test_pyproject_loads(tmp_path: Path) -> None:
    path = write(tmp_path, "pyproject.toml", '[project]\nname = "p"\n[tool.toolweave.servers.a]\ncommand = "x"\n')

    assert list(load_config(path).servers) == ["a"]


@pytest.mark.requirement("R8")
def test_json_with_comments_and_trailing_commas_loads_with_its_lines(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "mcp.json",
        """\
// servers of the team
{
  /* a comment
     of two lines */
  "mcpServers": {
    "a": { "command": "uvx", "args": ["pkg",], }, // why
    "b": { "url": "http://h/*no-comment*/", },
    "bad": {
      "transport": "http",
    },
  },
}
""",
    )

    loaded = load_config(path)

    assert loaded.servers["a"] == EXPECTED
    assert loaded.servers["b"].url == "http://h/*no-comment*/"
    assert {n: c.source.line for n, c in loaded.servers.items() if c.source} == {"a": 6, "b": 7}
    assert str(loaded.errors["bad"]) == (
        f"{path}:8: server 'bad': transport 'http' needs 'url', the address of the MCP endpoint"
    )


@pytest.mark.requirement("C3", "R8")
def test_a_bad_entry_disables_that_server_and_not_the_file(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "mcp.json",
        """\
{"mcpServers": {
  "good": {"command": "x"},
  "unset": {"command": "x", "env": {"TOKEN": "${SURELY_NOT_SET}"}},
  "word": "npx pkg",
  "transport": {"transport": "smoke", "command": "x"},
  "args": {"command": "x", "args": "-y"},
  "null": null,
  "also good": {"url": "http://h"}
}}
""",
    )

    loaded = load_config(path)

    assert list(loaded.servers) == ["good", "also good"]
    assert {name: (error.server, error.path, error.line) for name, error in loaded.errors.items()} == {
        "unset": ("unset", str(path), 3),
        "word": ("word", str(path), 4),
        "transport": ("transport", str(path), 5),
        "args": ("args", str(path), 6),
        "null": ("null", str(path), 7),
    }
    assert "SURELY_NOT_SET" in str(loaded.errors["unset"])
    assert "must be an object, not a string" in str(loaded.errors["word"])


@pytest.mark.requirement("R67", "C3")
def test_an_unknown_transport_in_a_file_is_recorded_for_that_server(tmp_path: Path) -> None:
    path = write(tmp_path, "mcp.json", '{"mcpServers": {"s": {"transport": "smoke", "command": "x"}}}')

    error = load_config(path).errors["s"]

    assert isinstance(error, ValueError)
    assert (error.server, error.field) == ("s", "transport")


@pytest.mark.requirement("C5")
def test_websocket_in_a_file_is_remarked_and_warns_nobody_else(tmp_path: Path) -> None:
    path = write(tmp_path, "mcp.json", '{"mcpServers": {\n"s": {"transport": "websocket", "url": "http://h"}}}')

    loaded = load_config(path)

    assert loaded.servers["s"].transport == "http"
    assert loaded.warnings[0].startswith(f"{path}:2: server 's': transport 'websocket' is an old name")


def test_remarks_are_logged_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path, "mcp.json", '{"mcpServers": {"s": {"command": "x", "colour": "red"}}}')

    with caplog.at_level(logging.WARNING, logger="toolweave"):
        loaded = load_config(path)

    assert loaded.servers["s"].options == {"colour": "red"}
    assert [record.message for record in caplog.records] == list(loaded.warnings)


def test_a_name_defined_twice_counts_last_with_a_remark(tmp_path: Path) -> None:
    twice = write(tmp_path, "a.json", '{"mcpServers": {\n"s": {"command": "x"},\n"s": {"command": "y"}}}')
    yaml = write(tmp_path, "a.yaml", "mcpServers:\n  s:\n    command: x\n  s:\n    command: y\n")
    both = write(tmp_path, "b.json", '{"mcpServers": {"s": {"command": "x"}}, "servers": {"s": {"command": "y"}}}')
    worse = write(tmp_path, "c.json", '{"mcpServers": {"s": {"command": "x"}}, "servers": {"s": {}}}')

    for path, lines in ((twice, ", in lines 2, 3"), (yaml, ", in lines 2, 4"), (both, "")):
        loaded = load_config(path)
        assert loaded.servers["s"].command == "y"
        assert f"server 's': is defined twice{lines}; the last entry counts" in loaded.warnings[0]
    assert list(load_config(worse).errors) == ["s"]
    assert not load_config(worse).servers


@pytest.mark.parametrize("switch", ['"disabled": true', '"enabled": false', '"isActive": false', '"disabled": "${ON}"'])
def test_a_switched_off_entry_is_named_and_not_judged(switch: str, tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "mcp.json",
        f'{{"mcpServers": {{"off": {{"env": {{"A": "${{NOPE}}"}}, {switch}}}, "on": {{"url": "http://h"}}}}}}',
    )

    loaded = load_config(path, env={"ON": "true"})

    assert loaded.disabled == ("off",)
    assert (list(loaded.servers), loaded.errors) == (["on"], {})


def test_an_entry_that_is_switched_on_is_loaded() -> None:
    loaded = load_config({"a": {"command": "x", "enabled": True}, "b": {"command": "x", "disabled": "maybe"}})

    assert list(loaded.servers) == ["a"]
    assert loaded.errors["b"].server == "b"


@pytest.mark.requirement("R70", "D9")
def test_entries_of_a_list_without_a_name_are_each_an_error_of_their_own(tmp_path: Path) -> None:
    path = write(tmp_path, "l.json", '[{"command": "x"},\n{"name": "a", "command": "y"},\n{"command": "z"},\n"word"]')

    loaded = load_config(path)

    assert list(loaded.servers) == ["a"]
    assert {name: (error.field, error.line) for name, error in loaded.errors.items()} == {
        "entry 1": ("name", 1),
        "entry 3": ("name", 3),
        "entry 4": (None, 4),
    }


@pytest.mark.requirement("D9")
def test_servers_given_in_code_without_a_name_get_different_ones() -> None:
    loaded = load_config(["http://h/one", "http://h/two", ServerConfig(name="mine", url="http://h/3"), ["npx", "pkg"]])

    assert {name: config.url or config.command for name, config in loaded.servers.items()} == {
        "h": "http://h/one",
        "h-2": "http://h/two",
        "mine": "http://h/3",
        "pkg": "npx",
    }


def test_entries_from_code_may_be_anything_that_means_a_server() -> None:
    server = create_mcp_server(name="own")

    loaded = load_config(
        {
            "config": ServerConfig(name="other", command="x"),
            "link": "http://h",
            "object": server,
            "off": ServerConfig(command="x", disabled=True),
            "bad": 5,
        }
    )

    assert loaded.servers["config"].name == "config"
    assert loaded.servers["object"].server is server
    assert (loaded.disabled, loaded.errors["bad"].server) == (("off",), "bad")
    assert load_config(loaded) is loaded


def test_one_entry_alone_is_named_after_what_it_runs() -> None:
    assert list(load_config({"command": "uvx", "args": ["mcp-server-time"]}).servers) == ["mcp-server-time"]
    assert load_config({"transport": "stdio"}).errors


def test_vs_code_settings_may_hold_other_things_under_mcp(tmp_path: Path) -> None:
    path = write(tmp_path, "settings.json", '{"mcp": {"discovery": {"enabled": true}}, "editor.tabSize": 2}')

    assert "no place for servers" in str(failure(path))


def test_the_part_of_claude_code_for_this_project_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    projects = {str(tmp_path): {"mcpServers": {"mine": ENTRY}}, "/other": {"mcpServers": {"theirs": ENTRY}}}
    path = write(tmp_path, ".claude.json", json.dumps({"mcpServers": {"all": ENTRY}, "projects": projects}))

    assert list(load_config(path).servers) == ["all", "mine"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, text, line, part",
    [
        (
            "a.json",
            '{"mcpServers": {\n  "a": {"command": "x"\n}',
            3,
            "not valid JSON: Expecting ',' delimiter at column 2",
        ),
        ("a.json", '{"a": "b', 1, "Unterminated string starting at column 7"),
        ("a.json", "{'a': 1}", 1, "property name enclosed in double quotes"),
        ("a.json", "/* never closed", 1, "Expecting value"),
        ("a.json", '{"a": 1} x', 1, "Extra data"),
        ("a.json", '{"a": ' + "9" * 5000 + "}", None, "not valid JSON"),
        ("a.json", "[" * 100_000, None, "nested more than 100 levels deep"),
        ("a.yaml", "a: [1,\nb: 'x\n", 3, "not valid YAML"),
        ("a.yaml", "a: 1\n\tb: 2\n", 2, "not valid YAML"),
        ("a.yaml", "a: *gone\n", 1, "undefined alias"),
        ("a.yaml", "a: &x [*x]\n", 1, "an alias refers to what it is part of"),
        ("a.yaml", "a: !!python/object:os.system {}\n", 1, "could not determine a constructor"),
        ("a.yaml", "a: 1\n---\nb: 2\n", 2, "but found another document"),
        ("a.yaml", "a: 2025-13-45\n", None, "a value does not fit its type"),
        ("a.yaml", "ok: 1\na: \x01\n", 2, "a character is not allowed"),
        ("a.yaml", "? [a]\n: b\n", 1, "unhashable"),
        ("a.yaml", "[" * 5000, None, "nested more than 100 levels deep"),
        ("a.toml", "a = 1\nb = \n", 2, "not valid TOML: Invalid value at column 5"),
        ("a.toml", "[a", 1, "not valid TOML"),
        ("a.toml", "a = 2025-13-45\n", 1, "not valid TOML"),
        ("a.toml", "a = " + "9" * 5000, None, "not valid TOML"),
        ("a", "key = \n", 1, "not valid TOML"),
        ("a", "- [1\n", 2, "not valid YAML"),
        ("a.json", "5", None, "must be an object or a list of servers, not a number"),
        ("a.json", '"mcp"', None, "not a string"),
        ("a.json", "null", None, "not null"),
        ("a.json", '{"name": "package", "scripts": {"a": "b"}}', None, "no place for servers"),
        ("a.json", '{\n"mcpServers": "npx"}', 2, "'mcpServers' must be an object of servers, not a string"),
        ("a.yaml", "services:\n  mcp: 5\n", 2, "'services.mcp' must be an object of servers, not a number"),
    ],
)
def test_a_file_that_cannot_be_understood_names_path_and_line(
    name: str, text: str, line: int | None, part: str, tmp_path: Path
) -> None:
    path = write(tmp_path, name, text)

    error = failure(path)

    assert (error.path, error.line) == (str(path), line)
    assert part in str(error)


def test_the_faulty_line_is_shown_with_a_caret(tmp_path: Path) -> None:
    path = write(tmp_path, "a.json", '{\n  "a": {"command": "npx" "args": []}\n}')

    assert str(failure(path)) == (
        f"{path}:2: this is not valid JSON: Expecting ',' delimiter at column 26\n"
        '    2 |   "a": {"command": "npx" "args": []}\n'
        "      |                          ^"
    )


@pytest.mark.parametrize(
    "name, line",
    [
        ("a.json", '{"env": {"GITHUB_TOKEN": "hunter2" "B": 1}}'),
        ("a.json", '{"env": {"PLAIN": "hunter2" "B": 1}}'),
        ("a.json", '{"env": {"GITHUB_TOKEN": "hunter2'),
        ("a.json", '{"args": ["--token", "hunter2" 1]}'),
        ("a.json", '{"args": ["Authorization: Bearer hunter2" 1]}'),
        ("a.json", '["hunter2hunter2hunter2" 1]'),
        ("a.json", '{"GITHUB_TOKEN": "bad \\q hunter2"}'),
        ("a.yaml", "TOKEN: hunter2 [: {\n}"),
        ("a.toml", "TOKEN = hunter2 x"),
        ("a.toml", 'PLAIN = "hunter2'),
    ],
)
def test_the_shown_line_holds_no_secret(name: str, line: str, tmp_path: Path) -> None:
    error = failure(write(tmp_path, name, line))

    assert "hunter2" not in str(error)
    assert "***" in str(error)


def test_a_very_long_line_is_shown_around_its_fault(tmp_path: Path) -> None:
    error = failure(write(tmp_path, "a.json", "[" + "1, " * 5000 + "x" + ", 1" * 5000 + "]"))

    assert len(str(error)) < 500
    assert "x, 1" in str(error)


@pytest.mark.parametrize(
    "data, line, part",
    [
        (b'{"a": 1,\n "b\xff": 2}', 2, "not valid UTF-8"),
        (b"\xff\xfe\x00", 1, "not valid UTF-16"),
        (b" " * 10_000_001, None, "larger than 10,000,000 bytes"),
    ],
)
def test_bytes_that_are_no_config_are_refused(data: bytes, line: int | None, part: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(data)

    error = failure(path)

    assert (error.path, error.line) == (str(path), line)
    assert part in str(error)


def test_a_large_yaml_and_a_yaml_that_unfolds_are_refused(tmp_path: Path) -> None:
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 10))
    bomb = write(tmp_path, "bomb.yaml", "l0: &l0 [lol]\n" + levels)
    large = write(tmp_path, "large.yaml", "a: " + "b" * 1_000_001)

    assert "aliases stand for too much" in str(failure(bomb))
    assert "larger than 1 MB" in str(failure(large))


def test_yaml_aliases_and_merge_keys_are_understood(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "a.yaml",
        "base: &base\n  command: uvx\nmcpServers:\n  a:\n    <<: *base\n    args: [pkg]\n  b: *base\n",
    )

    loaded = load_config(path)

    assert loaded.servers["a"] == EXPECTED
    assert loaded.servers["b"].command == "uvx"


def test_a_missing_file_a_folder_and_an_impossible_path_are_config_errors(tmp_path: Path) -> None:
    assert "the file does not exist" in str(failure(tmp_path / "gone.json"))
    assert "cannot be read" in str(failure(tmp_path))
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config("a\0b.json")


@pytest.mark.parametrize("name, text", [("a.json", "{}"), ("a.json", ""), ("a.yaml", ""), ("a.toml", ""), ("a", "# x")])
def test_an_empty_file_holds_no_servers(name: str, text: str, tmp_path: Path) -> None:
    loaded = load_config(write(tmp_path, name, text))

    assert loaded.servers == {}
    [warning] = loaded.warnings
    assert "the file is empty" in warning


@pytest.mark.parametrize(
    "name, text",
    [
        ("plain", '{"mcpServers": {"a": {"command": "uvx", "args": ["pkg"]}}}'),
        ("plain", '// why\n{"mcpServers": {"a": {"command": "uvx", "args": ["pkg"]}}}'),
        ("plain", "[mcp_servers.a]\ncommand = 'uvx'\nargs = ['pkg']\n"),
        ("plain", "mcpServers:\n  a: {command: uvx, args: [pkg]}\n"),
        ("a.jsonc", '{"mcpServers": {"a": {"command": "uvx", "args": ["pkg"],}}}'),
    ],
)
def test_a_file_without_a_telling_suffix_is_read_by_its_content(name: str, text: str, tmp_path: Path) -> None:
    assert load_config(write(tmp_path, name, text)).servers["a"] == EXPECTED


def test_byte_order_marks_and_windows_line_ends_are_understood(tmp_path: Path) -> None:
    text = '{"mcpServers": {\r\n"a": {"command": "uvx", "args": ["pkg"]}}}'
    (tmp_path / "8.json").write_bytes(text.encode("utf-8-sig"))
    (tmp_path / "16.json").write_bytes(text.encode("utf-16"))

    for name in ("8.json", "16.json"):
        config = load_config(tmp_path / name).servers["a"]
        assert config == EXPECTED
        assert config.source is not None
        assert config.source.line == 2


def test_a_huge_file_is_read_without_lines(tmp_path: Path) -> None:
    path = write(tmp_path, "a.json", json.dumps({"history": "x" * 2_000_001, "mcpServers": {"a": ENTRY}}))

    config = load_config(path).servers["a"]

    assert config.source is not None
    assert config.source.line is None


def test_a_folder_tells_the_dialect(tmp_path: Path) -> None:
    gemini = write(tmp_path, ".gemini/settings.json", '{"mcpServers": {"a": {"url": "http://h", "timeout": 5000}}}')
    opencode = write(
        tmp_path, "opencode.json", '{"mcp": {"a": {"type": "remote", "url": "http://h", "timeout": 5000}}}'
    )

    assert load_config(gemini).servers["a"] == ServerConfig(
        name="a", transport="sse", url="http://h", timeout=Timeouts(call=5)
    )
    assert load_config(opencode).servers["a"].timeout == Timeouts(connect=5, list=5)


def test_a_path_may_start_with_a_tilde(home: Path) -> None:
    write(Path("~").expanduser(), "mcp.json", '{"mcpServers": {"a": {"command": "uvx", "args": ["pkg"]}}}')

    assert load_config("~/mcp.json").servers["a"] == EXPECTED
    with pytest.raises(ConfigError, match="the file does not exist"):
        load_config("~nobody/mcp.json")


def test_selecting_keeps_only_the_named_servers() -> None:
    loaded = load_config({"a": ENTRY, "b": ENTRY, "bad": {"command": 5}, "off": {"command": "x", "disabled": True}})

    some = loaded.select(["bad", "a", "a"])

    assert (list(some.servers), list(some.errors), some.disabled) == (["a"], ["bad"], ())
    with pytest.raises(ConfigError, match="no such server; it has: a, b, bad") as unknown:
        loaded.select(["c"])
    assert unknown.value.server == "c"
    with pytest.raises(ConfigError, match="switched off"):
        loaded.select(["off"])
    with pytest.raises(ConfigError, match="it has: none"):
        LoadedConfig().select(["c"])


def test_several_configs_together_keep_the_order_of_their_servers() -> None:
    names = [f"server{number}" for number in (3, 1, 2, 9, 7, 8)]
    configs = [load_config({"mcpServers": {name: {"command": "x"} for name in part}}) for part in (names[:4], names)]

    assert list(merge_loaded(configs).servers) == names
    assert list(merge_loaded(configs[1:]).servers) == names


def test_the_first_of_several_configs_to_define_a_name_wins() -> None:
    first = load_config({"a": {"command": "1"}, "bad": {"command": 5}, "off": {"command": "x", "disabled": True}})
    second = load_config({"a": {"command": "2"}, "bad": ENTRY, "off": ENTRY, "new": ENTRY, "x": {"colour": 1, **ENTRY}})

    merged = merge_loaded([first, second])

    assert {name: config.command for name, config in merged.servers.items()} == {"a": "1", "new": "uvx", "x": "uvx"}
    assert (list(merged.errors), merged.disabled, len(merged.warnings)) == (["bad"], ("off",), 1)
    assert merge_loaded([]) == LoadedConfig()


def test_a_collection_of_servers_loads_whole(server_collection: Path) -> None:
    loaded = load_config(server_collection)

    named = json.loads(server_collection.read_text())["mcpServers"]
    assert {*loaded.servers, *loaded.errors, *loaded.disabled} == set(named)
    assert loaded.errors == {}
    assert loaded.warnings == ()
