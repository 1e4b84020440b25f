"""`toolweave install`: a published server becomes an entry of a config; nothing of it is started."""

from __future__ import annotations

import hashlib
import json
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Done, on_terminal, toolweave, trust
from tests.cli.editor_files import EDITOR_FILES
from tests.install.bundles import made_bundle
from tests.install.published import entry, named, package
from tests.install.served import Reply, ServedRegistry
from toolweave import connect_mcp, load_config
from toolweave.cli._commands.install import InstallClient
from toolweave.cli._install.found import entry_name
from toolweave.config import TrustedFiles, reveal
from toolweave.install import CLIENT_FORMATS

Cli = Callable[..., Done]

GRAPH = {"command": "npx", "args": ["-y", "@acme/graph-server@2.0.1", "--mode", "local"]}
linux = pytest.mark.skipif("sys.platform != 'linux'", reason="platform: the editors keep their files elsewhere")


@pytest.fixture(autouse=True)
def _system_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are where every editor finds them, wherever this machine has its npx."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """The words that install a server with a secret, which is in a variable."""
    monkeypatch.setenv("MY_KEY", "hunter2")
    return ("install", "com.example/notes", "--yes", "--set", "folder=notes", "--set-env", "NOTES_KEY=MY_KEY")


def servers(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())["mcpServers"]


def test_a_server_is_written_into_a_new_config_that_is_trusted(
    cli: Cli, folder: Path, registry: ServedRegistry
) -> None:
    done = cli("install", "io.github.acme/graph", "--yes")

    path = folder / "mcp.json"
    assert done.code == 0, done.err
    assert servers(path) == {"graph": GRAPH}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "npx -y @acme/graph-server@2.0.1 --mode local" in done.out
    assert "next: toolweave tools" in done.err
    assert TrustedFiles().trusts(load_config(path).files[0])


def test_what_would_be_written_is_shown_and_nothing_is(cli: Cli, folder: Path, registry: ServedRegistry) -> None:
    done = cli("install", "io.github.acme/graph", "--dry-run")

    assert done.code == 0
    assert "would run:\n  npx -y @acme/graph-server@2.0.1 --mode local" in done.out
    assert '+    "graph": {' in done.out
    assert "nothing was written" in done.err
    assert list(folder.iterdir()) == []


def test_a_version_and_a_way_are_chosen(cli: Cli, folder: Path, registry: ServedRegistry) -> None:
    older = {**named("io.github.acme/graph"), "version": "1.0.0", "packages": [package("nuget", "Acme.Graph", "1.0.0")]}
    registry.entries.append(entry(older))

    first = cli("install", "io.github.acme/graph@1.0.0", "--yes")
    second = cli("install", "io.github.acme/graph", "--via", "oci", "--set", "source=/data", "--yes", "--name", "boxed")

    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert servers(folder / "mcp.json")["graph"] == {"command": "dnx", "args": ["Acme.Graph@1.0.0", "--yes"]}
    boxed = servers(folder / "mcp.json")["boxed"]["args"]
    assert boxed[-3:] == ["--mount", "type=bind,src=/data,dst=/project", "docker.io/acme/graph:2.0.1"]
    assert "also: npm @acme/graph-server@2.0.1" in second.err


def test_a_secret_is_kept_in_a_file_and_the_config_refers_to_it(
    cli: Cli, folder: Path, registry: ServedRegistry, notes: tuple[str, ...]
) -> None:
    done = cli(*notes, "--set", "NOTES_LIMIT=5", "--set", "--tag=a", "--set", "--tag=b")

    assert done.code == 0, done.err
    written = servers(folder / "mcp.json")["notes"]
    assert written["args"] == ["notes-server==1.2.0", str(folder / "notes"), "--tag", "a", "--tag", "b"]
    assert written["env"]["LOG_LEVEL"] == "info"
    assert written["env"]["NOTES_LIMIT"] == "5"
    kept = Path(written["env"]["NOTES_KEY"].removeprefix("${file:").removesuffix("}"))
    assert kept.read_text() == "hunter2"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert "hunter2" not in (folder / "mcp.json").read_text() + done.out + done.err
    (config,) = load_config(folder / "mcp.json").servers.values()
    assert reveal(config.env["NOTES_KEY"]) == "hunter2"
    assert "hunter2" not in repr(config)


def test_a_secret_is_not_taken_from_the_command_line(cli: Cli, folder: Path, registry: ServedRegistry) -> None:
    done = cli("install", "com.example/notes", "--yes", "--set", "folder=x", "--set", "NOTES_KEY=hunter2")

    assert done.code == 2
    assert "--set-env NOTES_KEY=VARIABLE" in done.err
    assert "hunter2" not in done.err
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "words, says",
    [
        ((), "a value is needed for NOTES_KEY, folder, and no one can be asked"),
        (("--set", "folder=x"), "a value is needed for NOTES_KEY"),
        (("--set", "folder"), "NAME=VALUE is expected"),
        (("--set", "other=x"), "'other' is not a value of this server; it has: NOTES_KEY"),
        (("--set-env", "NOTES_KEY=NO_SUCH_VARIABLE"), "'NO_SUCH_VARIABLE' is not set"),
        (("--set", "LOG_LEVEL=loud", "--set", "folder=x", "--set-env", "NOTES_KEY=HOME"), "expected debug, info"),
    ],
    ids=range(6),
)
def test_a_value_that_is_missing_or_wrong_is_one_line_and_nothing_is_written(
    cli: Cli, folder: Path, registry: ServedRegistry, words: tuple[str, ...], says: str
) -> None:
    done = cli("install", "com.example/notes", "--yes", *words)

    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert list(folder.iterdir()) == []


def test_nobody_to_ask_for_a_yes_is_an_error(cli: Cli, folder: Path, registry: ServedRegistry) -> None:
    done = cli("install", "io.github.acme/graph")

    assert done.code == 2
    assert "--yes writes it" in done.err
    assert list(folder.iterdir()) == []


def test_an_entry_that_is_there_is_replaced_only_by_force(cli: Cli, folder: Path, registry: ServedRegistry) -> None:
    inside = '    "graph": {"command": "other"}, // keep\n    "b": {"command": "b"}\n'
    text = f'{{\n  // mine\n  "mcpServers": {{\n{inside}  }}\n}}\n'
    (folder / "mcp.json").write_text(text)

    refused = cli("install", "io.github.acme/graph", "--yes")
    before = (folder / "mcp.json").read_text()
    done = cli("install", "io.github.acme/graph", "--yes", "--force")

    assert (refused.code, before) == (2, text)
    assert "has a server 'graph' already" in refused.err
    assert done.code == 0
    after = (folder / "mcp.json").read_text()
    assert "// mine" in after
    assert "// keep" in after
    assert list(load_config(folder / "mcp.json").servers) == ["graph", "b"]
    assert [file.read_text() for file in folder.glob("*.bak*")] == [text]


def test_a_config_that_was_not_trusted_is_not_by_an_installation(
    cli: Cli, folder: Path, registry: ServedRegistry
) -> None:
    path = folder / "mcp.json"
    path.write_text('{"mcpServers": {"b": {"command": "evil"}}}')

    assert cli("install", "io.github.acme/graph", "--yes").code == 0
    assert not TrustedFiles().trusts(load_config(path).files[0])

    trust(path)
    assert cli("install", "io.github.acme/graph", "--yes", "--name", "again").code == 0
    assert TrustedFiles().trusts(load_config(path).files[0])


def test_values_of_others_in_the_file_are_masked_in_what_is_shown(
    cli: Cli, folder: Path, registry: ServedRegistry
) -> None:
    text = '{"mcpServers": {\n"b": {"command": "b", "env": {"API_TOKEN": "a-secret-of-b"}}\n}}\n'
    (folder / "mcp.json").write_text(text)

    done = cli("install", "io.github.acme/graph", "--dry-run")

    assert "a-secret-of-b" not in done.out
    assert "***" in done.out
    assert "@acme/graph-server@2.0.1" in done.out


@linux
@pytest.mark.parametrize("client", EDITOR_FILES)
def test_each_client_gets_its_entry_in_its_own_file(
    cli: Cli, home: Path, registry: ServedRegistry, client: str
) -> None:
    done = cli("install", "io.github.acme/graph", "--client", client, "--yes")

    assert done.code == 0, done.err
    path = home / EDITOR_FILES[client]
    (config,) = load_config(path).servers.values()
    assert (config.name, config.command, list(config.args)) == ("graph", "npx", GRAPH["args"])
    assert f"restart {client}" in done.err


@linux
def test_a_file_with_comments_is_written_where_a_client_has_only_that(
    cli: Cli, home: Path, registry: ServedRegistry
) -> None:
    path = (home / EDITOR_FILES["opencode"]).with_suffix(".jsonc")
    path.parent.mkdir(parents=True)
    path.write_text('{\n  // mine\n  "theme": "x"\n}\n')

    assert cli("install", "io.github.acme/graph", "--client", "opencode", "--yes").code == 0

    assert "// mine" in path.read_text()
    assert list(load_config(path).servers) == ["graph"]
    assert not (home / EDITOR_FILES["opencode"]).exists()


def test_the_clients_of_the_command_are_those_of_the_library() -> None:
    assert [one.value for one in InstallClient] == list(CLIENT_FORMATS)


@linux
def test_an_editor_that_asks_for_secrets_itself_gets_their_definition(
    cli: Cli, home: Path, registry: ServedRegistry
) -> None:
    path = home / EDITOR_FILES["vscode"]
    path.parent.mkdir(parents=True)
    path.write_text('{\n\t"inputs": [\n\t\t{"id": "mine"} // keep\n\t],\n\t"servers": {}\n}\n')

    done = cli("install", "com.example/crm", "--client", "vscode", "--set", "tenant=acme", "--yes")

    assert done.code == 0, done.err
    assert "// keep" in path.read_text()
    assert "vscode asks for key" in done.out
    written = json.loads(path.read_text().replace("// keep", ""))
    assert written["servers"]["crm"] == {
        "type": "http",
        "url": "https://acme.example.com/mcp",
        "headers": {"Authorization": "Bearer ${input:crm-key}", "X-Region": "eu"},
    }
    asked = {"type": "promptString", "id": "crm-key", "description": "A key of the CRM", "password": True}
    assert written["inputs"] == [{"id": "mine"}, asked]


@linux
@pytest.mark.parametrize("client", EDITOR_FILES)
def test_a_program_that_only_a_shell_finds_gets_its_full_path(
    cli: Cli, home: Path, registry: ServedRegistry, client: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npx = tmp_path / "node" / "npx"
    npx.parent.mkdir()
    npx.write_text("#!/usr/bin/env node\n")
    npx.chmod(0o755)
    monkeypatch.setenv("PATH", f"{npx.parent}:/usr/bin:/bin")

    done = cli("install", "io.github.acme/graph", "--client", client, "--yes")

    assert done.code == 0, done.err
    (config,) = load_config(home / EDITOR_FILES[client]).servers.values()
    assert (config.command, list(config.args)) == (str(npx), GRAPH["args"])
    assert reveal(config.env["PATH"]) == f"{npx.parent}:/usr/bin:/bin"
    assert f"'npx' was found by the PATH of this shell, which {client} may not have" in done.out


@linux
def test_a_program_that_is_nowhere_is_named_and_its_entry_written(
    cli: Cli, home: Path, registry: ServedRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    done = cli("install", "io.github.acme/graph", "--client", "cursor", "--yes")

    assert done.code == 0, done.err
    assert "the command 'npx' was not found" in done.out
    assert servers(home / EDITOR_FILES["cursor"])["graph"] == GRAPH


def test_a_config_of_ours_keeps_the_names_of_programs(
    cli: Cli, folder: Path, registry: ServedRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert cli("install", "io.github.acme/graph", "--yes").code == 0
    assert servers(folder / "mcp.json")["graph"] == GRAPH


CODEX = """\
# my settings
model = "x"

