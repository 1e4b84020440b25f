"""`toolweave serve --install`: a client's file gets an entry that starts the server as that client would."""

from __future__ import annotations

import json
import stat
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Done, toolweave, write_config
from toolweave import connect_mcp, load_config
from toolweave.cli._install.clients import InstallClient
from toolweave.cli._install.toml_text import table_lines
from toolweave.config import editor_config_files
from toolweave.install import CLIENT_FORMATS

TEST_SECONDS = 60

Cli = Callable[..., Done]

EDITORS = list(InstallClient)
PLACES = {
    "claude": (".config/Claude/claude_desktop_config.json", "mcpServers"),
    "claude-code": (".claude.json", "mcpServers"),
    "cursor": (".cursor/mcp.json", "mcpServers"),
    "vscode": (".config/Code/User/mcp.json", "servers"),
    "codex": (".codex/config.toml", "mcp_servers"),
    "gemini": (".gemini/settings.json", "mcpServers"),
    "windsurf": (".codeium/windsurf/mcp_config.json", "mcpServers"),
    "cline": (
        ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        "mcpServers",
    ),
    "zed": (".config/zed/settings.json", "context_servers"),
    "opencode": (".config/opencode/opencode.json", "mcp"),
}
TYPED = {"claude-code": "stdio", "vscode": "stdio", "cline": "stdio", "opencode": "local"}
OURS = {"command": "/old/python", "args": ["-P", "-m", "toolweave", "serve", "/old/notes.py"]}
linux = pytest.mark.skipif("sys.platform != 'linux'", reason="platform: the editors keep their files elsewhere")


@pytest.fixture
def code(folder: Path) -> Path:
    """A server in a file, and in a module of a package."""
    text = (
        "from pathlib import Path\nfrom toolweave import create_mcp_server\n"
        "def where() -> str:\n    return str(Path.cwd())\n"
        "server = create_mcp_server(name='notes', version='1', tools=[where])\ntools = [where]\n"
    )
    (folder / "package").mkdir()
    for file in (folder / "notes.py", folder / "package" / "__init__.py"):
        file.write_text(text)
    return folder / "notes.py"


def entry_words(editor: str, *words: str) -> dict[str, Any]:
    """Return the entry that starts `toolweave WORDS`, as the editor writes it."""
    typed = {"type": TYPED[editor]} if editor in TYPED else {}
    args = ["-P", "-m", "toolweave", *words]
    started = (
        {"command": [sys.executable, *args]} if editor == "opencode" else {"command": sys.executable, "args": args}
    )
    return {**typed, **started}


def read_servers(path: Path, editor: str) -> dict[str, Any]:
    """Return the servers in an editor's file."""
    text = path.read_text("utf-8")
    document = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    return document[PLACES[editor][1]]


def placed(home: Path, editor: str, text: str | None = None) -> Path:
    """Return the editor's file, with this text in it if any."""
    path = home / PLACES[editor][0]
    if text is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return path


def test_every_client_of_the_table_can_be_named() -> None:
    assert list(InstallClient) == list(CLIENT_FORMATS)


@pytest.mark.parametrize(
    "platform, editor, place",
    [
        ("darwin", "claude", "Library/Application Support/Claude/claude_desktop_config.json"),
        ("win32", "claude", "AppData/Roaming/Claude/claude_desktop_config.json"),
        ("darwin", "cursor", ".cursor/mcp.json"),
        ("win32", "cursor", ".cursor/mcp.json"),
        ("darwin", "vscode", "Library/Application Support/Code/User/mcp.json"),
        ("win32", "vscode", "AppData/Roaming/Code/User/mcp.json"),
        ("darwin", "zed", ".config/zed/settings.json"),
        ("win32", "zed", "AppData/Roaming/Zed/settings.json"),
        *(("linux", editor, place) for editor, (place, _) in PLACES.items()),
    ],
)
def test_each_editor_keeps_its_file_where_the_platform_has_it(
    tmp_path: Path, platform: str, editor: str, place: str
) -> None:
    files = editor_config_files(home=tmp_path, platform=platform)

    assert next(file.path for file in files if file.kind == CLIENT_FORMATS[editor].kind) == tmp_path / place
    assert CLIENT_FORMATS[editor].section == (PLACES[editor][1],)


