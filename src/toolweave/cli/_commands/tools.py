"""`toolweave tools`: the tools of the servers, and the tokens of their definitions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from toolweave._json_types import JsonObject
from toolweave._text import counted
from toolweave.cli._command import Command, Option
from toolweave.cli._exit_codes import ExitCode
from toolweave.cli._options import JsonOption, StrictOption, Target
from toolweave.cli._runner import run
from toolweave.cli._screen import answer_json, note, show

if TYPE_CHECKING:
    from toolweave.cli._servers import OpenServers
    from toolweave.tools import ToolSpec

_EXAMPLES = """
toolweave tools
toolweave tools --config mcp.json --json
toolweave tools --server github --schema
toolweave tools --url https://example.org/mcp --bearer-env TOKEN
toolweave tools -- uvx mcp-server-time
"""


def tools(
    target: Target,
    as_json: JsonOption = False,
    strict: StrictOption = False,
    schema: Annotated[bool, Option("--schema", help="Also show each tool's input schema.")] = False,
) -> ExitCode:
    """List the tools of every server.

    For each server, the output has the approximate number of tokens of its definitions in a model's prompt. Tools are
    named `server_tool`. Tools of a server that you give on the command line keep their own names.
    """

    async def body() -> ExitCode:
        from toolweave.cli._completion import remember_tools  # imports are late: --help imports this module
        from toolweave.cli._servers import open_fleet
        from toolweave.cli._targets import select

        async with open_fleet(await select(target)) as fleet:
            if as_json:
                answer_json({"servers": fleet.servers_json(), "tools": list(map(_tool_json, fleet.specs))})
            else:
                _show(fleet, schema, named_by_url=bool(target.url) and not target.server)
                _note_skipped(fleet)
                fleet.show_failures()
            if not target.ad_hoc:
                remember_tools({name: fleet.specs_of(name) for name in fleet.answered})
            return fleet.exit_code(strict=strict)

    return run(body, verbose=target.verbose)


def approximate_tokens(specs: Sequence[ToolSpec]) -> int:
    """Estimate the tokens of these definitions in a prompt: a quarter of their JSON's bytes."""
    from toolweave.tools.mcp import tool_definition  # late: --help imports this module

    made = (spec.raw if spec.shape is None else tool_definition(spec, modern=True) for spec in specs)
    return sum(len(json.dumps(dict(one), ensure_ascii=False, separators=(",", ":")).encode()) for one in made) // 4


def _tool_json(spec: ToolSpec) -> JsonObject:
    return {
        "name": spec.name,
        "server": spec.server,
        "tool": spec.original_name,
        "title": spec.title,
        "description": spec.description,
        "input_schema": spec.input_schema,
        "output_schema": spec.output_schema,
        "annotations": spec.annotations,
        "icons": spec.raw.get("icons"),
        "execution": spec.raw.get("execution"),
        "_meta": spec.raw.get("_meta"),
    }


def _show(fleet: OpenServers, schema: bool, *, named_by_url: bool) -> None:
    from rich.text import Text  # late, as above

    from toolweave.cli._render.text import safe_json, safe_text
    from toolweave.cli._render.views import heading, seconds_text, size_text, software_text, summary, table

    for name in fleet.answered:
        specs = fleet.specs_of(name)
        server = fleet.server_json(name)
        cost = size_text(approximate_tokens(specs)) if specs else ""
        count = counted(len(specs), "tool")
        # a host says little
        if named_by_url:
            software = software_text(server["server_info"] or {})
        else:
            software = ""
        took = seconds_text(server["seconds"])
        show(heading(name, software, server["protocol_version"] or "", count, cost, took))
        if schema:
            for spec in specs:
                show(Text(safe_text(spec.name), style="bold"), Text(safe_json(dict(spec.input_schema))))
        elif specs:
            show(table(["tool", "description"], [(spec.name, summary(spec.description)) for spec in specs]))
    if len(fleet.answered) > 1:
        cost = size_text(approximate_tokens(fleet.specs))
        show(heading("total", f"{len(fleet.answered)} servers", f"{len(fleet.specs)} tools", cost))


def _note_skipped(fleet: OpenServers) -> None:
    """Say how many tools the servers themselves leave out, such as operations of an API that cannot be used."""
    for connection in fleet.connections():
        skipped = sum(one.part == "tool" for one in connection.skipped_by_server)
        if skipped:
            what = "1 tool is" if skipped == 1 else f"{skipped} tools are"
            note(f"{connection.name}: {what} left out by the server; toolweave doctor shows which and why")


COMMAND = Command(tools, examples=_EXAMPLES)
