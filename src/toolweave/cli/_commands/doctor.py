"""`toolweave doctor`: for each server the steps of connecting, their durations, and a hint."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from toolweave._json_types import Json, as_text
from toolweave.cli._command import Command, Option
from toolweave.cli._conformance.report import conformance
from toolweave.cli._exit_codes import ExitCode, exit_code_of
from toolweave.cli._options import JsonOption, StrictOption, Target
from toolweave.cli._runner import run
from toolweave.cli._screen import answer, answer_json, show

if TYPE_CHECKING:
    from toolweave.config import LoadedConfig, ServerConfig
    from toolweave.connect import McpConnection

_EXAMPLES = """
toolweave doctor
toolweave doctor --config mcp.json --server github
toolweave doctor --json -- uvx mcp-server-time
toolweave doctor --conformance --url http://127.0.0.1:8000/mcp
toolweave doctor --through --config mcp.json --server github
"""

_MAX_DETAIL = 600
_MARKS = {"ok": "✓", "failed": "✗", "skipped": "–", "running": "…"}


def doctor(
    target: Target,
    as_json: JsonOption = False,
    strict: StrictOption = False,
    boxes: Annotated[
        bool,
        Option(
            "--conformance", help="Check how each server keeps to the protocol, with 17 checks.", excludes=["--through"]
        ),
    ] = False,
    bold: Annotated[
        bool,
        Option("--call", help="Also call tools that are not marked read-only.", needs=["--conformance"]),
    ] = False,
    through: Annotated[
        bool, Option("--through", help="Compare each server with clients' view of it through a gateway.")
    ] = False,
    gateway: Annotated[
        str | None,
        Option(
            "--gateway", metavar="URL", help="Use this running gateway, which has the servers.", needs=["--through"]
        ),
    ] = None,
) -> ExitCode:
    """Diagnose why a server does not answer, or misbehaves.

    For each server: where it is configured, each step that was tried and how long it took, until when you are signed
    in, the tools that were left out or withheld, or look suspicious, and why, the last lines of its standard error, and
    what to do next.

    With --conformance: 17 checks, each passed, warned of, failed or not applicable, with the reason. Only tools that
    are marked read-only are called, with made-up arguments, and others with arguments that their schema refuses. Exit
    code 1 when a check failed.

    With --through: for clients of each revision, what they lose of a server behind a gateway: capabilities, definitions
    that are missing or differ, and what cannot be translated between the revisions. Exit code 1 when something is lost.
    """

    async def body() -> ExitCode:
        if boxes:
            return await conformance(target, as_json=as_json, strict=strict, bold=bold)
        if through:
            from toolweave.cli._gateway_comparison import through_gateway  # late, as below

            return await through_gateway(target, gateway=gateway, as_json=as_json, strict=strict)
        from toolweave.cli._findings import examine_all, exit_code_of_findings  # imports are late: --help imports this
        from toolweave.cli._targets import names_in, select

        selection = await select(target)
        findings = {name: _of_entry(selection, name) for name in names_in(selection)}
        await examine_all(selection, findings, _examine)
        if as_json:
            answer_json(
                {"servers": findings, "disabled": list(selection.disabled), "warnings": list(selection.warnings)}
            )
        else:
            _show(findings, selection)
        return exit_code_of_findings(findings, strict=strict, failed=lambda finding: False)

    return run(body, verbose=target.verbose)


def _of_entry(selection: LoadedConfig, name: str) -> Json:
    config = selection.servers.get(name)
    error = selection.errors.get(name)
    source = config.source if config is not None else None
    if source is not None:
        place = str(source)
    elif error is not None:
        place = error.path
    else:
        place = None
    return {
        "ok": False,
        "config": place or "command line",
        "endpoint": config.endpoint if config is not None else None,
        "protocol_version": None,
        "steps": [],
        "tools": 0,
        "problems": [],
        "skipped_by_server": [],
        "stderr": "",
        "error": str(error) if error is not None else None,
        "exit_code": int(ExitCode.USAGE),
        "advice": None,
        "sign_in": None,
        "card": None,
    }


async def _examine(config: ServerConfig) -> Json:
    from toolweave.cli._sign_in import sign_in_json
    from toolweave.connect import McpConnection
    from toolweave.connect._hints import hint_of
    from toolweave.errors import ToolweaveError

    # One attempt shows what is wrong. A supervised connection would go on trying.
    connection = McpConnection(config.replace(restart="never"))
    error: Exception | None = None
    try:
        async with connection:
            error = connection.error
    except ToolweaveError as exc:
        error = connection.error or exc
    return {
        "ok": error is None,
        "protocol_version": connection.protocol_version,
        "steps": [
            {"name": step.name, "outcome": step.outcome, "seconds": round(step.seconds, 4), "detail": step.detail}
            for step in connection.report.steps
        ],
        "tools": len(connection.snapshot()),
        "problems": [*_remarks_on_path(config), *connection.problems],
        "skipped_by_server": [
            {"tool": one.name, "part": one.part, "reason": one.reason} for one in connection.skipped_by_server
        ],
        "stderr": connection.stderr_tail,
        "error": str(error) if error is not None else None,
        "exit_code": int(exit_code_of(error)) if error is not None else 0,
        "advice": None if error is None else hint_of(config, error),
        "sign_in": await sign_in_json(config),
        "card": await _card_of(config, connection),
    }


async def _card_of(config: ServerConfig, connection: McpConnection) -> Json | None:
    """Return the server card at the address of a server, and how the two differ; None without a card."""
    if not config.url:
        return None
    from toolweave.connect._server_cards import card_at  # late, as above

    card = await card_at(config.url)
    if card is None:
        return None
    problems = list(card.problems)
    version = as_text(connection.server_info.get("version"))
    if version is not None and version != card.version:
        problems.append(f"the card names version {card.version!r}, the server {version!r}")
    return {"name": card.name, "version": card.version, "problems": problems}


def _show(findings: dict[str, Json], selection: LoadedConfig) -> None:
    from toolweave.cli._render.text import safe_text  # late, as above
    from toolweave.cli._render.views import heading
    from toolweave.cli._screen import wrapped

    for name, finding in findings.items():
        mark = _MARKS["ok" if finding["ok"] else "failed"]
        show(heading(f"{mark} {name}", finding["protocol_version"] or "", finding["endpoint"] or ""))
        answer("\n".join(wrapped(safe_text(line, multiline=True), indent=14) for line in _lines(finding)))
    if selection.disabled:
        answer("\ndoes not start:")
        for name in selection.disabled:
            answer(wrapped(f"  {safe_text(name)}: {safe_text(selection.why_disabled(name))}"))
    for warning in selection.warnings:
        answer(wrapped(safe_text(f"config: {warning}", multiline=True)))


def _lines(finding: Json) -> list[str]:
    from toolweave.cli._render.text import clip  # late, as above
    from toolweave.cli._sign_in import lasting
    from toolweave.errors import LAST_WORDS

    lines = [f"  config    {finding['config']}"]
    for step in finding["steps"]:
        detail = clip(step["detail"].split("\n")[0], _MAX_DETAIL)
        lines.append(
            f"  {_MARKS[step['outcome']]} {step['seconds'] * 1000:7.0f} ms  {step['name']}: {detail}".rstrip(": ")
        )
    if finding["sign_in"]:
        lines.append(f"  sign-in   {lasting(finding['sign_in'])}")
    lines += _card_lines(finding["card"])
    if finding["problems"]:
        lines += ["  problems:", *(f"    {problem}" for problem in finding["problems"])]
    if finding["skipped_by_server"]:
        lines += ["  left out by the server:", *map(_skipped_line, finding["skipped_by_server"])]
    if finding["error"]:
        first, *rest = finding["error"].split("\n")
        failed = [step["detail"].split("\n")[0] for step in finding["steps"] if step["outcome"] == "failed"]
        if finding["stderr"]:  # shown below, once
            first = first.partition(LAST_WORDS)[0]
            rest = []
        if first not in failed:  # else the step says it
            lines.append(f"  error     {first}")
        lines += [f"            {line}" for line in rest]
    if finding["stderr"]:
        lines += ["  standard error:", *(f"    {line}" for line in finding["stderr"].split("\n"))]
    if finding["advice"]:
        lines.append(f"  next      {finding['advice']}")
    return lines


def _card_lines(card: Json | None) -> list[str]:
    if card is None:
        return []
    return [f"  card      {card['name']} {card['version']}", *(f"            {text}" for text in card["problems"])]


def _skipped_line(one: Json) -> str:
    part = "" if one["part"] == "tool" else f" ({one['part']})"
    return f"    {one['tool'] or '-'}{part}: {one['reason']}"


def _remarks_on_path(config: ServerConfig) -> list[str]:
    """Return remarks about programs that only the PATH of this shell has, for a server of an editor's file.

    If the server is a gateway of ours, the servers that it starts are included.
    """
    from toolweave.config import editor_config_files  # late, as above
    from toolweave.install._programs import programs_of

    if config.source is None:
        return []
    place = Path(config.source.path).resolve()
    if all(file.path.resolve() != place for file in editor_config_files()):
        return []
    servers = [config]
    if "PATH" not in config.env:
        servers += _served_by(config.args)
    remarks = [program.remark("the program of this file") for program in programs_of(servers)]
    return [f"{remark}; write the full path, or PATH into its variables" for remark in remarks if remark]


def _served_by(args: Sequence[str]) -> list[ServerConfig]:
    """Return the servers of the configs that a command of ours serves; none for another command."""
    from toolweave.config import load_config  # late, as above
    from toolweave.errors import ConfigError

    if not ("toolweave" in args and {"gateway", "serve"} & set(args)):
        return []
    found: list[ServerConfig] = []
    for option, value in pairwise(args):
        if option != "--config":
            continue
        try:
            found += load_config(value).servers.values()
        except ConfigError:
            continue  # the server says so itself when it is started
    return found


COMMAND = Command(doctor, examples=_EXAMPLES)
