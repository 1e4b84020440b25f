"""Bundles are read, judged as a whole, unpacked within bounds, and started as their manifest says."""

from __future__ import annotations

import json
import stat
import struct
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.install.bundles import link, made_bundle, manifest, zipped
from toolweave import connect_mcp
from toolweave.config import Secret
from toolweave.errors import ConfigError, RegistryError
from toolweave.install import OWN_FORMAT, LaunchAnswers, SecretFiles, ServerBundle, ServerLaunch


def launched(bundle: ServerBundle, base: Path, **given: Any) -> ServerLaunch:
    option = bundle.option(base)
    return option.build(LaunchAnswers(option.questions, given))


def commanded(members: dict[str, Any]) -> bytes:
    """Return a bundle without questions whose command has these members."""
    server = {"type": "python", "entry_point": "server/main.py", "mcp_config": {"command": "python", **members}}
    return made_bundle({"server": server, "user_config": {}})


def words(launch: ServerLaunch) -> list[str]:
    entry = OWN_FORMAT.entry(launch, {}, server="x")
    return [entry["command"], *entry["args"]]


async def test_a_bundle_is_unpacked_and_its_server_runs_with_what_was_answered(tmp_path: Path) -> None:
    bundle = ServerBundle(made_bundle())
    launch = launched(bundle, tmp_path, key=["hunter2"], folders=[str(tmp_path / "a"), "/b"])
    secrets = SecretFiles("bundled", base=tmp_path)

    folder = bundle.unpack(tmp_path)
    (kept,) = secrets.keep(launch)

    assert folder == tmp_path / f"bundled-1.0.0-{bundle.sha256[:12]}"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    entry = OWN_FORMAT.entry(launch, secrets.paths(launch), server="bundled")
    assert "hunter2" not in json.dumps(entry)
    async with connect_mcp({"mcpServers": {"bundled": entry}}) as connection:
        seen = (await connection.call_tool("seen")).text
    assert seen == f"hunter2|{tmp_path / 'a'} /b --level=3"


def test_what_a_bundle_asks_for_is_asked_as_its_manifest_says(tmp_path: Path) -> None:
    key, folders, level = ServerBundle(made_bundle()).option(tmp_path).questions

    assert (key.name, key.description, key.required, key.secret) == ("key", "A key", True, True)
    assert (folders.format, folders.repeated) == ("filepath", True)
    assert (level.format, level.defaults, level.minimum, level.maximum) == ("number", ("3",), 1, 5)


def test_an_answer_outside_the_bounds_of_a_manifest_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected at most 5"):
        launched(ServerBundle(made_bundle()), tmp_path, key=["k"], level=["6"])


def test_a_secret_stays_a_secret_within_a_text(tmp_path: Path) -> None:
    config = {"command": "python", "args": ["--header=Bearer ${user_config.key}"]}
    server = {"type": "python", "entry_point": "server/main.py", "mcp_config": config}

    launch = launched(ServerBundle(made_bundle({"server": server})), tmp_path, key=["hunter2"])

    (word,) = launch.args
    assert word[0] == "--header=Bearer "
    assert launch.secrets[0].value == Secret("hunter2")


def test_the_variables_of_a_manifest_are_replaced(tmp_path: Path, home: Path) -> None:
    args = ["${HOME}", "${DESKTOP}${/}x", "${DOCUMENTS}", "${DOWNLOADS}", "a${pathSeparator}b", "${__dirname}"]
    bundle = ServerBundle(commanded({"args": args}))

    made = words(launched(bundle, tmp_path))[1:]

    assert made == [
        str(home),
        f"{home}/Desktop/x",
        f"{home}/Documents",
        f"{home}/Downloads",
        "a/b",
        str(bundle.folder(tmp_path)),
    ]


def test_defaults_have_these_variables_too_and_may_be_several(tmp_path: Path, home: Path) -> None:
    setting = {"type": "directory", "title": "x", "description": "x", "multiple": True, "default": ["${HOME}/a", "/b"]}
    config = {"command": "python", "args": ["${user_config.dirs}"]}
    server = {"type": "python", "entry_point": "server/main.py", "mcp_config": config}

    bundle = ServerBundle(made_bundle({"server": server, "user_config": {"dirs": setting}}))

    assert words(launched(bundle, tmp_path)) == ["python", f"{home}/a", "/b"]


def test_the_command_of_this_system_takes_precedence(tmp_path: Path) -> None:
    overrides = {sys.platform: {"command": "python3", "env": {"B": "2"}}, "other": {"command": "nothing"}}
    bundle = ServerBundle(commanded({"args": ["x"], "env": {"A": "1"}, "platform_overrides": overrides}))

    launch = launched(bundle, tmp_path)

    assert words(launch) == ["python3", "x"]
    assert launch.env == {"A": ("1",), "B": ("2",)}


