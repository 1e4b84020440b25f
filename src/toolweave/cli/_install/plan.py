"""All that an installation writes, made before any of it is: the config, the secrets, the bundle's files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from toolweave._json_types import Json

if TYPE_CHECKING:
    from toolweave.cli._install.config_file import EditedConfig
    from toolweave.cli._install.found import FoundServer
    from toolweave.install import ClientFormat, LaunchAnswers, SecretFiles, ServerLaunch


@dataclass(slots=True, kw_only=True)
class InstallPlan:
    """An installation before and after it is carried out.

    Attributes:
        found: The server.
        name: The entry's name.
        launch: What would run or be reached.
        config: The file that the entry is written into.
        entry: The entry.
        inputs: What the client asks for itself.
        secrets: Where its secrets are kept.
        relay: The config that Toolweave starts the server from for a client that cannot; None for any other.
        notes: Remarks for the person who installs it.
        secret_files: The files of secrets that were written.
        backup: The copy of the config as it was.
    """

    found: FoundServer
    name: str
    launch: ServerLaunch
    config: EditedConfig
    entry: Json
    inputs: list[Json]
    secrets: SecretFiles
    relay: tuple[Path, Json] | None = None
    notes: list[str] = field(default_factory=list[str])
    secret_files: list[Path] = field(default_factory=list[Path])
    backup: Path | None = None

    def carry_out(self) -> None:
        """Write everything; the config last, so that it never refers to a missing file.

        Raises:
            CommandError: The config was changed meanwhile or cannot be written.
            RegistryError: The bundle cannot be unpacked.
            StoreError: A secret cannot be kept.
        """
        self.config.check_unchanged()
        # Before the write, which changes the content that is trusted.
        trusted = _is_trusted(self.config)
        if self.found.bundle is not None:
            self.found.bundle.unpack()
        # A client that asks for secrets keeps them itself.
        if not self.inputs:
            self.secret_files = self.secrets.keep(self.launch)
        if self.relay is not None:
            _write_relay(*self.relay)
        if self.config.changed:
            self.backup = self.config.write()
        if trusted:
            _trust(self.config.path)


def planned(
    found: FoundServer, form: ClientFormat, config: EditedConfig, name: str, answers: LaunchAnswers
) -> InstallPlan:
    """Return the plan for a server whose questions are answered.

    Raises:
        CommandError: The config's text cannot be edited safely.
        RegistryError: The answers make something of it that is refused.
    """
    from toolweave.cli._install.config_file import edited  # imports are late: --help imports the command
    from toolweave.install import SecretFiles
    from toolweave.install._programs import FoundProgram, with_full_path

    launch = found.option.build(answers)
    programs = list[FoundProgram]()
    if form.kind:  # a program with another PATH starts it
        launch, programs = with_full_path(launch)
    secrets = SecretFiles(name, found.name, str(config.path))
    inputs = form.inputs(launch, server=name)
    notes = [*launch.notes, *_warnings(launch), *(program.remark(form.name) for program in programs)]
    reason = form.reason_for_relay(launch)
    relay = None
    if reason:
        entry, relay = _relayed(launch, form, name, secrets)
        notes.append(f"{reason}, so it starts the server through Toolweave, from {relay[0]}")
    else:
        entry = form.entry(launch, secrets.paths(launch), server=name)
    if inputs:
        notes.append(f"{form.name} asks for {', '.join(one.name for one in launch.secrets)} when it starts the server")
    return InstallPlan(
        found=found,
        name=name,
        launch=launch,
        config=edited(config, name, entry, inputs),
        entry=entry,
        inputs=inputs,
        secrets=secrets,
        relay=relay,
        notes=notes,
    )


def _warnings(launch: ServerLaunch) -> list[str]:
    names = ", ".join(launch.secrets_in_arguments)
    warning = f"the server takes {names} on its command line, where other programs of this machine can read it"
    if names:
        return [warning]
    return []


def _relayed(
    launch: ServerLaunch, form: ClientFormat, name: str, secrets: SecretFiles
) -> tuple[Json, tuple[Path, Json]]:
    """Return the client's entry, which starts Toolweave, and the config that this one reads."""
    from toolweave.cli._serve.install import own_launch  # late, as above
    from toolweave.install import OWN_FORMAT

    own = OWN_FORMAT.entry(launch, secrets.paths(launch), server=name) | {"tool_prefix": ""}
    path = secrets.folder.with_suffix(".json")
    relay = own_launch(["serve", "--config", str(path), "--name", name])
    return form.entry(relay, {}, server=name), (path, {"mcpServers": {name: own}})


def _write_relay(path: Path, document: Json) -> None:
    import json  # late, as above

    from toolweave.cli._exit_codes import CommandError
    from toolweave.config.trust import write_privately

    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_privately(path, json.dumps(document, indent=2, ensure_ascii=False).encode())
    except OSError as error:
        raise CommandError(f"cannot write {str(path)!r}: {error.strerror or error}") from None


def _is_trusted(config: EditedConfig) -> bool:
    """Whether the file may start servers as it is: then it may with the entry, which was just agreed to."""
    from toolweave.config import TrustedFiles  # late, as above
    from toolweave.config._expand import Scope
    from toolweave.config.load import load_file
    from toolweave.errors import ConfigError

    if not config.text.strip():
        return True
    try:
        loaded = load_file(config.path, Scope(), optional=True)
        return not loaded.entries or all(map(TrustedFiles().trusts, loaded.files))
    except ConfigError:
        return False


def _trust(path: Path) -> None:
    from toolweave.cli._trust import trust_file  # late, as above
    from toolweave.config import load_config
    from toolweave.errors import ConfigError

    try:
        files = load_config(path).files
    except ConfigError:
        return
    for file in files:
        trust_file(file)