[mcp_servers.graph]
command = "old"  # old
[mcp_servers.graph.env]
A = "1"

# about the other
[mcp_servers."b.c"]
command = "b"
"""


@linux
def test_toml_keeps_its_comments_and_its_order(cli: Cli, home: Path, registry: ServedRegistry) -> None:
    path = home / EDITOR_FILES["codex"]
    path.parent.mkdir(parents=True)
    path.write_text(CODEX)

    added = cli("install", "io.github.acme/graph", "--client", "codex", "--name", "a.b", "--yes")
    replaced = cli("install", "io.github.acme/graph", "--client", "codex", "--force", "--yes")

    assert (added.code, replaced.code) == (0, 0), added.err + replaced.err
    text = path.read_text()
    assert text.startswith('# my settings\nmodel = "x"\n\n[mcp_servers.graph]\ncommand = "npx"\n')
    assert '# about the other\n[mcp_servers."b.c"]\ncommand = "b"\n\n[mcp_servers."a.b"]\n' in text
    assert tomllib.loads(text)["mcp_servers"] == {"graph": GRAPH, "b.c": {"command": "b"}, "a.b": GRAPH}


@pytest.mark.parametrize(
    "name, text, says",
    [
        ("x.json", "{", "this is not valid JSON"),
        ("x.json", '{"mcpServers": []}', "is not an object"),
        ("x.toml", "a =", "this is not valid TOML"),
        ("x.toml", 'mcpServers = "x"', "is not a table"),
        ("x.toml", "mcpServers = { a = { command = 'x' } }", "cannot be edited safely"),
        ("x.yaml", "a: 1", "only JSON and TOML are edited"),
    ],
    ids=range(6),
)
def test_a_file_that_cannot_be_edited_is_left_as_it_is(
    cli: Cli, folder: Path, registry: ServedRegistry, name: str, text: str, says: str
) -> None:
    (folder / name).write_text(text)

    done = cli("install", "io.github.acme/graph", "--config", name, "--yes")

    assert done.code == 2
    assert says in done.err
    assert (folder / name).read_text() == text
    assert [file.name for file in folder.iterdir()] == [name]


def test_a_project_of_python_gets_it_among_its_tools(cli: Cli, folder: Path, registry: ServedRegistry) -> None:
    (folder / "pyproject.toml").write_text('[project]\nname = "x"  # mine\n')

    assert cli("install", "io.github.acme/graph", "--config", "pyproject.toml", "--yes").code == 0

    assert "# mine" in (folder / "pyproject.toml").read_text()
    assert list(load_config(folder / "pyproject.toml").servers) == ["graph"]


def test_a_section_that_is_there_is_used(cli: Cli, folder: Path, registry: ServedRegistry) -> None:
    (folder / "x.json").write_text('{"servers": {"b": {"command": "b"}}}')

    assert cli("install", "io.github.acme/graph", "--config", "x.json", "--yes").code == 0

    assert list(json.loads((folder / "x.json").read_text())["servers"]) == ["b", "graph"]


def test_a_deprecated_server_is_told_and_a_deleted_one_is_not_installed(
    cli: Cli, folder: Path, registry: ServedRegistry
) -> None:
    deprecated = cli("install", "io.github.acme/old-weather", "--dry-run")
    deleted = cli("install", "io.github.acme/gone", "--yes")

    assert "its publisher calls it deprecated: use com.example/weather" in deprecated.err
    assert deleted.code == 2
    assert "was deleted by its publisher: it was never meant to be there" in deleted.err
    assert list(folder.iterdir()) == []


def test_a_server_that_is_not_there_is_exit_code_2(cli: Cli, registry: ServedRegistry) -> None:
    done = cli("install", "com.example/nothing", "--yes")

    assert done.code == 2
    assert "is not there" in done.err


def test_a_server_that_can_be_used_in_no_way_says_why(cli: Cli, folder: Path, registry: ServedRegistry) -> None:
    evil = {
        **named("com.example/notes"),
        "packages": [
            package("npm", "--eval=\x1b[31m"),
            package("npm", "x", environmentVariables=[{"name": "A", "value": "${file:~/.ssh/id_rsa}"}]),
        ],
    }
    registry.entries = [entry(evil)]

    done = cli("install", "com.example/notes", "--yes")
    via = cli("install", "com.example/notes", "--via", "oci", "--yes")

    assert (done.code, via.code) == (1, 1)
    assert "not a name of such a package" in done.err
    assert "a variable or a file of yours" in done.err
    assert "has no oci that can be used" in via.err
    assert "\x1b" not in done.err
    assert list(folder.iterdir()) == []


def test_the_json_twin_says_what_was_done(
    cli: Cli, folder: Path, registry: ServedRegistry, notes: tuple[str, ...]
) -> None:
    dry, done = cli(*notes, "--json", "--dry-run").json, cli(*notes, "--json").json

    assert dry.keys() == done.keys()
    assert (dry["changed"], dry["secrets"], done["changed"]) == (False, [], True)
    assert (done["name"], done["server"], done["version"], done["kind"]) == (
        "notes",
        "com.example/notes",
        "1.2.0",
        "pypi",
    )
    assert done["path"] == str(folder / "mcp.json")
    assert done["entry"] == servers(folder / "mcp.json")["notes"]
    assert Path(done["secrets"][0]).read_text() == "hunter2"
    assert "hunter2" not in json.dumps(done)
    assert done["runs"][0] == f"uvx notes-server==1.2.0 {folder / 'notes'}"


# bundles


@pytest.fixture
def bundle(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle in a file, whose key is in a variable."""
    monkeypatch.setenv("MY_KEY", "hunter2")
    path = folder / "bundled.mcpb"
    path.write_bytes(made_bundle())
    return path


