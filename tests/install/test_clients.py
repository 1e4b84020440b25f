"""Each client's entry has the keys that it reads, and refers to secrets in its own way, or cannot."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from toolweave.config import Secret, editor_config_files, load_config, reveal
from toolweave.errors import StoreError
from toolweave.install import CLIENT_FORMATS, OWN_FORMAT, ClientFormat, SecretFiles, SecretWord, ServerLaunch

KEY = SecretWord(name="KEY", description="A key", value=Secret("hunter2"))
LOCAL = ServerLaunch(command="npx", args=(("-y",), ("x@1.0.0",)), env={"LEVEL": ("info",)})
SECRET = LOCAL.replace(env={"KEY": ("id:", KEY)})
REMOTE = ServerLaunch(transport="http", url=("https://x.example/mcp",), headers={"X-A": ("1",)})
SSE = REMOTE.replace(transport="sse")
PATHS = {"KEY": Path("/s/KEY")}
ALL = [OWN_FORMAT, *CLIENT_FORMATS.values()]


def in_section(form: ClientFormat, entry: dict[str, Any]) -> dict[str, Any]:
    value: dict[str, Any] = {"x": entry}
    for key in reversed(form.section):
        value = {key: value}
    return value


@pytest.mark.parametrize("form", ALL, ids=lambda form: form.name)
@pytest.mark.parametrize("launch", [LOCAL, REMOTE, SSE], ids=lambda launch: launch.transport)
def test_what_is_written_for_a_client_is_read_as_the_same_server(form: ClientFormat, launch: ServerLaunch) -> None:
    if form.reason_for_relay(launch):
        assert "by itself" in form.reason_for_relay(launch)
        return

    (config,) = load_config(in_section(form, form.entry(launch, {}, server="x"))).servers.values()

    if launch is LOCAL:
        assert (config.command, list(config.args)) == ("npx", ["-y", "x@1.0.0"])
        assert {name: reveal(value) for name, value in config.env.items()} == {"LEVEL": "info"}
    else:
        assert config.url == "https://x.example/mcp"
        assert not callable(config.headers)
        assert {name: reveal(value) for name, value in config.headers.items()} == {"X-A": "1"}


def test_the_keys_are_those_of_each_client() -> None:
    made = {name: form.entry(REMOTE, {}, server="x") for name, form in CLIENT_FORMATS.items() if form.urls[0]}

    assert made["gemini"] == {"httpUrl": "https://x.example/mcp", "headers": {"X-A": "1"}}
    assert made["codex"] == {"url": "https://x.example/mcp", "http_headers": {"X-A": "1"}}
    assert made["windsurf"] == {"serverUrl": "https://x.example/mcp", "headers": {"X-A": "1"}}
    assert made["vscode"] == {"type": "http", "url": "https://x.example/mcp", "headers": {"X-A": "1"}}
    assert made["opencode"] == {"type": "remote", "url": "https://x.example/mcp", "headers": {"X-A": "1"}}
    opencode = CLIENT_FORMATS["opencode"].entry(LOCAL, {}, server="x")
    assert opencode == {"type": "local", "command": ["npx", "-y", "x@1.0.0"], "environment": {"LEVEL": "info"}}


@pytest.mark.parametrize(
    "name, reference",
    [
        ("toolweave", "id:${file:/s/KEY}"),
        ("windsurf", "id:${file:/s/KEY}"),
        ("opencode", "id:{file:/s/KEY}"),
        ("vscode", "id:${input:my-x-KEY}"),
    ],
)
def test_a_secret_is_referred_to_as_the_client_can(name: str, reference: str) -> None:
    form = next(one for one in ALL if one.name == name)

    entry = form.entry(SECRET, PATHS, server="my x")

    assert form.reason_for_relay(SECRET) == ""
    assert entry[form.env] == {"KEY": reference}


@pytest.mark.parametrize("name", ["claude", "claude-code", "cursor", "codex", "gemini", "cline", "zed"])
def test_a_client_without_references_gets_no_secret(name: str) -> None:
    assert "can only refer to a secret by writing it down" in CLIENT_FORMATS[name].reason_for_relay(SECRET)
    assert CLIENT_FORMATS[name].reason_for_relay(LOCAL) == ""


def test_a_client_that_asks_gets_the_definition_of_what_it_asks_for() -> None:
    definition = {"type": "promptString", "id": "x-KEY", "description": "A key", "password": True}

    assert CLIENT_FORMATS["vscode"].inputs(SECRET, server="x") == [definition]
    assert OWN_FORMAT.inputs(SECRET, server="x") == []


def test_every_client_has_a_file_that_is_known() -> None:
    kinds = {file.kind for file in editor_config_files()}

    assert {form.kind for form in CLIENT_FORMATS.values()} <= kinds


def test_secrets_of_two_servers_of_one_name_stay_apart(tmp_path: Path) -> None:
    mine = SecretFiles("x", "com.example/x", base=tmp_path)
    yours = SecretFiles("x", "com.evil/x", base=tmp_path)

    (kept,) = mine.keep(SECRET)

    assert kept.read_text() == "hunter2"
    assert kept.parent != yours.paths(SECRET)["KEY"].parent
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["../../evil", "/etc/passwd", "", "a\nb", "-", "é", "x" * 300])
def test_no_name_of_a_secret_leads_out_of_its_folder(tmp_path: Path, name: str) -> None:
    launch = LOCAL.replace(env={"A": (KEY.replace(name=name),)})

    (kept,) = SecretFiles("../x", base=tmp_path).keep(launch)

    assert kept.resolve().is_relative_to(tmp_path.resolve())
    assert kept.read_text() == "hunter2"


def test_secrets_are_not_kept_where_others_can_write(tmp_path: Path) -> None:
    files = SecretFiles("x", base=tmp_path)
    files.folder.mkdir(parents=True)
    files.folder.chmod(0o777)

    with pytest.raises(StoreError, match="others can write"):
        files.keep(SECRET)


def test_a_secret_that_is_asked_for_later_is_not_kept(tmp_path: Path) -> None:
    launch = LOCAL.replace(env={"A": (KEY.replace(value=None),)})

    assert SecretFiles("x", base=tmp_path).keep(launch) == []
    assert list(tmp_path.iterdir()) == []


def test_the_form_of_a_secret_shows_nothing_of_it() -> None:
    assert "hunter2" not in f"{SECRET!r} {KEY!r}"