@linux
@pytest.mark.parametrize("editor", EDITORS)
def test_a_new_file_holds_an_entry_with_nothing_relative_in_it(cli: Cli, code: Path, home: Path, editor: str) -> None:
    done = cli("serve", "notes.py:server", "--install", editor)

    assert (done.code, done.out) == (0, "")
    path = placed(home, editor)
    assert read_servers(path, editor) == {"notes": entry_words(editor, "serve", f"{code}:server")}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert f"'notes' is in {path}" in done.err
    assert f"restart {editor} to see it" in done.err


@pytest.mark.slow
@linux
@pytest.mark.requirement("D26")
@pytest.mark.parametrize(
    "editor, what", [*((editor, "package:tools") for editor in EDITORS), ("vscode", "notes.py"), ("cursor", "--config")]
)
async def test_what_is_written_starts_the_server_as_that_editor_would(
    code: Path, home: Path, editor: str, what: str
) -> None:
    words = [what]
    if what == "--config":
        write_config(code.parent, {"demo": [sys.executable, "-m", "toolweave.cli.demo.notes"]})
        words += ["mcp.json", "--server", "demo", "--name", "all"]
    assert toolweave("serve", *words, "--install", editor, cwd=code.parent).code == 0

    # editors start their servers in a directory of their own, with few variables
    (entry,) = load_config(placed(home, editor)).servers.values()
    env = {**entry.env, "PATH": "/usr/bin:/bin"}
    async with connect_mcp(entry.replace(cwd="/", env=env)) as connection:
        tools = (await connection.list_tools()).names
        if what == "--config":
            assert "demo_read_note" in tools
        else:
            assert (await connection.call_tool("where")).text == "/"


