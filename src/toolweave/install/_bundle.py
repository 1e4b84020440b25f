"""Bundles of servers (`.mcpb`, formerly `.dxt`): the manifest, the values it asks for, and its command.

Source: the manifest of 0.1 to 0.4 of the MCP Bundle specification.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec

from toolweave._files import read_file
from toolweave._json import decode_json
from toolweave._value import Value
from toolweave.errors import RegistryError
from toolweave.install._archive import BundleArchive
from toolweave.install._launch import LaunchWord, SecretWord, ServerLaunch, joined, literal
from toolweave.install._options import InstallOption
from toolweave.install._questions import LaunchAnswers, LaunchQuestion, merged
from toolweave.install._records import shown
from toolweave.install._secrets import installed_folder

MAX_BUNDLE_BYTES = 256 * 1024 * 1024
"""The largest bundle that is downloaded or read."""
_MAX_MANIFEST_BYTES = 1_000_000
_VERSIONS = re.compile(r"0\.[1-4](\.\d+)?")
_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
_USER = "user_config."
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FORMATS = {"number": "number", "boolean": "boolean", "file": "filepath", "directory": "filepath"}
_MAX_SETTINGS = 200


class BundleCommand(Value, frozen=True, kw_only=True):
    """A program and its arguments, all of them templates; members that an override leaves out stay."""

    command: str | None = None
    args: tuple[str, ...] | None = None
    env: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    platform_overrides: dict[str, BundleCommand] = msgspec.field(default_factory=dict[str, "BundleCommand"])


class BundledCommand(Value, frozen=True, kw_only=True):
    """The command of a bundle for this system, with all overrides applied."""

    program: str
    args: tuple[str, ...]
    env: Mapping[str, str]


class BundledServer(Value, frozen=True, kw_only=True):
    """The server in a bundle: its runtime, its first file, and the command that starts it."""

    type: Literal["node", "python", "binary", "uv"]
    entry_point: str
    mcp_config: BundleCommand | None = None


class BundleSetting(Value, frozen=True, kw_only=True):
    """A value that a bundle asks for."""

    type: Literal["string", "number", "boolean", "directory", "file"]
    title: str = ""
    description: str = ""
    required: bool = False
    default: str | int | float | bool | tuple[str, ...] | None = None
    multiple: bool = False
    sensitive: bool = False
    min: float | None = None
    max: float | None = None


class BundleCompatibility(Value, frozen=True, kw_only=True):
    """The systems that a bundle runs on; all of them if it names none."""

    platforms: tuple[str, ...] = ()


class BundleManifest(Value, frozen=True, kw_only=True):
    """The `manifest.json` of a bundle; members that start nothing are ignored."""

    name: str
    version: str
    server: BundledServer
    manifest_version: str | None = None
    dxt_version: str | None = None
    description: str = ""
    display_name: str = ""
    user_config: dict[str, BundleSetting] = msgspec.field(default_factory=dict[str, "BundleSetting"])
    compatibility: BundleCompatibility = BundleCompatibility()


class ServerBundle:
    """A bundle that was read and judged; nothing of it is on the disk before `unpack`.

    Args:
        data: The bytes of the file.

    Attributes:
        manifest: Its manifest, as it was read.
        sha256: The digest of the file, in hexadecimal.

    Raises:
        RegistryError: The data is not a bundle, its manifest is wrong, it is not for this system, or a member of it is
            refused.
    """

    def __init__(self, data: bytes) -> None:
        self._archive = BundleArchive(data)
        self.sha256: str = hashlib.sha256(data).hexdigest()
        self.manifest: BundleManifest = _manifest(self._archive.read("manifest.json", _MAX_MANIFEST_BYTES))
        platforms = self.manifest.compatibility.platforms
        if platforms and sys.platform not in platforms:
            names = ", ".join(map(shown, platforms))
            raise RegistryError(f"the bundle {shown(self.manifest.name)!r} is for {names}, not for {sys.platform}")
        # Checked before anything is written: otherwise a config would get an entry that never starts.
        entry = self.manifest.server.entry_point
        if str(PurePosixPath(entry)) not in self._archive:
            raise RegistryError(f"the bundle's entry point {shown(entry)!r} is not in it")

    @classmethod
    def open(cls, path: Path, *, max_bytes: int = MAX_BUNDLE_BYTES) -> ServerBundle:
        """Read a bundle from a file.

        Raises:
            RegistryError: The file cannot be read or is too large, or as the class.
        """
        try:
            path = path.expanduser()
            data = read_file(path, max_bytes=max_bytes)
        except OSError as exc:
            raise RegistryError(f"the bundle {str(path)!r} cannot be read: {exc.strerror or exc}") from None
        except (ValueError, RuntimeError) as exc:  # a null character, a ~ without a home
            raise RegistryError(f"the bundle {str(path)!r} cannot be read: {exc}") from None
        return cls(data)

    def folder(self, base: Path | None = None) -> Path:
        """Return where it is unpacked below a folder, by default the user's own: a name for each content."""
        if base is None:
            base = installed_folder() / "bundles"
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{self.manifest.name}-{self.manifest.version}").strip(".-")[:80]
        return base / f"{name or 'bundle'}-{self.sha256[:12]}"

    def unpack(self, base: Path | None = None) -> Path:
        """Unpack it and return its folder; an earlier one is replaced.

        Raises:
            RegistryError: A file in it is damaged, it is too large, or the disk cannot take it.
        """
        # The folder's name has the digest of the file, so that the command of an entry never finds another content.
        folder = self.folder(base)
        try:
            self._archive.unpack(folder)
            if self.manifest.server.type == "binary":
                # Archives that were made on Windows have no modes.
                folder.joinpath(*PurePosixPath(self.manifest.server.entry_point).parts).chmod(0o755)
        except OSError as exc:
            raise RegistryError(f"cannot unpack to {str(folder)!r}: {exc.strerror or exc}") from None
        return folder

    def option(self, base: Path | None = None) -> InstallOption:
        """Return the way to use it once it is unpacked below a folder.

        Raises:
            RegistryError: Its command refers to something that is not there.
        """
        folder = self.folder(base)
        questions = {name: self._question(name) for name in self._settings()}
        command = _on_this_platform(self.manifest.server)
        _check_references(command, questions)

        def build(answers: LaunchAnswers) -> ServerLaunch:
            return _launch(command, folder, answers)

        # Built once without answers: texts of the publisher that may not go into a config are refused before anybody is
        # asked for a value.
        optional = [question.replace(required=False) for question in questions.values()]
        build(LaunchAnswers(optional, {}))
        source = f"{self.manifest.name}@{self.manifest.version}"
        return InstallOption(kind="mcpb", source=source, questions=merged(questions.values()), build=build)

    def _settings(self) -> Mapping[str, BundleSetting]:
        settings = self.manifest.user_config
        if len(settings) > _MAX_SETTINGS:
            raise RegistryError(f"the bundle asks for {len(settings):,} values; at most {_MAX_SETTINGS} are allowed")
        return settings

    def _question(self, name: str) -> LaunchQuestion:
        setting = self.manifest.user_config[name]
        return LaunchQuestion(
            name=name,
            description=setting.description or setting.title,
            required=setting.required,
            secret=setting.sensitive,
            format=_FORMATS.get(setting.type, "string"),
            defaults=tuple(_plain(text, self.manifest.name) for text in _texts(setting.default)),
            repeated=setting.multiple,
            minimum=setting.min,
            maximum=setting.max,
        )


