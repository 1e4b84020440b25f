"""`toolweave resources`: list and read the resources of the servers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Annotated

from toolweave._json_types import Json
from toolweave._text import counted
from toolweave.cli._command import Command, Option
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._options import JsonOption, StrictOption, Target
from toolweave.cli._runner import run
from toolweave.cli._screen import answer, answer_bytes, answer_json, show, wide

if TYPE_CHECKING:
    from toolweave.cli._servers import OpenServers
    from toolweave.connect import McpConnection
    from toolweave.tools import EmbeddedResource

_EXAMPLES = """
toolweave resources
toolweave resources --server everything --json
toolweave resources --read demo://resource/static/document/features.md
toolweave resources --server files --read file:///logo.png > logo.png
"""


def resources(
    target: Target,
    read: Annotated[str | None, Option("--read", metavar="URI", help="Print this resource.")] = None,
    as_json: JsonOption = False,
    strict: StrictOption = False,
) -> ExitCode:
    """List the resources of every server, or read one.

    Binary content goes to standard output as it is, if that is not a terminal.
    """

    async def body() -> ExitCode:
        from toolweave.cli._servers import open_fleet  # imports are late: --help imports this module
        from toolweave.cli._targets import select

        async with open_fleet(await select(target)) as fleet:
            if read is not None:
                return await _read(fleet, read, as_json)
            lists = await fleet.ask(resources_of)
            if as_json:
                answer_json(_lists_json(fleet, lists))
            else:
                show_resources(lists)
                fleet.show_failures()
            return fleet.exit_code(strict=strict)

    return run(body, verbose=target.verbose)


async def resources_of(connection: McpConnection) -> list[Json]:
    """Return the resources and the templates of a server as JSON."""
    found = [
        {
            "server": connection.name,
            "uri": one.uri,
            "name": one.name,
            "title": one.title,
            "description": one.description,
            "mime_type": one.mime_type,
            "size": one.size,
        }
        for one in await connection.list_resources()
    ]
    return found + [
        {
            "server": connection.name,
            "uri_template": one.uri_template,
            "name": one.name,
            "title": one.title,
            "description": one.description,
            "mime_type": one.mime_type,
        }
        for one in await connection.list_resource_templates()
    ]


def _lists_json(fleet: OpenServers, lists: dict[str, list[Json]]) -> Json:
    rows = list(chain.from_iterable(lists.values()))
    return {
        "servers": fleet.servers_json(),
        "resources": [row for row in rows if "uri" in row],
        "templates": [row for row in rows if "uri_template" in row],
    }


def show_resources(lists: dict[str, list[Json]]) -> None:
    """Show the resources of servers, by the names of the servers."""
    from toolweave.cli._render.views import heading, summary, table  # late, as above

    for name, rows in lists.items():
        templates = sum("uri_template" in row for row in rows)
        show(heading(name, counted(len(rows) - templates, "resource"), counted(templates, "template")))
        cells = [
            (
                row.get("uri") or row.get("uri_template") or "",
                row["title"] or row["name"],
                row["mime_type"] or "",
                summary(row["description"]),
            )
            for row in rows
        ]
        if cells:
            show(table(["uri", "name", "type", "description"], cells))


async def _read(fleet: OpenServers, uri: str, as_json: bool) -> ExitCode:
    connection = await owner_of(fleet, uri)
    contents = await connection.read_resource(uri)
    if as_json:
        from toolweave.protocol.content import resource_json  # late, as above

        answer_json({"server": connection.name, "contents": list(map(resource_json, contents))})
    else:
        show_contents(contents)
    return ExitCode.OK


async def owner_of(fleet: OpenServers, uri: str) -> McpConnection:
    """Return the server that has a resource: the only one, or the only one that lists it.

    Raises:
        CommandError: No server could be reached, none lists it, or several do.
    """
    answered = fleet.connections()
    if not answered:
        fleet.show_failures()
        raise fleet.none_reached()
    if len(answered) == 1:
        return answered[0]
    lists = await fleet.ask(resources_of)
    having = [name for name, rows in lists.items() if any(row.get("uri") == uri for row in rows)]
    if len(having) == 1:
        return fleet.hub.clients[having[0]]
    which = ", ".join(having or fleet.answered)
    if having:
        said = f"{len(having)} servers list it"
    else:
        said = "no server lists it"
    raise CommandError(f"resource {uri!r}: {said}", hint=f"say which server to ask with --server: {which}")


def show_contents(contents: Sequence[EmbeddedResource]) -> None:
    """Write the contents of a resource to standard output; bytes go to a pipe unchanged.

    Raises:
        CommandError: The base64 of one is broken.
    """
    for block in contents:
        if block.blob is None or wide(sys.stdout):
            answer(block.render())
            continue
        try:
            answer_bytes(block.decode())
        except ValueError:
            raise CommandError(f"resource {block.uri!r}: its base64 is broken", code=ExitCode.TOOL_ERROR) from None


COMMAND = Command(resources, examples=_EXAMPLES)