@pytest.mark.slow
@linux
async def test_a_client_without_references_starts_the_server_through_toolweave(bundle: Path, home: Path) -> None:
    done = toolweave(
        "install", bundle, "--client", "claude", "--yes", "--set-env", "key=MY_KEY", cwd=bundle.parent
    )  # fmt: skip

    assert done.code == 0, done.err
    path = home / EDITOR_FILES["claude"]
    assert "so it starts the server through Toolweave" in done.out
    assert "hunter2" not in path.read_text()
    (config,) = load_config(path).servers.values()
    async with connect_mcp(config.replace(cwd="/")) as connection:
        assert (await connection.list_tools()).names == ("seen",)
        assert (await connection.call_tool("seen")).text == "hunter2|--level=3"


def test_a_bundle_of_the_registry_is_checked_and_unpacked_after_a_yes(
    cli: Cli, folder: Path, home: Path, registry: ServedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "hunter2")
    data = made_bundle()
    sha256 = hashlib.sha256(data).hexdigest()
    registry.replies["/x.mcpb"] = Reply(200, data)
    packages = [package("mcpb", f"{registry.url}/x.mcpb", fileSha256=sha256)]
    registry.entries = [entry({**named("com.example/notes"), "packages": packages})]
    words = ("install", "com.example/notes", "--set-env", "key=MY_KEY")

    dry = cli(*words, "--dry-run")
    nothing = list((home / ".local/share/toolweave").glob("bundles/*"))
    done = cli(*words, "--yes")

    assert (dry.code, done.code, nothing) == (0, 0, []), dry.err + done.err
    (unpacked,) = (home / ".local/share/toolweave/bundles").iterdir()
    assert servers(folder / "mcp.json")["notes"]["args"] == [str(unpacked / "server/main.py"), "--level=3"]
    assert (unpacked / "server/main.py").is_file()


