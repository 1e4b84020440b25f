"""`toolweave prompts`: list and fill in the prompts of the servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    from toolweave.protocol.server_features import PromptResult

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
    values = text_values(arguments)

    async def body() -> ExitCode:
        from toolweave.cli._servers import open_fleet  # imports are late: --help imports this module
        from toolweave.cli._targets import select

        async with open_fleet(await select(target)) as fleet:
            lists = await fleet.ask(prompts_of)
            if get is not None:
                return await _get(fleet, lists, get, values, as_json)
            if as_json:
                rows = list(chain.from_iterable(lists.values()))
                answer_json({"servers": fleet.servers_json(), "prompts": rows})
            else:
                show_prompts(lists)
                fleet.show_failures()
            return fleet.exit_code(strict=strict)

    return run(body, verbose=target.verbose)


def text_values(tokens: Sequence[str]) -> dict[str, str]:
    """Return the values of words `key=value` by key.

    Raises:
        CommandError: A word has another form, or a key is given twice.
    """
    values: dict[str, str] = {}
    for token in tokens:
        key, equals, value = token.partition("=")
        if not equals or not key:
            raise CommandError(f"argument {token!r} is not understood", hint="write key=value")
        if key in values:
            raise CommandError(f"argument {key!r} was given twice")
        values[key] = value
    return values


async def prompts_of(connection: McpConnection) -> list[Json]:
    """Return the prompts of a server as JSON."""
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


def show_prompts(lists: dict[str, list[Json]]) -> None:
    """Show the prompts of servers, by the names of the servers."""
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
    server, prompt = find_prompt(fleet, lists, name, values)
    result = await fleet.hub.clients[server].get_prompt(prompt, values)
    if as_json:
        from toolweave.protocol.content import block_json  # late, as above

        messages = [{"role": one.role, "content": block_json(one.content)} for one in result.messages]
        answer_json({"server": server, "description": result.description, "messages": messages})
    else:
        show_prompt(result)
    return ExitCode.OK


def show_prompt(result: PromptResult) -> None:
    """Show the messages of a filled-in prompt."""
    answer("\n".join(f"{one.role}: {one.content.render()}" for one in result.messages))


def find_prompt(
    fleet: OpenServers, lists: dict[str, list[Json]], name: str, values: Mapping[str, str]
) -> tuple[str, str]:
    """Return the server that has a prompt, and the prompt's own name.

    Raises:
        CommandError: No server has it, several have it, or a required argument has no value.
    """
    rows = [(server, row) for server, rows in lists.items() for row in rows]
    found = [(server, row) for server, row in rows if name in (row["name"], f"{server}:{row['name']}")]
    if len(found) == 1:
        server, prompt = found[0]
        missing = [one["name"] for one in prompt["arguments"] if one["required"] and one["name"] not in values]
        if missing:
            raise CommandError(f"prompt {name!r} needs {', '.join(missing)}", code=ExitCode.TOOL_ERROR)
        return server, prompt["name"]
    if found:
        choices = ", ".join(f"{server}:{row['name']}" for server, row in found)
        raise CommandError(f"prompt {name!r} is offered by {len(found)} servers", hint=f"say which: {choices}")
    fleet.show_failures()
    if not fleet.answered:
        raise fleet.none_reached()
    there = ", ".join(sorted(row["name"] for _, row in rows)) or "none"
    raise CommandError(f"no prompt {name!r}; there are {there}")


COMMAND = Command(prompts, examples=_EXAMPLES)
