"""`toolweave gateway init`: the config of a gateway for a team, written from options or from answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from toolweave.cli._command import Positional
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._install.clients import InstallClient
from toolweave.cli._screen import answer, answer_json, note
from toolweave.cli._serve.gateway_plan import ADD_HINT, InitOptions, TeamPlan, config_text, team_plan

_SUFFIXES = (".json", ".jsonc")


def init(
    options: InitOptions,
    file: Annotated[Path, Positional("FILE", help="The file to write.")] = Path("gateway.json"),
) -> ExitCode:
    """Write the config of a gateway: servers, keys or a sign-in, rules, a rate limit, an audit log.

    On a terminal it asks for missing options. API keys are generated and printed once: the file has their hashes.
    Programs that only the PATH of your shell has are written with their full path, so that an editor or a service
    finds them. The file has comments and is checked before it is written, whole or not at all.
    """
    _check_file(file, force=options.force)
    plan = team_plan(_asked_for(options), file.stem)
    text = config_text(plan)
    _check_text(text)
    from toolweave.cli._trust import write_trusted  # imports are late: --help imports this module

    write_trusted(file, text)
    if not options.as_json:
        _report(plan, file)
    installed = [_install(plan, file, editor, force=options.force) for editor in plan.editors]
    if options.as_json:
        answer_json(
            {"file": str(file), "name": plan.name, "keys": plan.keys, "editors": installed, "next": _next(file)}
        )
    else:
        for line in _next(file):
            note(f"next: {line}")
    return ExitCode.OK


def _check_file(file: Path, *, force: bool) -> None:
    if file.suffix not in _SUFFIXES:
        raise CommandError(f"{str(file)!r}: the config is JSON with comments; name a file that ends in .json")
    if file.exists() and not force:
        raise CommandError(f"{str(file)!r} exists", hint="--force replaces it; or name another file")


def _asked_for(options: InitOptions) -> InitOptions:
    """Return the options; a person on a terminal is asked if they name no server.

    Raises:
        CommandError: No server is named, and no one can be asked.
    """
    from toolweave.cli._stdin import can_ask  # late, as above

    if options.add:
        return options
    if not can_ask():
        raise CommandError("no server is named, and no one can be asked", hint=ADD_HINT)
    import anyio  # late, as above

    from toolweave.cli._serve.gateway_questions import ask_for_options

    return anyio.run(ask_for_options, options)


def _check_text(text: str) -> None:
    """Check the config as the gateway reads it, before it is written.

    Raises:
        ConfigError: An answer is wrong.
    """
    from toolweave.config._jsonc import parse_json  # late, as above
    from toolweave.gateway import load_gateway_config
    from toolweave.middleware import middleware_from_config

    config = load_gateway_config(parse_json(text))
    for error in config.servers.errors.values():
        raise error
    middleware_from_config(config.middleware)


def _report(plan: TeamPlan, file: Path) -> None:
    servers = ", ".join(plan.servers)
    note(f"wrote {file} with {servers}")
    if plan.keys:
        note("give each person their key over a safe channel; it is shown only now, and the file has its hash:")
        for person, key in plan.keys.items():
            answer(f"{person} {key}")
    elif plan.sign_in is None:
        note("it has no keys: serve it on this machine only, or add 'gateway.auth'")


def _install(plan: TeamPlan, file: Path, editor: InstallClient, *, force: bool) -> str:
    """Let an editor start the gateway, under the gateway's name; return the name of the editor."""
    from toolweave.cli._serve.install import install_command  # late, as above
    from toolweave.config import load_config

    words = ("gateway", "run", "--config", str(file.resolve()))
    servers = load_config(file).servers.values()
    install_command(editor, plan.name, words, servers=servers, only_show=False, force=force, as_json=False)
    return editor.value


def _next(file: Path) -> Sequence[str]:
    return (
        f"toolweave gateway check {file}",
        f"toolweave gateway --config {file} --http 8000",
        "toolweave gateway console",
    )