def test_a_bundle_that_is_another_file_is_not_used(
    cli: Cli, folder: Path, home: Path, registry: ServedRegistry
) -> None:
    registry.replies["/x.mcpb"] = Reply(200, made_bundle())
    packages = [package("mcpb", f"{registry.url}/x.mcpb", fileSha256="0" * 64)]
    registry.entries = [entry({**named("com.example/notes"), "packages": packages})]

    done = cli("install", "com.example/notes", "--yes")

    assert done.code == 1
    assert "is not the file that the registry's entry is about" in done.err
    assert list(folder.iterdir()) == []
    assert not (home / ".local/share/toolweave/bundles").exists()


def test_a_file_that_is_no_bundle_and_a_way_that_is_not_its_own_are_refused(cli: Cli, folder: Path) -> None:
    (folder / "x.mcpb").write_text("no bundle")

    assert cli("install", "x.mcpb", "--yes").code == 1
    assert cli("install", "none.mcpb", "--yes").code == 1
    assert cli("install", "x.mcpb", "--via", "npm", "--yes").code == 2


# on a terminal


@pytest.mark.slow
def test_a_person_is_asked_for_what_is_needed_and_for_a_yes(folder: Path, registry: ServedRegistry) -> None:
    with on_terminal("install", "com.example/notes", cwd=folder) as terminal:
        terminal.wait_for(r"The key of your notes\s+NOTES_KEY \(not shown as you type\): $")
        terminal.type("hunter2\n")
        terminal.wait_for(r"LOG_LEVEL \(debug, info\) \[info\]: $")
        terminal.type("loud\n")
        terminal.wait_for(r"expected debug, info, got 'loud'[\s\S]*LOG_LEVEL [^\n]*: $")
        terminal.type("\n")
        terminal.wait_for(r"for example 100\s+NOTES_LIMIT \(number\) \[Enter: left out\]: $")
        terminal.type("\n")
        terminal.wait_for(r"folder \(filepath\): $")
        terminal.type("\n")
        terminal.wait_for(r"the answer is empty[\s\S]*folder \(filepath\): $")
        terminal.type("here\n")
        terminal.wait_for(r"--tag \[Enter: left out\]: $")
        terminal.type("a\n")
        terminal.wait_for(r"--tag \[Enter: no more\]: $")
        terminal.type("\n")
        shown = terminal.wait_for(r"write this\? \[y\]es, \[n\]o: $")
        assert "uvx notes-server==1.2.0" in shown
        assert not (folder / "mcp.json").exists()
        terminal.type("y\n")

        assert terminal.end() == 0
        assert "hunter2" not in terminal.text
    assert servers(folder / "mcp.json")["notes"]["args"][1:] == [str(folder / "here"), "--tag", "a"]


