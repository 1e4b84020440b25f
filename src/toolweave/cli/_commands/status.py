"""`toolweave status`: one line for each server: its state, response time and software."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from toolweave._json_types import Json
from toolweave.cli._command import Command
from toolweave.cli._exit_codes import ExitCode
from toolweave.cli._options import JsonOption, StrictOption, Target
from toolweave.cli._runner import run
from toolweave.cli._screen import answer_json, show

if TYPE_CHECKING:
    from toolweave.cli._servers import OpenServers
    from toolweave.connect import McpConnection

_EXAMPLES = """
toolweave status
toolweave status --config mcp.json --strict
toolweave status --json --url https://example.org/mcp
"""


def status(target: Target, as_json: JsonOption = False, strict: StrictOption = False) -> ExitCode:
    """Show which servers answer, and how fast.

    For each server: its state, protocol revision, response time, restarts and tools, and until when you are signed in.
    """

    async def body() -> ExitCode:
        import anyio  # imports are late: --help imports this module

        from toolweave.cli._servers import open_fleet
        from toolweave.cli._targets import names_in, select

        async with open_fleet(await select(target)) as fleet:
            pings: dict[str, float | None] = {}
            async with anyio.create_task_group() as tasks:
                for connection in fleet.connections():
                    tasks.start_soon(_ping, connection, pings)
            rows = {name: await _row(fleet, name, pings) for name in names_in(fleet.selection)}
            if as_json:
                answer_json({"servers": rows})
            else:
                _show(rows)
                fleet.show_failures()
            return fleet.exit_code(strict=strict)

    return run(body, verbose=target.verbose)


async def _ping(connection: McpConnection, pings: dict[str, float | None]) -> None:
    from toolweave.errors import ServerError  # late, as above

    started = time.monotonic()
    try:
        await connection.ping()
    except ServerError:
        # it answered before: its state says more than a missed ping
        pings[connection.name] = None
    else:
        pings[connection.name] = round(time.monotonic() - started, 6)


async def _row(fleet: OpenServers, name: str, pings: dict[str, float | None]) -> Json:
    from toolweave.cli._sign_in import sign_in_json  # late, as above

    client = fleet.hub.clients.get(name)
    row = fleet.server_json(name)
    config = fleet.selection.servers.get(name)
    return {
        **row,
        "ping_seconds": pings.get(name),
        "restarts": client.restarts if client is not None else 0,
        "sign_in": await sign_in_json(config) if config is not None else None,
    }


def _show(rows: dict[str, Json]) -> None:
    from toolweave.cli._render.views import seconds_text, software_text, table  # late, as above
    from toolweave.cli._sign_in import lasting

    columns = ["server", "state", "protocol", "answers in", "started in", "tools", "restarts", "software"]
    signs_in = any(row["sign_in"] for row in rows.values())
    if signs_in:
        columns.append("sign-in")
    cells: list[list[str]] = []
    for name, row in rows.items():
        line = [
            name,
            row["state"],
            row["protocol_version"] or "",
            seconds_text(row["ping_seconds"]),
            "" if row["error"] else seconds_text(row["seconds"]),
            str(row["tools"]),
            str(row["restarts"]),
            software_text(row["server_info"] or {}),
        ]
        if signs_in:
            line.append(lasting(row["sign_in"]) if row["sign_in"] else "")
        cells.append(line)
    show(table(columns, cells, right=("answers in", "started in", "tools", "restarts")))


COMMAND = Command(status, examples=_EXAMPLES)