def test_a_program_of_the_bundle_is_started_from_its_folder_and_can_be(tmp_path: Path) -> None:
    server = {"type": "binary", "entry_point": "bin/run", "mcp_config": {"command": "bin/run"}}
    bundle = ServerBundle(made_bundle({"server": server, "user_config": {}}, **{"bin/run": "#!/bin/sh\n"}))

    folder = bundle.unpack(tmp_path)

    assert words(launched(bundle, tmp_path)) == [str(folder / "bin/run")]
    assert (folder / "bin/run").stat().st_mode & 0o111
    assert not (folder / "server/main.py").stat().st_mode & 0o111


def test_a_bundle_of_uv_needs_no_command(tmp_path: Path) -> None:
    server = {"type": "uv", "entry_point": "server/main.py"}
    bundle = ServerBundle(made_bundle({"manifest_version": "0.4", "server": server, "user_config": {}}))

    assert words(launched(bundle, tmp_path)) == [
        "uv",
        "run",
        "--directory",
        str(bundle.folder(tmp_path)),
        "server/main.py",
    ]


def test_an_old_bundle_says_its_version_in_another_member() -> None:
    members = manifest()
    members["dxt_version"] = members.pop("manifest_version").replace("3", "1")

    bundle = ServerBundle(zipped({"manifest.json": json.dumps(members), "server/main.py": ""}))

    assert bundle.manifest.dxt_version == "0.1"


def test_unpacking_again_replaces_what_was_there(tmp_path: Path) -> None:
    bundle = ServerBundle(made_bundle())
    folder = bundle.unpack(tmp_path)
    (folder / "left.txt").write_text("x")

    assert bundle.unpack(tmp_path) == folder
    assert [file.name for file in tmp_path.iterdir()] == [folder.name]
    assert not (folder / "left.txt").exists()


WRONG_MANIFESTS: list[tuple[dict[str, Any], str]] = [
    ({"manifest_version": "2.0"}, "0.1 to 0.4 are known"),
    ({"manifest_version": None}, "0.1 to 0.4 are known"),
    ({"compatibility": {"platforms": ["amiga"]}}, "is for amiga"),
    ({"server": {"type": "ruby", "entry_point": "x"}}, "is not valid"),
    ({"server": {"type": "node", "entry_point": "no/such.js", "mcp_config": {"command": "node"}}}, "is not in it"),
    ({"server": {"type": "node", "entry_point": "../x", "mcp_config": {"command": "node"}}}, "is not in it"),
    ({"server": 5}, "is not valid"),
    ({"user_config": {"x": {"type": "unheard-of"}}}, "is not valid"),
]


@pytest.mark.parametrize("members, says", WRONG_MANIFESTS, ids=range(len(WRONG_MANIFESTS)))
def test_a_manifest_that_is_wrong_is_refused(members: dict[str, Any], says: str) -> None:
    with pytest.raises(RegistryError, match=says):
        ServerBundle(made_bundle(members))


WRONG_COMMANDS: list[tuple[dict[str, Any], str]] = [
    ({"command": ""}, "names no program"),
    ({"args": ["${user_config.other}"]}, "which it does not ask for"),
    ({"args": ["${TOKEN}"]}, "which is not known"),
    ({"args": ["${file:~/.ssh/id_rsa}"]}, "which is not known"),
    ({"args": ["${user_config.a${HOME}}"]}, "a variable or a file of yours|does not ask for"),
    ({"args": ["$TOKEN"]}, "a variable or a file of yours"),
    ({"env": {"A": "{file:/etc/passwd}"}}, "a variable or a file of yours"),
    ({"env": {"A=B": "x"}}, "not a name of a variable"),
    ({"args": ["a\nb"]}, "a control character"),
]


@pytest.mark.parametrize("members, says", WRONG_COMMANDS, ids=range(len(WRONG_COMMANDS)))
def test_a_command_that_refers_to_what_is_not_the_bundles_is_refused(
    tmp_path: Path, members: dict[str, Any], says: str
) -> None:
    with pytest.raises(RegistryError, match=says):
        ServerBundle(commanded(members)).option(tmp_path)


def test_a_command_that_is_nowhere_is_refused(tmp_path: Path) -> None:
    server = {"type": "node", "entry_point": "server/main.py"}

    with pytest.raises(RegistryError, match="has no command that starts its server"):
        ServerBundle(made_bundle({"server": server})).option(tmp_path)


def test_a_bundle_that_asks_for_too_much_is_refused(tmp_path: Path) -> None:
    many = {f"x{at}": {"type": "string"} for at in range(201)}

    with pytest.raises(RegistryError, match="asks for 201 values"):
        ServerBundle(made_bundle({"user_config": many})).option(tmp_path)


def info(name: str, **members: Any) -> zipfile.ZipInfo:
    made = zipfile.ZipInfo("x")
    made.filename = name
    for key, value in members.items():
        setattr(made, key, value)
    return made


