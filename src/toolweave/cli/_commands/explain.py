"""`toolweave explain`: one tool, its server, the changes made to it, and its definition for models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, get_args

from toolweave._json_types import Json, JsonObject
from toolweave._text import counted
from toolweave.cli._command import Command, Option, Positional
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._options import JsonOption, Target, complete_tools
from toolweave.cli._runner import run
from toolweave.cli._screen import answer_json, show
from toolweave.errors import ErrorKind, SchemaError, ToolError

if TYPE_CHECKING:
    from toolweave.cli._servers import OpenServers
    from toolweave.config import LoadedConfig
    from toolweave.gateway._views import ViewedTool
    from toolweave.hub import ToolExplanation
    from toolweave.providers import SchemaProfile
    from toolweave.tools import ToolSpec

_EXAMPLES = """
toolweave explain github_search_issues
toolweave explain github:search_issues --provider gemini
toolweave explain delete_file --config gateway.json --json
toolweave explain get_current_time -- uvx mcp-server-time
"""


def explain(
    target: Target,
    name: Annotated[
        str, Positional("TOOL", help="server_tool, server:tool, or a tool's own name.", complete=complete_tools)
    ],
    provider: Annotated[
        tuple[str, ...],
        Option("--provider", "-p", metavar="API", help="Show what this model's API gets; may be repeated."),
    ] = (),
    as_json: JsonOption = False,
) -> ExitCode:
    """Explain why a tool is offered or not, and how models see it.

    Shows the server of the tool, the filter, rule or pin that excludes it, the changes of each rule of `shape`, its
    form in each virtual server of a gateway's config, and for each model API its name and what its schema loses.
    """

    async def body() -> ExitCode:
        from toolweave.cli._servers import open_fleet  # imports are late: --help imports this module
        from toolweave.cli._targets import select

        profiles = _profiles(provider)
        selection = await select(target)
        async with open_fleet(selection) as fleet:
            found = _found(fleet, name)
            seen = [_explained(fleet, one, profiles, selection) for one in found]
            if as_json:
                answer_json({"asked": name, "tools": seen})
            else:
                for one in seen:
                    _show(one, schemas=bool(provider))
                fleet.show_failures()
        return ExitCode.OK

    return run(body, verbose=target.verbose)


def _profiles(wanted: Sequence[str]) -> Sequence[SchemaProfile]:
    from toolweave.cli._slips import did_you_mean  # late, as above
    from toolweave.providers import SchemaProfile

    known: tuple[SchemaProfile, ...] = get_args(SchemaProfile)
    for name in wanted:
        if name not in known:
            raise CommandError(
                f"unknown profile {name!r}", hint=did_you_mean(name, known) or f"known: {', '.join(known)}"
            )
    if wanted:
        return [profile for profile in known if profile in wanted]
    return known


def _found(fleet: OpenServers, name: str) -> Sequence[ToolExplanation]:
    from toolweave.hub import explain_tool  # late, as above
    from toolweave.tools.names import unknown_tool
    from toolweave.tools.selection import own_names

    found = explain_tool(fleet.hub, name)
    if found:
        return found
    fleet.show_failures()
    if not fleet.answered:
        raise fleet.none_reached()
    for mark in ":/_":
        server = name.partition(mark)[0]
        if server in fleet.selection.disabled:
            reason = fleet.selection.why_disabled(server)
            raise CommandError(f"tool {name!r}: server {server!r} is not started: {reason}")
    known: set[str] = set()
    for client in fleet.hub.clients.values():
        known.update(client.excluded_tools, client.withheld)
        known.update(part.name for part in client.skipped_by_server if part.name)
    for spec in fleet.specs:
        known.update((spec.name, *own_names(spec)))
    raise ToolError(unknown_tool(name, sorted(known)), kind=ErrorKind.NOT_FOUND)


def _explained(
    fleet: OpenServers, one: ToolExplanation, profiles: Sequence[SchemaProfile], selection: LoadedConfig
) -> Json:
    spec = one.spec
    config = fleet.hub.clients[one.server].config
    rules = [{"rule": rule.rule, "changes": list(map(config.redact, rule.changes))} for rule in one.rules]
    explained: Json = {
        "server": one.server,
        "tool": one.tool,
        "name": one.name,
        "offered": one.name is not None,
        "reason": one.reason or None,
        "source": None if config.source is None else str(config.source),
        "rules": rules,
        "problems": _problems(fleet, one),
        "definition": None,
        "original": None,
        "views": {},
        "providers": {},
    }
    if spec is not None:
        explained["definition"] = _definition(spec)
        if spec.shape is not None:
            explained["original"] = _definition(spec.unshaped)
        explained["views"] = _views(fleet, spec, selection)
        explained["providers"] = {profile: _seen_by(fleet, spec, profile) for profile in profiles}
    return explained


def _problems(fleet: OpenServers, one: ToolExplanation) -> list[str]:
    """Return the problems of a tool: those that the connection found, and the parts that its server leaves out."""
    client = fleet.hub.clients[one.server]
    problems = [text for text in client.problems if repr(one.tool) in text]
    parts = [part for part in client.skipped_by_server if part.name == one.tool]
    problems += (str(part) for part in parts if part.part != "tool")
    return problems


def _definition(spec: ToolSpec) -> JsonObject:
    from toolweave.tools.mcp import tool_definition  # late, as above

    return tool_definition(spec, modern=True)


def _views(fleet: OpenServers, spec: ToolSpec, selection: LoadedConfig) -> Json:
    """Return a tool as the virtual servers of a gateway's config show it."""
    if not selection.paths:
        return {}
    from toolweave.gateway import load_gateway_config  # late, as above
    from toolweave.gateway._views import explain_view

    views = load_gateway_config(list(map(str, selection.paths))).virtual
    return {name: _view_json(explain_view(view, fleet.hub, spec), spec) for name, view in views.items()}