@pytest.mark.slow
def test_no_writes_nothing(folder: Path, registry: ServedRegistry) -> None:
    with on_terminal("install", "io.github.acme/graph", "--set", "--mode=cached", cwd=folder) as terminal:
        terminal.wait_for(r"write this\? ")
        terminal.type("n\n")

        assert terminal.end() == 1
        assert "nothing was written" in terminal.text
    assert list(folder.iterdir()) == []


def test_the_end_of_the_input_writes_nothing(folder: Path, registry: ServedRegistry) -> None:
    with on_terminal("install", "com.example/notes", cwd=folder) as terminal:
        terminal.wait_for(r"NOTES_KEY [^\n]*: $")
        terminal.type("\x04")

        assert terminal.end() == 1
        assert "the input ended before every value was given" in terminal.text
    assert list(folder.iterdir()) == []


def test_answers_that_never_fit_end_it(folder: Path, registry: ServedRegistry) -> None:
    words = ("--set", "folder=x", "--set-env", "NOTES_KEY=HOME", "--set", "--tag=a", "--set", "LOG_LEVEL=info")
    with on_terminal("install", "com.example/notes", *words, cwd=folder) as terminal:
        for at in range(5):
            terminal.wait_for(rf"(NOTES_LIMIT [^\n]*: [\s\S]*){{{at + 1}}}$")
            terminal.type("many\n")

        assert terminal.end() == 1
        assert "no usable value for 'NOTES_LIMIT'" in terminal.text


@pytest.mark.slow
def test_a_config_that_changes_while_a_person_thinks_is_left_as_it_is(folder: Path, registry: ServedRegistry) -> None:
    with on_terminal("install", "io.github.acme/graph", "--set", "--mode=local", cwd=folder) as terminal:
        terminal.wait_for(r"write this\? ")
        (folder / "mcp.json").write_text("{}")
        terminal.type("yes\n")

        assert terminal.end() == 2
        assert "was changed meanwhile; nothing was written" in " ".join(terminal.text.split())
    assert (folder / "mcp.json").read_text() == "{}"


@pytest.mark.parametrize(
    "name, expected",
    [
        ("com.example/notes", "notes"),
        ("com.example/mcp", "example"),
        ("io.github.ada/mcp-server", "ada"),
        ("com.example/a.b_c", "a-b_c"),
        ("mcp/server", "server"),
        ("-/-", "server"),
    ],
)
def test_an_entry_is_named_by_the_word_that_says_something(name: str, expected: str) -> None:
    assert entry_name(name) == expected
