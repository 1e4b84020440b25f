"""`toolweave prompts`: list and fill in the prompts of the servers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Annotated

from toolweave._json_types import Json
from toolweave._text import counted
from toolweave.cli._command import Command, Option, Positional
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._options import JsonOption, StrictOption, Target
from toolweave.cli._runner import run
from toolweave.cli._screen import answer, answer_json, show

if TYPE_CHECKING:
    from toolweave.cli._servers import OpenServers
    from toolweave.connect import McpConnection

_EXAMPLES = """
toolweave prompts
toolweave prompts --server notes --json
toolweave prompts --get review topic=plants
"""


def prompts(
    target: Target,
    arguments: Annotated[tuple[str, ...], Positional("ARGUMENTS", help="key=value for --get; values are text.")] = (),
    get: Annotated[str | None, Option("--get", metavar="NAME", help="Fill this prompt in and print it.")] = None,
    as_json: JsonOption = False,
    strict: StrictOption = False,
) -> ExitCode:
    """List the prompts of every server, or fill one in."""
    if arguments and get is None:
        raise CommandError("arguments go with --get NAME")
    values = _values(arguments)

    async def body() -> ExitCode:
        from toolweave.cli._servers import open_fleet  # imports are late: --help imports this module
        from toolweave.cli._targets import select

        async with open_fleet(await select(target)) as fleet:
            lists = await fleet.ask(_list)
            if get is not None:
                return await _get(fleet, lists, get, values, as_json)
            if as_json:
                rows = list(chain.from_iterable(lists.values()))
                answer_json({"servers": fleet.servers_json(), "prompts": rows})
            else:
                _show(lists)
                fleet.show_failures()
            return fleet.exit_code(strict=strict)

    return run(body, verbose=target.verbose)


def _values(tokens: Sequence[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for token in tokens:
        key, equals, value = token.partition("=")
        if not equals or not key:
            raise CommandError(f"argument {token!r} is not understood", hint="write key=value")
        if key in values:
            raise CommandError(f"argument {key!r} was given twice")
        values[key] = value
    return values


async def _list(connection: McpConnection) -> list[Json]:
    return [
        {
            "server": connection.name,
            "name": one.name,
            "title": one.title,
            "description": one.description,
            "arguments": [
                {"name": argument.name, "description": argument.description, "required": argument.required}
                for argument in one.arguments
            ],
        }
        for one in await connection.list_prompts()
    ]


def _show(lists: dict[str, list[Json]]) -> None:
    from toolweave.cli._render.views import heading, summary, table  # late, as above

    for name, rows in lists.items():
        show(heading(name, counted(len(rows), "prompt")))
        cells = [(row["name"], _signature(row["arguments"]), summary(row["description"])) for row in rows]
        if cells:
            show(table(["prompt", "arguments", "description"], cells))


def _signature(arguments: list[Json]) -> str:
    return " ".join(one["name"] if one["required"] else f"[{one['name']}]" for one in arguments)


async def _get(
    fleet: OpenServers, lists: dict[str, list[Json]], name: str, values: dict[str, str], as_json: bool
) -> ExitCode:
    server, prompt = _find(fleet, lists, name)
    missing = [one["name"] for one in prompt["arguments"] if one["required"] and one["name"] not in values]
    if missing:
        raise CommandError(f"prompt {name!r} needs {', '.join(missing)}", code=ExitCode.TOOL_ERROR)
    result = await fleet.hub.clients[server].get_prompt(prompt["name"], values)
    if as_json:
        from toolweave.protocol.content import block_json  # late, as above

        messages = [{"role": one.role, "content": block_json(one.content)} for one in result.messages]
        answer_json({"server": server, "description": result.description, "messages": messages})
    else:
        answer("\n".join(f"{one.role}: {one.content.render()}" for one in result.messages))
    return ExitCode.OK


def _find(fleet: OpenServers, lists: dict[str, list[Json]], name: str) -> tuple[str, Json]:
    rows = [(server, row) for server, rows in lists.items() for row in rows]
    found = [(server, row) for server, row in rows if name in (row["name"], f"{server}:{row['name']}")]
    if len(found) == 1:
        return found[0]
    if found:
        choices = ", ".join(f"{server}:{row['name']}" for server, row in found)
        raise CommandError(f"prompt {name!r} is offered by {len(found)} servers", hint=f"say which: {choices}")
    fleet.show_failures()
    if not fleet.answered:
        raise CommandError("no server could be reached", code=fleet.exit_code())
    there = ", ".join(sorted(row["name"] for _, row in rows)) or "none"
    raise CommandError(f"no prompt {name!r}; there are {there}")


COMMAND = Command(prompts, examples=_EXAMPLES)