def _manifest(data: bytes) -> BundleManifest:
    try:
        manifest = decode_json(data, BundleManifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise RegistryError(f"the bundle's manifest.json is not valid: {shown(str(exc))}") from None
    version = manifest.manifest_version or manifest.dxt_version
    if version is None or not _VERSIONS.fullmatch(version):
        raise RegistryError(f"the bundle's manifest is of version {shown(str(version))!r}; 0.1 to 0.4 are known")
    return manifest


def _check_references(command: BundledCommand, questions: Mapping[str, LaunchQuestion]) -> None:
    for word in (command.program, *command.args, *command.env.values()):
        for name in _REFERENCE.findall(word):
            if name.startswith(_USER) and name.removeprefix(_USER) not in questions:
                raise RegistryError(f"the bundle's command refers to {shown(name)!r}, which it does not ask for")
    for name in command.env:
        if not _ENV_NAME.fullmatch(name):
            raise RegistryError(f"{shown(name)!r} is not a name of a variable")


def _on_this_platform(server: BundledServer) -> BundledCommand:
    """Return the command for this system.

    Raises:
        RegistryError: The bundle has no command for it.
    """
    found = server.mcp_config
    if found is None:
        if server.type != "uv":
            raise RegistryError("the bundle has no command that starts its server (mcp_config)")
        return BundledCommand(program="uv", args=("run", "--directory", "${__dirname}", server.entry_point), env={})
    # None and empty differ: a platform that names no arguments has those of all, one that names an empty list has none.
    override = found.platform_overrides.get(sys.platform, BundleCommand())
    program = found.command if override.command is None else override.command
    if not program:
        raise RegistryError("the bundle names no program that starts its server")
    args = found.args if override.args is None else override.args
    return BundledCommand(program=program, args=args or (), env={**found.env, **override.env})


def _launch(command: BundledCommand, folder: Path, answers: LaunchAnswers) -> ServerLaunch:
    program = _filled(command.program, folder, answers)
    args: list[LaunchWord] = []
    for text in command.args:
        args += _argument(text, folder, answers)
    env: dict[str, LaunchWord] = {}
    for name, text in command.env.items():
        word = _filled(text, folder, answers)
        # a variable without a value is not set, which programs distinguish from an empty one
        if any(word):
            env[name] = word
    return ServerLaunch(command=_program(program, folder), args=tuple(args), env=env)


def _program(word: LaunchWord, folder: Path) -> str:
    """Return the program of a command: a name, or an absolute path.

    Raises:
        RegistryError: It is empty, or has a secret in it.
    """
    program = "".join(part for part in word if isinstance(part, str))
    if not program or len(word) > 1:
        raise RegistryError("the bundle's program is empty, or a secret")
    path = PurePosixPath(program)
    is_name = len(path.parts) == 1  # of a program on the PATH
    if is_name or Path(program).is_absolute():
        return program
    return str(folder.joinpath(*path.parts))  # never relative to the working folder


def _argument(text: str, folder: Path, answers: LaunchAnswers) -> list[LaunchWord]:
    """Return the words of one argument: one that is a value alone has as many as there are answers."""
    alone = _REFERENCE.fullmatch(text)
    if alone is not None and alone[1].startswith(_USER):
        return [(part,) for part in answers[alone[1].removeprefix(_USER)]]
    return [_filled(text, folder, answers)]


def _filled(text: str, folder: Path, answers: LaunchAnswers) -> LaunchWord:
    # The publisher's texts between the references are checked, the answers of the user are not: a user may refer to
    # own variables and files.
    parts: list[str | SecretWord] = []
    start = 0
    for match in _REFERENCE.finditer(text):
        parts.append(literal(text[start : match.start()], "a text of the bundle"))
        parts += _resolved(match[1], folder, answers)
        start = match.end()
    return joined([*parts, literal(text[start:], "a text of the bundle")])


def _resolved(name: str, folder: Path, answers: LaunchAnswers) -> list[str | SecretWord]:
    if name.startswith(_USER):
        parts: list[str | SecretWord] = []
        for part in answers[name.removeprefix(_USER)]:
            parts += (",", part)
        return parts[1:]
    if name == "__dirname":
        return [str(folder)]
    return [_variable(name)]


def _variable(name: str) -> str:
    """Return the value of a variable that every manifest has.

    Raises:
        RegistryError: No manifest has it.
    """
    home = Path.home()
    values = {
        "HOME": str(home),
        "DESKTOP": str(home / "Desktop"),
        "DOCUMENTS": str(home / "Documents"),
        "DOWNLOADS": str(home / "Downloads"),
        "/": os.sep,
        "pathSeparator": os.sep,
    }
    if name not in values:
        raise RegistryError(f"the bundle refers to ${{{shown(name)}}}, which is not known")
    return values[name]


def _plain(text: str, bundle: str) -> str:
    """Return a default with its variables replaced."""
    filled = _REFERENCE.sub(lambda match: _variable(match[1]), text)
    return literal(filled, f"a default of the bundle {shown(bundle)!r}")


def _texts(default: str | float | bool | tuple[str, ...] | None) -> tuple[str, ...]:
    if default in (None, ""):
        return ()
    if isinstance(default, tuple):
        return default
    if isinstance(default, bool):
        return (str(default).lower(),)
    return (str(default),)