def _view_json(seen: ViewedTool, inner: ToolSpec) -> Json:
    from toolweave.hub._explain import rules_of  # late, as above

    known = rules_of(inner)
    added = [] if seen.spec is None else [rule for rule in rules_of(seen.spec) if rule not in known]
    rules = [{"rule": rule.rule, "changes": list(rule.changes)} for rule in added]
    return {"name": seen.name, "offered": seen.name is not None, "reason": seen.reason or None, "rules": rules}


def _seen_by(fleet: OpenServers, spec: ToolSpec, profile: SchemaProfile) -> Json:
    """Return a definition as a model's API gets it."""
    from toolweave.providers import lower  # late, as above
    from toolweave.tools import NameMap

    name = NameMap(fleet.specs).wire(spec.name)
    if not spec.for_models:
        return {"name": name, "refused": "only its page may call it (MCP Apps), no model sees it"}
    try:
        lowered = lower(spec.input_schema, profile)
    except SchemaError as error:
        return {"name": name, "refused": str(error)}
    description = "\n\n".join(filter(None, (spec.description, lowered.description)))
    return {
        "name": name,
        "description": description,
        "parameters": lowered.schema,
        "changes": list(lowered.changes),
        "losses": list(lowered.losses),
    }


def _show(one: JsonObject, *, schemas: bool) -> None:
    from toolweave.cli._render.views import heading, table  # late, as above

    name = one["name"] or f"{one['server']}:{one['tool']}"
    show(heading(name, "offered" if one["offered"] else "not offered"))
    rows = [("server", one["server"]), ("own name", one["tool"])]
    for label, key in (("config", "source"), ("why not", "reason")):
        if one[key]:
            rows.append((label, one[key]))
    rows += _rule_rows(one["rules"])
    rows += [("problem", text) for text in one["problems"]]
    for view_name, view in one["views"].items():
        rows.append((f"/mcp/{view_name}", view["name"] or f"not offered: {view['reason']}"))
        rows += _rule_rows(view["rules"])
    show(table(["", ""], rows))
    if one["providers"]:
        _show_providers(one["providers"], schemas=schemas)


def _rule_rows(rules: Iterable[JsonObject]) -> Iterator[tuple[str, str]]:
    for rule in rules:
        for change in rule["changes"]:
            yield rule["rule"], change


def _show_providers(providers: JsonObject, *, schemas: bool) -> None:
    from rich.text import Text  # late, as above

    from toolweave.cli._render.text import safe_json, safe_text
    from toolweave.cli._render.views import table

    show(table(["model's API", "name there", "its schema there"], [(api, *_row(it)) for api, it in providers.items()]))
    if not schemas:
        return
    for api, seen in providers.items():
        show(Text(f"\n{api}", style="bold"))
        for text in seen.get("changes", ()):
            show(Text(safe_text(f"{'lost' if text in seen['losses'] else 'changed'}: {text}")))
        if "parameters" in seen:
            show(Text(safe_text(seen["description"], multiline=True)), Text(safe_json(seen["parameters"])))


def _row(seen: JsonObject) -> tuple[str, str]:
    if "refused" in seen:
        return seen["name"], f"refused: {seen['refused']}"
    changes = len(seen["changes"])
    losses = len(seen["losses"])
    if not changes:
        return seen["name"], "as it is"
    count = counted(changes, "change")
    return seen["name"], f"{count}, {losses or 'no'} loss{'es' * (losses > 1)}"


COMMAND = Command(explain, examples=_EXAMPLES)
