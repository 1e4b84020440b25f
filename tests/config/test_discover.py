"""Which config files are found, and which count when none is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from toolweave.config import ConfigFile, TrustedFiles, default_config, discover_config_files
from toolweave.errors import ConfigError


def servers(*names: str, key: str = "mcpServers") -> str:
    return json.dumps({key: {name: {"command": f"run-{name}"} for name in names}})


def put(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.fixture
def user(tmp_path: Path) -> Path:
    (tmp_path / "user").mkdir()
    return tmp_path / "user"


@pytest.mark.requirement("R8")
def test_the_files_of_the_project_come_first_in_a_fixed_order(project: Path, user: Path) -> None:
    names = [
        *("mcp.json", ".mcp.json", ".vscode/mcp.json", ".cursor/mcp.json", ".gemini/settings.json"),
        *(".codex/config.toml", "opencode.json", "opencode.jsonc", ".opencode/opencode.json", ".zed/settings.json"),
        *(".roo/mcp.json", ".kilocode/mcp.json", ".kiro/settings/mcp.json", ".amazonq/mcp.json", "crush.json"),
        ".crush.json",
    ]
    put(project, {name: servers() for name in reversed(names)})
    put(project, {"pyproject.toml": "[tool.toolweave]\n"})
    put(user, {".cursor/mcp.json": servers()})

    found = discover_config_files(project, home=user, platform="linux")

    assert found == [
        *(ConfigFile(path=project / name, kind="project") for name in [*names, "pyproject.toml"]),
        ConfigFile(path=user / ".cursor/mcp.json", kind="cursor"),
    ]


LINUX = {
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "claude-code": ".claude.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".config/Code/User/mcp.json",
    "windsurf": ".codeium/windsurf/mcp_config.json",
    "gemini": ".gemini/settings.json",
    "codex": ".codex/config.toml",
    "cline": ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
    "zed": ".config/zed/settings.json",
    "opencode": ".config/opencode/opencode.json",
    "roo": ".config/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
    "kiro": ".kiro/settings/mcp.json",
    "lm-studio": ".lmstudio/mcp.json",
    "amazon-q": ".aws/amazonq/mcp.json",
    "copilot-cli": ".copilot/mcp-config.json",
    "goose": ".config/goose/config.yaml",
    "continue": ".continue/config.yaml",
    "crush": ".config/crush/crush.json",
}
MAC = {
    **LINUX,
    "claude-desktop": "Library/Application Support/Claude/claude_desktop_config.json",
    "vscode": "Library/Application Support/Code/User/mcp.json",
    "cline": "Library/Application Support/Code/User/globalStorage"
    "/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
    "roo": "Library/Application Support/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
}
WINDOWS = {
    **LINUX,
    "claude-desktop": "AppData/Roaming/Claude/claude_desktop_config.json",
    "vscode": "AppData/Roaming/Code/User/mcp.json",
    "cline": "AppData/Roaming/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
    "zed": "AppData/Roaming/Zed/settings.json",
    "roo": "AppData/Roaming/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
    "goose": "AppData/Roaming/Block/goose/config.yaml",
}


@pytest.mark.parametrize("platform, places", [("linux", LINUX), ("darwin", MAC), ("win32", WINDOWS)])
def test_each_editor_is_found_where_it_keeps_its_servers(
    platform: str, places: dict[str, str], project: Path, user: Path
) -> None:
    put(user, dict.fromkeys(places.values(), ""))

    found = discover_config_files(project, home=user, platform=platform)

    assert {file.kind: file.path for file in found} == {kind: user / place for kind, place in places.items()}


def test_the_users_own_home_and_directories_are_the_default(
    home: Path, project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = Path("~").expanduser()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("APPDATA", str(tmp_path / "appdata"))
    monkeypatch.chdir(project)
    put(own, {".claude.json": "{}"})
    put(tmp_path, {"xdg/zed/settings.json": "{}", "appdata/Zed/settings.json": "{}"})
    put(project, {"mcp.json": servers("a")})

    assert [file.kind for file in discover_config_files(platform="linux")] == ["project", "claude-code", "zed"]
    assert discover_config_files(platform="win32")[-1].path == tmp_path / "appdata/Zed/settings.json"
    assert list(default_config().servers) == ["a"]


@pytest.mark.requirement("R8")
def test_the_files_of_the_project_count_together_and_the_first_definition_wins(project: Path, user: Path) -> None:
    put(
        project,
        {
            "mcp.json": '{"mcpServers": {"a": {"command": "first"}}}',
            ".vscode/mcp.json": servers("a", "b", key="servers"),
            "pyproject.toml": '[tool.toolweave.servers.c]\ncommand = "${workspaceFolder}/c"\n',
        },
    )
    put(user, {".cursor/mcp.json": servers("d")})

    loaded = default_config(project, home=user, platform="linux")

    assert {name: config.command for name, config in loaded.servers.items()} == {
        "a": "first",
        "b": "run-b",
        "c": f"{project}/c",
    }
    assert loaded.paths == (project / "mcp.json", project / ".vscode/mcp.json", project / "pyproject.toml")


def test_without_servers_in_the_project_the_first_editor_that_has_some_counts(project: Path, user: Path) -> None:
    put(project, {"mcp.json": "{}", "pyproject.toml": "[tool.other]\n"})
    put(
        user,
        {
            ".claude.json": '{"history": [1, 2]}',
            ".cursor/mcp.json": '{"mcpServers": {',
            ".codeium/windsurf/mcp_config.json": servers("w"),
            ".gemini/settings.json": servers("g"),
        },
    )

    loaded = default_config(project, home=user, platform="linux")

    assert list(loaded.servers) == ["w"]
    assert loaded.paths == (user / ".codeium/windsurf/mcp_config.json",)
    assert "not valid JSON" in loaded.warnings[0]


@pytest.mark.parametrize(
    "text",
    ['{"mcpServers": {"bad": {"command": 5}}}', '{"mcpServers": {"off": {"command": "x", "disabled": true}}}'],
)
def test_a_project_with_only_wrong_or_switched_off_servers_still_counts(text: str, project: Path, user: Path) -> None:
    put(project, {"mcp.json": text})
    put(user, {".cursor/mcp.json": servers("d")})

    loaded = default_config(project, home=user, platform="linux")

    assert not loaded.servers
    assert loaded.paths == (project / "mcp.json",)


def test_nothing_anywhere_is_an_empty_config(project: Path, user: Path) -> None:
    loaded = default_config(project, home=user, platform="linux", env={}, inputs={})

    assert (loaded.servers, loaded.errors, loaded.paths) == ({}, {}, ())


def test_a_broken_file_of_the_project_is_an_error(project: Path, user: Path) -> None:
    put(project, {"mcp.json": '{"mcpServers": {'})

    with pytest.raises(ConfigError) as caught:
        default_config(project, home=user)

    assert caught.value.path == str(project / "mcp.json")


def test_a_pyproject_that_is_no_text_is_passed_over(project: Path, user: Path) -> None:
    (project / "pyproject.toml").write_bytes(b"\xff tool.toolweave")

    assert discover_config_files(project, home=user) == []


def test_the_folders_up_to_the_root_of_the_repository_count_the_nearest_first(project: Path, user: Path) -> None:
    deep = project / "one" / "two"
    deep.mkdir(parents=True)
    (project / ".git").mkdir()
    put(project, {"mcp.json": servers("a", "root"), "../mcp.json": servers("outside")})
    put(project / "one", {".gemini/settings.json": '{"mcpServers": {"a": {"command": "near", "cwd": "sub"}}}'})
    put(deep, {"opencode.json": '{"mcp": {"own": {"type": "local", "command": ["o"]}}}'})

    loaded = default_config(deep, home=user, platform="linux")

    assert {name: (config.command, config.cwd) for name, config in loaded.servers.items()} == {
        "own": ("o", None),
        "a": ("near", str(project / "one" / "sub")),
        "root": ("run-root", str(project)),
    }
    assert [(entry.name, entry.status) for entry in loaded.entries if entry.status != "ready"] == [("a", "shadowed")]
    assert {file.kind for file in loaded.files} == {"project"}


def test_without_a_repository_the_folders_above_do_not_count(project: Path, user: Path) -> None:
    put(project, {"mcp.json": servers("above")})
    (project / "below").mkdir()

    assert discover_config_files(project / "below", home=user) == []


def test_a_home_that_is_a_repository_is_no_project_of_what_is_in_it(user: Path) -> None:
    put(user, {"mcp.json": servers("mine"), ".cursor/mcp.json": servers("cursor"), "work/x": ""})
    (user / ".git").mkdir()

    assert [file.kind for file in discover_config_files(user / "work", home=user)] == ["cursor"]
    assert [file.kind for file in discover_config_files(user, home=user)] == ["project", "cursor"]


def test_files_of_the_project_that_nobody_allowed_are_known(project: Path, user: Path, tmp_path: Path) -> None:
    put(project, {"mcp.json": servers("a"), ".mcp.json": servers("a"), ".vscode/mcp.json": servers("b", key="servers")})
    put(user, {".cursor/mcp.json": servers("c")})
    trusted = TrustedFiles(tmp_path / "state" / "trusted.json")

    def names() -> list[str]:
        loaded = default_config(project, home=user)
        return [str(file.path.relative_to(project)) for file in trusted.untrusted(loaded)]

    assert names() == ["mcp.json", ".vscode/mcp.json"]  # nothing of .mcp.json would start
    trusted.trust(default_config(project, home=user).files[0])
    assert names() == [".vscode/mcp.json"]
    assert trusted.untrusted(default_config(project, home=user), ["a"]) == []
    put(project, {"mcp.json": servers("a", "more")})
    assert names() == ["mcp.json", ".vscode/mcp.json"]
    for name in ("mcp.json", ".vscode/mcp.json", ".mcp.json"):
        (project / name).unlink()
    assert trusted.untrusted(default_config(project, home=user)) == []
