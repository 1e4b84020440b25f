"""A project's components on disk: what may be written where, and what its two files may say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.components.copies import age, everything
from toolweave.components import Action, Project, component
from toolweave.components._lockfile import LOCK, hash_of
from toolweave.components._project import MANIFEST
from toolweave.errors import ConfigError

SERVER = "mcp-server"


def added(root: Path, name: str = SERVER, folder: str | None = None) -> Project:
    """Return a project that has a component."""
    project = Project(root)
    project.carry_out(project.add(name, None if folder is None else root / folder))
    return project


@pytest.mark.requirement("R107")
def test_a_component_is_copied_to_the_letter_with_a_manifest_and_a_lock(tmp_path: Path) -> None:
    added(tmp_path)

    catalog = component(SERVER)
    copied = {path: (tmp_path / "mcp_server" / path).read_text() for path in catalog.files}
    lock = json.loads((tmp_path / LOCK).read_text())
    assert copied == catalog.files
    assert json.loads((tmp_path / MANIFEST).read_text()) == {"components": {SERVER: {"dir": "mcp_server"}}}
    assert lock["components"][SERVER]["version"] == catalog.version
    hashes = {path: file["sha256"] for path, file in lock["components"][SERVER]["files"].items()}
    assert hashes == {path: hash_of(text) for path, text in catalog.files.items()}


@pytest.mark.requirement("R107")
def test_either_component_comes_alone_and_both_go_without_a_trace(tmp_path: Path) -> None:
    for names in (["mcp-server"], ["mcp-client"], ["mcp-server", "mcp-client"]):
        for name in names:
            added(tmp_path, name)
        assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {n.replace("-", "_") for n in names}

        project = Project(tmp_path)
        project.carry_out(*(project.remove(name) for name in names))
        assert list(tmp_path.iterdir()) == []


def test_a_component_in_a_folder_of_ones_own_choice_is_found_there_again(tmp_path: Path) -> None:
    added(tmp_path, folder="src/app/bridge")

    project = Project(tmp_path)
    assert project.manifest.folders == {SERVER: "src/app/bridge"}
    assert not any(file.edited or file.outdated for file in project.files(SERVER))
    assert not project.update(SERVER).plan.writes


def test_a_folder_that_was_moved_is_followed_by_the_manifest(tmp_path: Path) -> None:
    added(tmp_path)
    (tmp_path / "mcp_server").rename(tmp_path / "elsewhere")
    text = (tmp_path / MANIFEST).read_text()
    (tmp_path / MANIFEST).write_text(text.replace("mcp_server", "elsewhere"))

    assert not any(file.edited for file in Project(tmp_path).files(SERVER))


@pytest.mark.requirement("R107")
def test_an_update_merges_the_catalogs_changes_with_the_users(tmp_path: Path) -> None:
    added(tmp_path)
    file = tmp_path / "mcp_server" / "settings.py"
    new = file.read_text()
    age(tmp_path, SERVER, "settings.py", new.replace("What the server is called", "How the server is named"))
    older = new.replace("What the server is called", "How the server is named")
    file.write_text(older.replace('name: str = "my-server"', 'name: str = "shop"'))
    project = Project(tmp_path)

    job = project.update(SERVER)
    project.carry_out(job)

    assert [step.action for step in job.plan.writes] == [Action.MERGE]
    assert file.read_text() == new.replace('name: str = "my-server"', 'name: str = "shop"')
    (state,) = [state for state in Project(tmp_path).files(SERVER) if state.path == "settings.py"]
    assert state.edited
    assert not state.outdated


def test_what_else_stands_in_the_manifest_stays(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text('{"$comment": "ours", "components": {}}')

    project = added(tmp_path)
    project.carry_out(project.remove(SERVER))

    assert json.loads((tmp_path / MANIFEST).read_text()) == {"$comment": "ours", "components": {}}


def test_the_project_is_found_from_a_folder_below_but_not_beyond_a_repository(tmp_path: Path) -> None:
    added(tmp_path)
    below, other = tmp_path / "src" / "deep", tmp_path / "other" / "deep"
    below.mkdir(parents=True)
    other.mkdir(parents=True)
    (tmp_path / "other" / ".git").mkdir()

    assert Project.at(below).root == tmp_path.resolve()
    assert Project.at(other).root == other.resolve()


# nothing is written elsewhere


@pytest.mark.requirement("R107")
@pytest.mark.parametrize("folder", ["..", "../outside", "a/../../outside", "."])
def test_a_folder_that_is_not_below_the_project_is_refused(tmp_path: Path, folder: str) -> None:
    root = tmp_path / "project"
    root.mkdir()

    with pytest.raises(ConfigError):
        Project(root).add(SERVER, root / folder)

    assert everything(tmp_path) == {}


@pytest.mark.requirement("R107")
@pytest.mark.parametrize("place", ["mcp_server", "mcp_server/tools.py", LOCK, MANIFEST])
def test_a_link_is_never_written_through(tmp_path: Path, place: str) -> None:
    root, outside = tmp_path / "project", tmp_path / "outside"
    outside.mkdir()
    link = root / place
    link.parent.mkdir(parents=True)
    target = outside if place == "mcp_server" else outside / "file"
    link.symlink_to(target)

    with pytest.raises(ConfigError, match="is a link"):
        added(root)

    assert everything(tmp_path) == {}


def test_a_link_in_the_middle_of_the_way_may_not_lead_out(tmp_path: Path) -> None:
    root, outside = tmp_path / "project", tmp_path / "outside"
    outside.mkdir()
    root.mkdir()
    (root / "src").symlink_to(outside)
    (root / MANIFEST).write_text(json.dumps({"components": {SERVER: {"dir": "src/mcp"}}}))

    with pytest.raises(ConfigError, match="leads out of"):
        Project(root).update(SERVER)
    with pytest.raises(ConfigError, match="is not inside the project"):
        Project(root).add(SERVER, root / "src" / "mcp")

    assert not list(outside.iterdir())


@pytest.mark.requirement("R107")
@pytest.mark.parametrize("folder", ["../x", "/etc", "a/../../x", "", ".", "C:\\x", "a\nb", "\ud800", 7, None])
def test_a_manifest_cannot_name_a_folder_elsewhere(tmp_path: Path, folder: Any) -> None:
    (tmp_path / MANIFEST).write_text(json.dumps({"components": {SERVER: {"dir": folder}}}))

    with pytest.raises(ConfigError, match=r"toolweave-components\.json: component 'mcp-server': 'dir' is"):
        Project(tmp_path)


@pytest.mark.requirement("R107")
@pytest.mark.parametrize("path", ["../victim.py", "/tmp/victim.py", "a/../../victim.py"])
def test_a_lock_cannot_name_a_file_elsewhere(tmp_path: Path, path: str) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (tmp_path / "victim.py").write_text("x\n")
    added(root)
    age(root, SERVER, path, "x\n")

    with pytest.raises(ConfigError, match=LOCK):
        Project(root)

    assert (tmp_path / "victim.py").exists()


@pytest.mark.parametrize(
    "text, said",
    [
        ("nonsense", "is not JSON"),
        ("[]", "must be an object, not list"),
        ('{"version": 2}', "a newer toolweave may have written it"),
        ('{"components": {"mcp-server": {"files": {"a.py": {"sha256": "0", "original": ["x"]}}}}}', "its hash"),
        ('{"components": {"mcp-server": {"files": {"a.py": {"original": "x"}}}}}', "its hash"),
        ('{"components": {"mcp-server": {"files": {"a.py": {"original": ["\\ud800"]}}}}}', "its hash"),
        ('{"components": []}', "'components' must be an object"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_a_broken_lock_is_told_and_changes_nothing(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / LOCK).write_text(text)

    with pytest.raises(ConfigError, match=said):
        Project(tmp_path)


# what is refused


def test_a_component_stays_where_it_is_and_shares_its_folder_with_no_other(tmp_path: Path) -> None:
    project = added(tmp_path)

    with pytest.raises(ConfigError, match="is in 'mcp_server' already"):
        project.add(SERVER, tmp_path / "other")
    with pytest.raises(ConfigError, match="give 'mcp-client' another folder"):
        project.add("mcp-client", tmp_path / "mcp_server")


def test_a_component_that_is_not_there_is_told_with_what_there_is(tmp_path: Path) -> None:
    project = added(tmp_path)

    with pytest.raises(ConfigError, match=r"there is no component 'nope'; there are .*mcp-client, mcp-server"):
        project.add("nope")
    for verb in (project.update, project.remove, project.files):
        with pytest.raises(ConfigError, match="is not in this project, which has mcp-server; `toolweave add mcp-cl"):
            verb("mcp-client")


def test_a_folder_where_a_file_belongs_is_told(tmp_path: Path) -> None:
    (tmp_path / "mcp_server" / "tools.py").mkdir(parents=True)

    with pytest.raises(ConfigError, match="is not a file"):
        Project(tmp_path).add(SERVER)


def test_a_refused_job_is_not_carried_out(tmp_path: Path) -> None:
    (tmp_path / "mcp_server").mkdir()
    (tmp_path / "mcp_server" / "tools.py").write_text("mine\n")
    project = Project(tmp_path)
    job = project.add(SERVER)

    with pytest.raises(ConfigError, match=r"tools\.py: there is another file of this name"):
        project.carry_out(job)

    assert everything(tmp_path) == {"mcp_server/tools.py": b"mine\n"}


def test_a_lost_lock_is_made_anew_when_nothing_was_edited(tmp_path: Path) -> None:
    project = added(tmp_path)
    before = everything(tmp_path)
    (tmp_path / LOCK).unlink()

    project = Project(tmp_path)
    project.carry_out(project.add(SERVER))

    assert everything(tmp_path) == before


def test_without_a_lock_what_is_as_in_the_catalog_can_be_removed_and_what_is_not_stays_known(tmp_path: Path) -> None:
    added(tmp_path)
    (tmp_path / "mcp_server" / "tools.py").write_text("mine\n")
    (tmp_path / LOCK).unlink()

    project = Project(tmp_path)
    project.carry_out(project.remove(SERVER))

    assert {*everything(tmp_path)} == {"mcp_server/tools.py", MANIFEST, LOCK}
    project.carry_out(project.remove(SERVER, force=True))
    assert everything(tmp_path) == {}


def test_a_lock_that_was_merged_badly_may_be_deleted_as_the_error_says(tmp_path: Path) -> None:
    added(tmp_path)
    before = everything(tmp_path)
    lock = tmp_path / LOCK
    lock.write_text(lock.read_text().replace("Settings", "Sittings"))

    with pytest.raises(ConfigError, match="or delete it and run `toolweave components update`"):
        Project(tmp_path)
    lock.unlink()
    project = Project(tmp_path)
    project.carry_out(project.update(SERVER))

    assert everything(tmp_path) == before


def test_a_folder_has_one_name_however_the_manifest_writes_it(tmp_path: Path) -> None:
    added(tmp_path)
    manifest = tmp_path / MANIFEST
    manifest.write_text(manifest.read_text().replace('"mcp_server"', '"./mcp_server//"'))
    project = Project(tmp_path)

    assert {step.action for step in project.add(SERVER, tmp_path / "mcp_server").plan.steps} == {Action.KEEP}
    with pytest.raises(ConfigError, match="give 'mcp-client' another folder"):
        project.add("mcp-client", tmp_path / "mcp_server", overwrite=True)


def test_what_python_left_and_cannot_be_deleted_does_not_undo_a_removal(tmp_path: Path) -> None:
    project = added(tmp_path)
    (tmp_path / "mcp_server" / "__pycache__" / "tools.odd.pyc").mkdir(parents=True)

    project.carry_out(project.remove(SERVER))

    assert everything(tmp_path) == {}
    assert project.manifest.folders == {}


def test_a_file_that_is_no_text_counts_as_edited_and_not_as_deleted(tmp_path: Path) -> None:
    project = added(tmp_path)
    (tmp_path / "mcp_server" / "tools.py").write_bytes(b"caf\xe9\n")

    (state,) = [file for file in project.files(SERVER) if file.path == "tools.py"]

    assert (state.edited, state.mine) == (True, "caf\ufffd\n")