HOSTILE: list[tuple[dict[str, Any], str]] = [
    ({"../evil": "x"}, "not a path inside of it"),
    ({"a/../../evil": "x"}, "not a path inside of it"),
    ({"/etc/evil": "x"}, "not a path inside of it"),
    ({"C:evil": "x"}, "not a path inside of it"),
    ({"a\\evil": (info("a\\evil"), b"x")}, "not a path inside of it"),
    ({"a\u202eb": "x"}, "not a path inside of it"),
    ({"a/" * 41 + "x": "x"}, "not a path inside of it"),
    ({"x" * 300: "x"}, "not a path inside of it"),
    ({"a/" + "\u00e9" * 128: "x"}, "not a path inside of it"),
    ({"x": link("x", "/etc/passwd")}, "a link or a device"),
    ({"x": (info("x", create_system=3, external_attr=(stat.S_IFIFO | 0o600) << 16), b"")}, "a link or a device"),
    ({"SERVER/main.py": "x"}, "twice"),
    ({"server/main.py/x": "x"}, "inside of a file"),
    ({"x": (info("x", compress_type=zipfile.ZIP_BZIP2), b"x")}, "in a way that is not known"),
]


@pytest.mark.parametrize("files, says", HOSTILE, ids=range(len(HOSTILE)))
def test_a_member_that_leads_elsewhere_is_refused_before_any_is_read(files: dict[str, Any], says: str) -> None:
    with pytest.raises(RegistryError, match=says) as caught:
        ServerBundle(made_bundle(**files))

    assert str(caught.value).isprintable()


def test_an_encrypted_member_is_refused() -> None:
    data = bytearray(made_bundle())
    at = data.rfind(b"PK\x01\x02")
    data[at + 8] |= 1  # general purpose flag, in the list of members

    with pytest.raises(RegistryError, match="is encrypted"):
        ServerBundle(bytes(data))


@pytest.mark.parametrize(
    "data, says",
    [
        (b"", "not a zip archive"),
        (b"PK\x05\x06", "not a zip archive"),
        (b"<html>not found</html>" * 100, "not a zip archive"),
        (b"PK\x05\x06" + bytes(18), "no file 'manifest.json'"),
        (b"PK\x05\x06" + bytes(8) + struct.pack("<II", 2**31, 0) + bytes(2), "more than"),
        (b"PK\x06\x07" + bytes(16) + b"PK\x05\x06" + bytes(18), "64-bit"),
    ],
    ids=range(6),
)
def test_what_is_no_archive_is_refused(data: bytes, says: str) -> None:
    with pytest.raises(RegistryError, match=says):
        ServerBundle(data)


def test_an_archive_that_was_cut_off_is_refused() -> None:
    data = made_bundle()

    for end in range(0, len(data), 37):
        with pytest.raises(RegistryError):
            ServerBundle(data[:end])


def test_a_damaged_file_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    data = bytearray(made_bundle(blob=bytes(range(256)) * 50))
    at = data.find(b"blob") + 4
    data[at + 10] ^= 0xFF

    bundle = ServerBundle(bytes(data))

    with pytest.raises(RegistryError, match="is damaged"):
        bundle.unpack(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_bomb_is_counted_as_it_inflates_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolweave.install._archive.MAX_UNPACKED_BYTES", 10_000_000)
    bundle = ServerBundle(made_bundle(bomb=bytes(20_000_000)))

    with pytest.raises(RegistryError, match="larger than 10,000,000 bytes when it is unpacked"):
        bundle.unpack(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_manifest_that_is_a_bomb_is_refused() -> None:
    with pytest.raises(RegistryError, match=r"'manifest\.json' in the bundle is larger"):
        ServerBundle(zipped({"manifest.json": b" " * 20_000_000}))


def test_an_archive_with_too_many_members_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolweave.install._archive.MAX_MEMBERS", 100)

    with pytest.raises(RegistryError, match="101 members; at most 100"):
        ServerBundle(zipped({f"{at}": "" for at in range(101)}))


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "large.mcpb").write_bytes(bytes(100))

    with pytest.raises(RegistryError, match="cannot be read"):
        ServerBundle.open(tmp_path / "none.mcpb")
    with pytest.raises(RegistryError, match="larger than 10 bytes"):
        ServerBundle.open(tmp_path / "large.mcpb", max_bytes=10)
    with pytest.raises(RegistryError, match="cannot be read"):
        ServerBundle.open(tmp_path)


@pytest.mark.skipif("os.geteuid() == 0", reason="platform: root may write anywhere")
def test_a_disk_that_takes_nothing_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(RegistryError, match="cannot unpack to"):
            ServerBundle(made_bundle()).unpack(tmp_path / "inner")
    finally:
        tmp_path.chmod(0o700)


def test_a_place_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")

    with pytest.raises(RegistryError, match="cannot unpack to"):
        ServerBundle(made_bundle()).unpack(tmp_path / "file")
