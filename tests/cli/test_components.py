"""`toolweave add` and `toolweave components`: copying source code, and updating it beside a person's edits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import Done, on_terminal
from tests.components.copies import age, everything
from tests.programs import ran
from toolweave.components import component, component_names

Cli = Callable[..., Done]
SERVER = component("mcp-server")


def edited(folder: Path, path: str, text: str) -> None:
    """Add a line to a copied file."""
    with (folder / path).open("a") as file:
        file.write(text)


def conflicting(folder: Path) -> Path:
    """Make the copied settings differ from the catalog and from what was copied, in one line; return the file."""
    file = folder / "mcp_server" / "settings.py"
    text = file.read_text()
    age(folder, "mcp-server", "settings.py", text.replace('"my-server"', '"old-name"'))
    file.write_text(text.replace('"my-server"', '"shop"'))
    return file


@pytest.mark.requirement("R107")
@pytest.mark.parametrize("name", component_names())
def test_a_component_is_copied_and_the_next_commands_are_told(cli: Cli, folder: Path, name: str) -> None:
    done = cli("add", name)

    module = name.replace("-", "_")
    assert done.code == 0
    assert f"{module}/__init__.py" in done.out
    assert f"{name} is in {module}; next:\n" in done.err
    assert f"python -m {module}" in done.err
    assert {path.name for path in (folder / module).iterdir()} == set(component(name).files)


@pytest.mark.requirement("R107")
@pytest.mark.parametrize(
    ("place", "module"), [("src/app/bridge", "app.bridge"), ("src", "src"), ("app/src", "app.src")]
)
def test_the_folder_can_be_chosen_and_the_next_commands_name_it(
    cli: Cli, folder: Path, place: str, module: str
) -> None:
    done = cli("add", "mcp-server", "--dir", place)

    assert done.code == 0
    assert f"python -m {module} --http 8000" in done.err
    assert (folder / place / "server.py").exists()


@pytest.mark.requirement("R107")
@pytest.mark.parametrize("place", ["..", "../other", "/tmp/other", "."])
def test_a_folder_elsewhere_is_wrong_usage(cli: Cli, folder: Path, place: str) -> None:
    done = cli("add", "mcp-server", "--dir", place)

    assert done.code == 2
    assert done.err.startswith("error: ")
    assert everything(folder) == {}


def test_an_unknown_component_is_wrong_usage_that_names_the_known_ones(cli: Cli, folder: Path) -> None:
    done = cli("add", "mcp-sever")

    assert done.code == 2
    assert done.err == "error: there is no component 'mcp-sever'; there are agent, mcp-client, mcp-server\n"


@pytest.mark.requirement("R107")
def test_a_dry_run_shows_everything_and_changes_nothing(cli: Cli, folder: Path) -> None:
    tried = cli("add", "mcp-server", "--dry-run")
    assert tried.code == 0
    assert everything(folder) == {}
    cli("add", "mcp-server")
    before = everything(folder)
    conflicting(folder)
    changed = everything(folder)

    for command in (["update", "--on-conflict", "markers"], ["remove", "mcp-server", "--force"]):
        assert cli("components", *command, "--dry-run").code == 0
    assert everything(folder) == changed != before


@pytest.mark.requirement("R107")
def test_files_that_differ_are_replaced_only_when_that_is_asked_for(cli: Cli, folder: Path) -> None:
    (folder / "mcp_server").mkdir()
    (folder / "mcp_server" / "tools.py").write_text("mine\n")

    refused = cli("add", "mcp-server")
    assert refused.code == 1
    assert "nothing was copied: a file differs\nhint: --overwrite" in refused.err
    assert "there is another file of this name" in refused.out
    assert everything(folder) == {"mcp_server/tools.py": b"mine\n"}

    assert cli("add", "mcp-server", "--overwrite").code == 0
    assert (folder / "mcp_server" / "tools.py").read_text() == SERVER.files["tools.py"]


def test_adding_again_changes_nothing(cli: Cli, folder: Path) -> None:
    cli("add", "mcp-server")
    before = everything(folder)

    done = cli("add", "mcp-server")

    assert (done.code, done.out) == (0, "")
    assert everything(folder) == before


def test_the_list_says_what_there_is_and_what_became_of_it(cli: Cli, folder: Path) -> None:
    cli("add", "mcp-server")
    edited(folder, "mcp_server/tools.py", "# mine\n")
    conflicting(folder)

    shown = cli("components", "list")
    listed = {entry["component"]: entry for entry in cli("components", "list", "--json").json["components"]}

    assert "mcp-server   mcp_server   2 edited, 1 outdated" in shown.out
    assert listed["mcp-client"]["dir"] is None
    assert set(listed["mcp-server"]["edited"]) == {"settings.py", "tools.py"}
    assert listed["mcp-server"]["outdated"] == ["settings.py"]
    assert listed["mcp-server"]["version"] == SERVER.version


@pytest.mark.requirement("R107")
def test_the_difference_shows_the_edits_and_what_is_new(cli: Cli, folder: Path) -> None:
    cli("add", "mcp-server")
    assert "as it was copied, and the catalog has nothing new" in cli("components", "diff").err
    conflicting(folder)
    (folder / "mcp_server" / "bridge.py").unlink()

    shown = cli("components", "diff", "mcp-server").out
    (entry,) = cli("components", "diff", "--json").json["components"]

    edits, news = shown.split("# mcp-server: new in the catalog\n")
    assert '-    name: str = "old-name"\n+    name: str = "shop"\n' in edits
    assert '-    name: str = "old-name"\n+    name: str = "my-server"\n' in news
    assert "--- copied/bridge.py\n+++ /dev/null\n" in edits
    settings = next(file for file in entry["files"] if file["path"] == "settings.py")
    assert settings["edited"]
    assert settings["outdated"]
    assert '+    name: str = "shop"' in settings["edits"]
    assert '+    name: str = "my-server"' in settings["news"]


@pytest.mark.requirement("R107")
def test_the_edits_that_are_shown_are_a_patch(cli: Cli, folder: Path) -> None:
    cli("add", "mcp-server")
    edited(folder, "mcp_server/tools.py", "MINE = 1")

    patch = cli("components", "diff").out

    assert "+MINE = 1\n\\ No newline at end of file\n" in patch


@pytest.mark.requirement("R107")
def test_an_update_merges_and_says_when_there_is_nothing_to_do(cli: Cli, folder: Path) -> None:
    cli("add", "mcp-server")
    assert "everything is up to date" in cli("components", "update").err
    age(folder, "mcp-server", "tools.py", "# an old first line\n" + SERVER.files["tools.py"])
    (folder / "mcp_server" / "tools.py").write_text("# an old first line\n" + SERVER.files["tools.py"] + "# mine\n")

    done = cli("components", "update")

    assert done.code == 0
    assert "mcp_server/tools.py   merge" in done.out
    assert (folder / "mcp_server" / "tools.py").read_text() == SERVER.files["tools.py"] + "# mine\n"


@pytest.mark.requirement("R107")
def test_an_update_that_would_meet_an_edit_is_refused_as_a_whole_and_names_the_file(cli: Cli, folder: Path) -> None:
    cli("add", "mcp-server")
    cli("add", "mcp-client")
    age(folder, "mcp-client", "settings.py", "# old\n")
    (folder / "mcp_client" / "settings.py").write_text("# old\n")
    line = 1 + conflicting(folder).read_text().splitlines().index('    name: str = "shop"')
    before = everything(folder)

    done = cli("components", "update")

    assert done.code == 1
    assert "error: nothing was updated, for mcp_server/settings.py\nhint: --on-conflict markers" in done.err
    assert f"you and the catalog changed it at line {line}\n" in done.out
    assert everything(folder) == before
    report = cli("components", "update", "--json")
    assert report.code == 1
    assert [entry["done"] for entry in report.json["components"]] == [False, False]


@pytest.mark.requirement("R107")
def test_conflict_markers_are_written_when_asked_for(cli: Cli, folder: Path) -> None:
    cli("add", "mcp-server")
    file = conflicting(folder)

    done = cli("components", "update", "--on-conflict", "markers")

    assert done.code == 0
    assert (
        '<<<<<<< yours\n    name: str = "shop"\n=======\n    name: str = "my-server"\n'
        f">>>>>>> toolweave {SERVER.version}\n" in file.read_text()
    )


@pytest.mark.requirement("R107")
def test_the_new_file_is_written_beside_the_edited_one_when_asked_for(cli: Cli, folder: Path) -> None:
    cli("add", "mcp-server")
    file = conflicting(folder)
    mine = file.read_text()

    done = cli("components", "update", "mcp-server", "--on-conflict", "side")

    assert done.code == 0
    assert "settings.py.new" in done.out
    assert file.read_text() == mine
    assert file.with_name("settings.py.new").read_text() == SERVER.files["settings.py"]
    assert "everything is up to date" in cli("components", "update").err


@pytest.mark.requirement("R107")
def test_removing_leaves_what_was_edited_until_it_is_forced(cli: Cli, folder: Path) -> None:
    cli("add", "mcp-server")
    edited(folder, "mcp_server/tools.py", "# mine\n")

    left = cli("components", "remove", "mcp-server")
    assert left.code == 1
    assert "left, because you changed it: mcp_server/tools.py; --force deletes it too" in left.err
    assert [path.name for path in (folder / "mcp_server").iterdir()] == ["tools.py"]

    assert cli("components", "remove", "mcp-server", "--force").code == 0
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_what_python_made_of_the_copies_goes_with_them(cli: Cli, folder: Path) -> None:
    cli("add", "mcp-server")
    subprocess.run(
        [sys.executable, "-c", "import sys; sys.dont_write_bytecode = False; import mcp_server"], cwd=folder, check=True
    )
    assert (folder / "mcp_server" / "__pycache__").exists()

    cli("components", "remove", "mcp-server")

    assert list(folder.iterdir()) == []


def test_a_project_without_components_is_told(cli: Cli, folder: Path) -> None:
    for verb in ("diff", "update"):
        done = cli("components", verb)
        assert done.code == 2
        assert done.err == "error: this project has no components\nhint: toolweave add COMPONENT copies one\n"
    assert cli("components", "list").code == 0
    assert cli("components", "remove", "agent").code == 2


def test_each_change_has_its_json_twin(cli: Cli, folder: Path) -> None:
    added = cli("add", "mcp-server", "--json")
    again = cli("add", "mcp-server", "--json", "--dry-run")
    removed = cli("components", "remove", "mcp-server", "--json")

    assert (added.err, added.code) == ("", 0)
    assert added.json["component"] == "mcp-server"
    assert added.json["dir"] == "mcp_server"
    assert added.json["done"]
    assert {file["action"] for file in added.json["files"]} == {"create"}
    assert not again.json["done"]
    assert {file["action"] for file in again.json["files"]} == {"keep"}
    assert {file["action"] for file in removed.json["components"][0]["files"]} == {"delete"}


@pytest.mark.parametrize("name", ["gone", "mcp"])
def test_a_component_that_the_catalog_no_longer_has_can_be_kept_and_removed(cli: Cli, folder: Path, name: str) -> None:
    (folder / "toolweave-components.json").write_text(json.dumps({"components": {name: {"dir": "gone"}}}))
    (folder / "toolweave-components.lock").write_text(json.dumps({"version": 1, "components": {name: {"files": {}}}}))
    age(folder, name, "a.py", "x\n")
    (folder / "gone").mkdir()
    (folder / "gone" / "a.py").write_text("x\n")

    assert "not in this version's catalog" in cli("components", "list").out
    assert cli("components", "update").code == 0
    assert (folder / "gone" / "a.py").exists()
    assert cli("components", "remove", name).code == 0
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_the_names_are_completed(cli: Cli, folder: Path) -> None:
    cli("add", "mcp-client")

    def completed(line: str) -> list[str]:
        words = len(line.split()) - (not line.endswith(" "))
        asked = {"_TOOLWEAVE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(words)}
        done = ran([sys.executable, "-m", "toolweave"], cwd=folder, env={**os.environ, **asked}, check=True)
        return done.stdout.split()

    assert completed("toolweave add mcp") == ["mcp-client", "mcp-server"]
    assert completed("toolweave components remove ") == ["mcp-client"]
    assert "update" in completed("toolweave components ")


@pytest.mark.slow
def test_edits_are_shown_in_colours_on_a_terminal(cli: Cli, folder: Path) -> None:
    cli("add", "mcp-server")
    edited(folder, "mcp_server/tools.py", "# mine \x1b[31m\n")

    with on_terminal("components", "diff", cwd=folder) as terminal:
        assert terminal.end() == 0

    assert "\x1b[32m+# mine \\x1b[31m" in terminal.raw
    assert "\x1b[31m" not in terminal.raw.replace("\\x1b[31m", "")


@pytest.mark.parametrize("words", [["add"], ["components", "update"], ["components", "remove"], ["components", "diff"]])
def test_the_help_has_examples(cli: Cli, words: list[str]) -> None:
    done = cli(*words, "--help")

    assert done.code == 0
    assert f"Examples:\n    toolweave {' '.join(words)}" in done.out


def test_a_broken_lock_is_told_in_one_line(cli: Cli, folder: Path) -> None:
    cli("add", "mcp-server")
    lock = json.loads((folder / "toolweave-components.lock").read_text())
    lock["components"]["mcp-server"]["files"]["tools.py"]["original"] = ["tampered"]
    (folder / "toolweave-components.lock").write_text(json.dumps(lock))

    done = cli("components", "update")

    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "file 'tools.py' of component 'mcp-server' does not have its hash" in done.err


def test_a_component_that_reads_a_config_says_what_is_missing(cli: Cli, folder: Path) -> None:
    assert "it reads its servers from mcp.json, which is not here yet: toolweave init" in cli("add", "mcp-client").err
    assert cli("init").code == 0

    assert "which is not here" not in cli("add", "mcp-client", "--dir", "other").err
    assert "mcp.json" not in cli("add", "mcp-server").err
