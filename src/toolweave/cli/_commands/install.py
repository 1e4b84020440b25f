"""`toolweave install`: a published server becomes an entry of a config, and nothing of it is started."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from toolweave._json_types import Json
from toolweave.cli._command import Command, Option, Positional
from toolweave.cli._commands.search import RegistryOption
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._install.clients import InstallClient
from toolweave.cli._options import JsonOption
from toolweave.cli._runner import run
from toolweave.cli._screen import answer, answer_json, note, show

if TYPE_CHECKING:
    from toolweave.cli._install.found import FoundServer
    from toolweave.cli._install.plan import InstallPlan

_EXAMPLES = """
toolweave install io.github.ada/notes
toolweave install io.github.ada/notes@1.2.0 --client cursor
toolweave install io.github.ada/notes --via npm --name work-notes --set folder=~/notes
toolweave install com.example/crm --client vscode --set tenant=acme --set-env key=CRM_KEY
toolweave install ./notes.mcpb --dry-run
"""


class InstallKind(StrEnum):
    """The ways to use a server."""

    HTTP = "http"
    SSE = "sse"
    NPM = "npm"
    PYPI = "pypi"
    OCI = "oci"
    NUGET = "nuget"
    MCPB = "mcpb"


def _complete_published(incomplete: str) -> list[str]:
    """Return the servers of the last searches whose names start with `incomplete`, for shell completion."""
    from toolweave.cli._completion import published_names  # only when a shell asks

    return published_names(incomplete)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallOptions:
    """The options of `toolweave install`; each attribute is an option."""

    target: Annotated[
        str,
        Positional(
            "NAME",
            help="A server of the registry, NAME or NAME@VERSION, or the path of a bundle (.mcpb).",
            complete=_complete_published,
        ),
    ]
    client: Annotated[
        InstallClient | None, Option("--client", help="Whose config is written; by default Toolweave's own.")
    ] = None
    config: Annotated[
        Path | None,
        Option("--config", "-c", metavar="FILE", help="The file; by default mcp.json here, or the client's own."),
    ] = None
    name: Annotated[
        str | None, Option("--name", metavar="NAME", help="The entry's name; by default a word of the server's.")
    ] = None
    via: Annotated[
        InstallKind | None,
        Option("--via", help="How it is had; by default the first way that can be used, remotes before packages."),
    ] = None
    values: Annotated[
        tuple[str, ...],
        Option("--set", metavar="NAME=VALUE", help="A value that the server asks for; may be repeated."),
    ] = ()
    variables: Annotated[
        tuple[str, ...],
        Option("--set-env", metavar="NAME=VAR", help="The same, out of an environment variable: for secrets."),
    ] = ()
    registry: RegistryOption = None
    force: Annotated[bool, Option("--force", help="Replace an existing entry.")] = False
    yes: Annotated[
        bool, Option("--yes", "-y", help="Write it without asking, with the defaults of optional values.")
    ] = False
    dry_run: Annotated[bool, Option("--dry-run", help="Show what would be written, and write nothing.")] = False
    as_json: JsonOption = False


def install(options: InstallOptions) -> ExitCode:
    """Write a published server into a config; nothing is started.

    Its version is pinned. Before anything is written, the command shows the program or address and the change of the
    file. It asks for the values that the server needs, or takes them from --set. Secrets are stored in a file that only
    you can read, or the client asks for them, and the config only refers to them. If a client has no such reference, it
    starts the server through Toolweave. The SHA-256 of a bundle is checked before it is read. Exits with 1 if the entry
    of the registry or a bundle is refused, with 2 if a value is missing or the entry exists, and with 3 if the registry
    cannot be reached.
    """

    async def body() -> ExitCode:
        from toolweave.cli._install.asking import answered, given_values  # imports are late: --help imports this module
        from toolweave.cli._install.config_file import format_named, open_config
        from toolweave.cli._install.found import entry_name, find_server
        from toolweave.cli._install.plan import planned

        found = await find_server(options.target, registry=options.registry, via=options.via)
        if options.name is None:
            name = entry_name(found.name)
        else:
            name = options.name
        form = format_named(options.client)
        config = open_config(form, options.config, name)
        if config.exists and not options.force:
            hint = "--force replaces it; --name gives this one another name"
            raise CommandError(f"{config.path} has a server {name!r} already", hint=hint)
        _introduce(found)
        questions = found.option.questions
        given = given_values(questions, options.values, options.variables)
        answers = await answered(questions, given, deferred=form.asks, ask_all=not options.yes)
        plan = planned(found, form, config, name, answers)
        return await _carried_out(plan, options)

    return run(body)


def _introduce(found: FoundServer) -> None:
    from toolweave.cli._render.text import safe_text  # late, as above

    what = f"{found.name} {found.version}, by {found.option.kind}"
    also = [f"also: {one} (--via)" for one in found.others]
    note(safe_text(f"{what}: {found.description}" if found.description else what))
    for remark in (*found.notes, *also):
        note(f"  {safe_text(remark)}")


async def _carried_out(plan: InstallPlan, options: InstallOptions) -> ExitCode:
    if not options.as_json:
        _show(plan)
    if options.dry_run:
        note("nothing was written (--dry-run)")
    else:
        if not options.yes:
            await _confirm()
        plan.carry_out()
    if options.as_json:
        answer_json(_json(plan, options))
    elif not options.dry_run:
        _conclude(plan, options)
    return ExitCode.OK


async def _confirm() -> None:
    """Ask whether to write it.

    Raises:
        CommandError: No, or no one can be asked.
    """
    from toolweave.cli._questions import ask_line  # late, as above
    from toolweave.cli._stdin import can_ask

    if not can_ask():
        raise CommandError("no one can be asked whether to write this", hint="--yes writes it, --dry-run shows it")
    typed = (await ask_line("write this? [y]es, [n]o: ") or "").strip().lower()
    if typed not in ("y", "yes"):
        raise CommandError("nothing was written", code=ExitCode.TOOL_ERROR)


def _show(plan: InstallPlan) -> None:
    from toolweave.cli._render.views import difference  # late, as above

    answer("would run:" if plan.launch.transport == "stdio" else f"would be reached over {plan.launch.transport}:")
    for line in plan.launch.lines():
        answer(f"  {line}".replace("\n", "\n  "))
    for remark in plan.notes:
        answer(f"note: {remark}")
    answer("")
    show(*map(difference, plan.config.difference()))


def _conclude(plan: InstallPlan, options: InstallOptions) -> None:
    if plan.backup:
        kept = f"; as it was before: {plan.backup.name}"
    else:
        kept = ""
    note(f"{plan.name!r} is in {plan.config.path}{kept}" if plan.config.changed else "it was there already")
    for path in plan.secret_files:
        note(f"  a secret is in {path}")
    if options.client is None:
        usual = plan.config.path == Path("mcp.json").resolve()
        note("next: toolweave tools" + ("" if usual else f" --config {plan.config.path}"))
    else:
        note(f"restart {options.client} to see it")


def _json(plan: InstallPlan, options: InstallOptions) -> Json:
    return {
        "name": plan.name,
        "server": plan.found.name,
        "version": plan.found.version,
        "kind": plan.found.option.kind,
        "runs": list(plan.launch.lines()),
        "path": str(plan.config.path),
        "entry": plan.entry,
        "inputs": plan.inputs,
        "secrets": list(map(str, plan.secret_files)),
        "changed": plan.config.changed and not options.dry_run,
        "backup": str(plan.backup) if plan.backup else None,
        "dry_run": options.dry_run,
        "notes": [*plan.found.notes, *plan.notes],
        "others": list(plan.found.others),
    }


COMMAND = Command(install, examples=_EXAMPLES)