@linux
@pytest.mark.parametrize("editor", [one for one in EDITORS if one != "codex"])  # tests/cli/test_toml_entries.py
def test_other_servers_comments_and_unknown_keys_stay(cli: Cli, code: Path, home: Path, editor: str) -> None:
    section = PLACES[editor][1]
    text = f'{{\n\t// mine\n\t"{section}": {{\n\t\t"other": {{"command": "x"}}, // keep\n\t}},\n\t"theme": [1,],\n}}\n'
    path = placed(home, editor, text)
    path.chmod(0o640)

    assert cli("serve", "notes.py", "--install", editor).code == 0

    written = path.read_text()
    assert written.startswith(text.partition("\n\t},")[0])
    assert written.endswith('\n\t},\n\t"theme": [1,],\n}\n')
    assert list(load_config(path).servers) == ["other", "notes"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [file.read_text() for file in path.parent.glob("*.bak*")] == [text]


@linux
def test_doing_it_again_changes_nothing_and_keeps_no_second_backup(cli: Cli, code: Path, home: Path) -> None:
    path = placed(home, "cursor", '{"mcpServers": {}}')
    assert cli("serve", "notes.py", "--install", "cursor").code == 0
    before = path.stat()

    again = cli("serve", "notes.py", "--install", "cursor")

    assert again.code == 0
    assert "was in" in again.err
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert len(list(path.parent.iterdir())) == 2


@pytest.mark.slow
@linux
def test_an_entry_of_ours_is_brought_up_to_date_and_keeps_what_was_added_to_it(
    cli: Cli, code: Path, home: Path
) -> None:
    added = {"env": {"TOKEN": "x"}, "autoApprove": ["where"]}
    path = placed(home, "cursor", json.dumps({"mcpServers": {"notes": {**OURS, **added}}}))

    assert cli("serve", "notes.py", "--install", "cursor").code == 0
    other = ("serve", "package:tools", "--name", "notes", "--install", "cursor", "--force")
    assert toolweave(*other, cwd=code.parent).code == 0

    entry = json.loads(path.read_text())["mcpServers"]["notes"]
    assert entry["command"] == sys.executable
    assert entry["args"][-1] == "package:tools"
    assert entry["env"] == {"TOKEN": "x", "PYTHONPATH": str(code.parent)}
    assert entry["autoApprove"] == ["where"]
    assert sorted(file.name for file in path.parent.iterdir()) == ["mcp.json", "mcp.json.bak1", "mcp.json.bak2"]


BROKEN: list[tuple[str, str]] = [
    ('{"mcpServers": {', "this is not valid JSON"),
    ("[]", "it holds no JSON object"),
    ('{"mcpServers": []}', "'mcpServers' is not an object"),
    ('{"mcpServers": {"notes": {"command": "another"}}}', "there is another server 'notes'"),
    ('{"mcpServers": {"notes": 5}}', "there is another server 'notes'"),
]


@linux
@pytest.mark.parametrize("text, says", BROKEN)
def test_a_file_that_cannot_be_changed_safely_is_left_as_it_is(
    cli: Cli, code: Path, home: Path, text: str, says: str
) -> None:
    path = placed(home, "cursor", text)

    done = cli("serve", "notes.py", "--install", "cursor")

    assert done.code == 2
    assert says in done.err
    assert str(path) in done.err
    assert path.read_text() == text
    assert [file.name for file in path.parent.iterdir()] == ["mcp.json"]


@linux
def test_a_file_in_another_encoding_is_left_as_it_is(cli: Cli, code: Path, home: Path) -> None:
    path = placed(home, "cursor", "")
    path.write_bytes('{"x": "\u00e9"}'.encode("latin-1"))

    done = cli("serve", "notes.py", "--install", "cursor")

    assert (done.code, path.read_bytes()) == (2, b'{"x": "\xe9"}')
    assert "not UTF-8" in done.err


@linux
def test_a_byte_order_mark_and_a_link_stay(cli: Cli, code: Path, home: Path) -> None:
    kept = home / "dotfiles.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(b'\xef\xbb\xbf{"mcpServers": {}}')
    path = placed(home, "cursor")
    path.parent.mkdir(parents=True)
    path.symlink_to(kept)

    assert cli("serve", "notes.py", "--install", "cursor").code == 0

    assert path.is_symlink()
    assert kept.read_bytes().startswith(b'\xef\xbb\xbf{"mcpServers": {\n')


@linux
@pytest.mark.skipif("os.geteuid() == 0", reason="platform: root may write anywhere")
def test_a_folder_that_cannot_be_written_is_one_line(cli: Cli, code: Path, home: Path) -> None:
    path = placed(home, "cursor", "{}")
    path.parent.chmod(0o500)
    try:
        done = cli("serve", "notes.py", "--install", "cursor")
    finally:
        path.parent.chmod(0o700)

    assert done.code == 2
    assert "cannot write" in done.err


@linux
def test_where_the_folder_should_be_a_file_is_one_line(cli: Cli, code: Path, home: Path) -> None:
    home.mkdir(exist_ok=True)
    (home / ".cursor").write_text("a file")

    done = cli("serve", "notes.py", "--install", "cursor")

    assert done.code == 2
    assert done.err.startswith("error: ")


@linux
@pytest.mark.parametrize("editor", EDITORS)
def test_print_shows_the_entry_and_writes_nothing(cli: Cli, code: Path, home: Path, editor: str) -> None:
    done = cli("serve", "notes.py", "--install", editor, "--print")

    assert done.code == 0
    shown = tomllib.loads(done.out) if editor == "codex" else done.json
    assert shown == {PLACES[editor][1]: {"notes": entry_words(editor, "serve", str(code))}}
    assert str(placed(home, editor)) in done.err
    assert not placed(home, editor).exists()


@linux
def test_an_entry_is_shown_for_a_file_that_is_broken_and_as_json_for_one_in_toml(
    cli: Cli, code: Path, home: Path
) -> None:
    placed(home, "codex", "[")

    done = cli("serve", "notes.py", "--install", "codex", "--print", "--json")

    assert (done.code, list(done.json["mcp_servers"])) == (0, ["notes"])


@linux
@pytest.mark.parametrize("editor", ["codex", "opencode"])
def test_an_entry_in_another_form_is_ours_too_and_keeps_what_was_added_to_it(
    cli: Cli, code: Path, home: Path, editor: str
) -> None:
    env = "environment" if editor == "opencode" else "env"
    there = {**entry_words(editor, "serve", "/old/notes.py"), env: {"TOKEN": "x"}, "enabled": True}
    text = "\n".join(table_lines(("mcp_servers", "notes"), there))
    path = placed(home, editor, text if editor == "codex" else json.dumps({"mcp": {"notes": there}}))

    done = cli("serve", "notes.py", "--install", editor)
    other = cli("serve", "notes.py", "--name", "notes", "--install", editor)

    assert (done.code, other.code) == (0, 0), done.err
    assert read_servers(path, editor) == {
        "notes": {**entry_words(editor, "serve", str(code)), env: {"TOKEN": "x"}, "enabled": True}
    }


@linux
def test_the_json_twin_says_what_was_done(cli: Cli, code: Path, home: Path) -> None:
    path = placed(home, "vscode", "{}")

    first, second = (cli("serve", "notes.py", "--install", "vscode", "--json").json for _ in range(2))

    assert first.keys() == {"path", "name", "entry", "changed", "backup"}
    assert (first["path"], first["name"], first["changed"]) == (str(path), "notes", True)
    assert Path(first["backup"]).read_text() == "{}"
    assert (second["changed"], second["backup"]) == (False, None)


@pytest.mark.slow
@linux
def test_what_cannot_be_served_is_not_installed(code: Path, home: Path) -> None:
    code.write_text("import no_such_package\n")

    done = toolweave("serve", code, "--install", "cursor")

    assert done.code == 2
    assert "no_such_package" in done.err
    assert not placed(home, "cursor").exists()


@pytest.mark.slow
@linux
async def test_an_entry_runs_nothing_of_the_directory_that_an_editor_starts_it_in(
    code: Path, home: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert toolweave("serve", "package:tools", "--install", "cursor", cwd=code.parent).code == 0
    strange = tmp_path_factory.mktemp("project")
    for name in ("toolweave.py", "msgspec.py", "package.py", "notes.py"):
        (strange / name).write_text("raise SystemExit('a stranger was run')\n")

    (entry,) = load_config(placed(home, "cursor")).servers.values()
    async with connect_mcp(entry.replace(cwd=str(strange))) as connection:
        assert (await connection.call_tool("where")).text == str(strange)


def _entry(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


@pytest.mark.slow
@linux
@pytest.mark.parametrize("editor", ["claude", "codex", "opencode"])
def test_a_gateway_of_another_config_does_not_replace_the_first(
    cli: Cli, folder: Path, home: Path, editor: str
) -> None:
    for name in ("work", "home"):
        (folder / name).mkdir()
        write_config(folder / name, {"demo": [sys.executable, "-m", "toolweave.cli.demo.notes"]})
    assert cli("gateway", "--config", "work/mcp.json", "--install", editor).code == 0
    path = placed(home, editor)
    before = path.read_text()

    refused = cli("gateway", "--config", "home/mcp.json", "--install", editor)
    assert refused.code == 2
    assert f"there is another server 'toolweave', of {folder / 'work' / 'mcp.json'}" in refused.err
    assert "--name NAME keeps both, --force replaces that one" in refused.err
    assert path.read_text() == before

    assert cli("gateway", "--config", "home/mcp.json", "--name", "home", "--install", editor).code == 0
    assert list(load_config(path).servers) == ["toolweave", "home"]
    assert cli("gateway", "--config", "home/mcp.json", "--install", editor, "--force").code == 0
    assert str(folder / "home" / "mcp.json") in load_config(path).servers["toolweave"].args


@pytest.mark.slow
@linux
def test_an_entry_follows_its_project_and_the_configs_that_are_added_to_it(cli: Cli, folder: Path, home: Path) -> None:
    for name in ("old", "new"):
        (folder / name).mkdir()
        write_config(folder / name, {name: [sys.executable, "-m", "toolweave.cli.demo.notes"]})
    path = placed(home, "cursor")
    assert cli("gateway", "--config", "old/mcp.json", "--install", "cursor").code == 0

    both = cli("gateway", "--config", "old/mcp.json", "--config", "new/mcp.json", "--install", "cursor")
    (folder / "old").rename(folder / "elsewhere")
    assert cli("serve", "--config", "new/mcp.json", "--name", "toolweave", "--install", "cursor").code == 0
    (folder / "new").rename(folder / "moved")
    moved = cli("gateway", "--config", "moved/mcp.json", "--install", "cursor")

    assert (both.code, moved.code) == (0, 0)
    assert load_config(path).servers["toolweave"].args[-1] == str(folder / "moved" / "mcp.json")


@linux
def test_two_files_whose_servers_have_one_name_need_two(cli: Cli, code: Path, home: Path) -> None:
    (code.parent / "other").mkdir()
    (code.parent / "other" / "notes.py").write_text(code.read_text())
    path = placed(home, "cursor")
    assert cli("serve", "notes.py", "--install", "cursor").code == 0

    refused = cli("serve", "other/notes.py", "--install", "cursor")
    again = cli("serve", "notes.py:tools", "--name", "notes", "--install", "cursor")

    assert refused.code == 2
    assert f"there is another server 'notes', of {code}" in refused.err
    assert again.code == 0
    assert list(_entry(path)["mcpServers"]) == ["notes"]


@linux
def test_force_replaces_the_entry_of_another_program_as_a_whole(cli: Cli, code: Path, home: Path) -> None:
    path = placed(home, "cursor", '{"mcpServers": {"notes": {"command": "another", "env": {"SECRET": "x"}}}}')

    assert cli("serve", "notes.py", "--install", "cursor", "--force").code == 0

    assert "SECRET" not in path.read_text()
    assert cli("serve", "notes.py", "--force").code == 2


@linux
def test_a_new_name_is_another_entry(cli: Cli, code: Path, home: Path) -> None:
    path = placed(home, "cursor", '{"mcpServers": {"notes": {"command": "another"}}}')

    assert cli("serve", "notes.py:tools", "--name", "mine", "--install", "cursor").code == 0

    assert list(_entry(path)["mcpServers"]) == ["notes", "mine"]
    assert Path(_entry(path)["mcpServers"]["mine"]["args"][-1].removesuffix(":tools")).is_absolute()


@pytest.mark.slow
@linux
@pytest.mark.parametrize("editor", ["claude", "vscode", "codex", "opencode"])
async def test_a_gateway_is_started_by_an_editor_and_takes_the_place_of_what_served_the_config_before(
    cli: Cli, folder: Path, home: Path, editor: str
) -> None:
    config = write_config(folder, {"demo": [sys.executable, "-m", "toolweave.cli.demo.notes"]})
    assert cli("serve", "--config", "mcp.json", "--name", "all", "--install", editor).code == 0
    done = cli("gateway", "--config", "mcp.json", "--server", "demo", "--name", "all", "--install", editor, "--json")

    assert (done.code, done.json["changed"], done.json["name"]) == (0, True, "all")
    (entry,) = load_config(placed(home, editor)).servers.values()
    assert entry.args[3:] == ("gateway", "run", "--config", str(config), "--server", "demo", "--name", "all")
    async with connect_mcp(entry.replace(cwd="/", env={**entry.env, "PATH": "/usr/bin:/bin"})) as connection:
        assert "demo_read_note" in (await connection.list_tools()).names


@pytest.mark.parametrize(
    "words, said",
    [
        (["--config", "mcp.json", "--http", "0", "--install", "cursor"], "--install does not go with --http"),
        (["--config", "mcp.json", "--print"], "--print goes with --install"),
        (["--config", "absent.json", "--install", "cursor"], "absent.json"),
    ],
)
def test_a_gateway_that_an_editor_cannot_start_is_not_installed(
    cli: Cli, folder: Path, home: Path, words: list[str], said: str
) -> None:
    write_config(folder, {"demo": [sys.executable, "-m", "toolweave.cli.demo.notes"]})

    done = cli("gateway", *words)

    assert done.code == 2
    assert said in done.err
    assert not (home / PLACES["cursor"][0]).exists()
