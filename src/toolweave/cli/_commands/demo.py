"""`toolweave demo`: a tour on three servers that ship with the package; needs no key and no network."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

from toolweave._json_types import Json
from toolweave.cli._command import Command, Option
from toolweave.cli._exit_codes import ExitCode
from toolweave.cli._runner import run
from toolweave.cli._screen import answer, answer_json, show, wrapped

if TYPE_CHECKING:
    from toolweave.cli._servers import OpenServers
    from toolweave.tools import ToolResult

_EXAMPLES = """
toolweave demo
toolweave demo --config > mcp.json
"""

_MISSING = "missing"
"""The server that cannot start."""
_SLOW: tuple[tuple[str, Json], ...] = (
    ("notes_index_notes", {}),
    ("numbers_primes", {"limit": 5000}),
    ("words_spell", {"word": "toolweave"}),
)
_QUICK: tuple[tuple[str, Json], ...] = (
    ("notes_search_notes", {"query": "plants"}),
    ("numbers_add", {"values": [1, 2.5, 4]}),
    ("words_count", {"text": "three small words"}),
)
_WRONG: tuple[tuple[str, Json, str], ...] = (
    ("numbers_divide", {"value": 1, "by": 0}, "the tool failed"),
    ("numbers_primes", {"limit": "many"}, "the call was not sent"),
    ("notes_forget", {}, "no such tool"),
)
_PIPED_WIDTH = 100
"""Width of the views without a terminal: they are read, not searched."""
_NEXT = """
What to type next:
  toolweave demo --config > mcp.json       write a config with two of these servers
  toolweave tools                          list their tools
  toolweave call notes_search_notes query=plants
  toolweave call numbers_primes limit=9999
  toolweave doctor                         find out why a server fails
  toolweave tools -- uvx mcp-server-time   list the tools of any server, without a config
  toolweave serve --config mcp.json        serve both as one (--http 8000, --install claude)
"""


def demo(
    config: Annotated[
        bool, Option("--config", help="Print a config with two of the demo servers, and do nothing else.")
    ] = False,
) -> ExitCode:
    """Show everything once, offline.

    Starts three servers that ship with Toolweave, over stdio, HTTP and in this process, and a fourth that cannot
    start; shows their tools, calls several at once, and shows errors. Takes a few seconds.
    """
    if config:
        return _print_config()
    return run(_demo)


def _print_config() -> ExitCode:
    """Print a config of two servers and trust its content, because these servers are ours."""
    from toolweave.config import TrustedFiles, content_digest  # imports are late: --help imports this module

    content = {"mcpServers": {name: _program(name) for name in ("notes", "numbers")}}
    answer_json(content)
    with suppress(OSError):  # then it is asked about, as any other
        TrustedFiles().trust_content(content_digest(content))
    return ExitCode.OK


def _program(name: str) -> Json:
    # -P: whatever folder it is started in, no module is looked for there
    return {"command": sys.executable, "args": ["-P", "-m", f"toolweave.cli.demo.{name}"]}


async def _demo() -> ExitCode:
    from toolweave.cli._servers import open_fleet
    from toolweave.cli.demo.numbers import numbers_server  # imports are late: --help imports this module
    from toolweave.cli.demo.serving import serving_http
    from toolweave.cli.demo.words import words_server
    from toolweave.config import LoadedConfig, server_config

    answer(wrapped("Four servers: over stdio, over HTTP, in this process, and one that cannot start.", indent=0))
    started = time.monotonic()
    with serving_http(numbers_server()) as url:
        entries = {
            "notes": _program("notes"),
            "numbers": {"url": url},
            "words": {"server": words_server()},
            _MISSING: {"command": "no-such-program"},
        }
        servers = {name: server_config(entry, name=name) for name, entry in entries.items()}
        async with open_fleet(LoadedConfig(servers=servers)) as fleet:
            _show_servers(fleet)
            await _call_several(fleet)
            await _show_errors(fleet)
            failed = [name for name in fleet.errors if name != _MISSING]
            if failed:
                fleet.show_failures()
    answer(wrapped(f"\nEverything closed after {time.monotonic() - started:.1f} s; nothing is left running.", indent=0))
    if failed:
        answer(wrapped(f"\nThis is not what you should see: {', '.join(failed)} failed.", indent=0))
        return ExitCode.UNREACHABLE
    answer(wrapped(_NEXT, indent=6))
    return ExitCode.OK


def _show_servers(fleet: OpenServers) -> None:
    from toolweave.cli._render.views import first_line, table  # late, as above
    from toolweave.cli._targets import names_in

    rows: list[tuple[str, str, str, str]] = []
    for name in names_in(fleet.selection):
        server = fleet.server_json(name)
        tools = ", ".join(spec.original_name for spec in fleet.specs_of(name))
        rows.append(
            (name, server["state"], server["protocol_version"] or "", tools or first_line(server["error"] or ""))
        )
    show(table(["server", "state", "protocol", "tools"], rows), piped_width=_PIPED_WIDTH)


async def _call_several(fleet: OpenServers) -> None:
    import anyio  # late, as above

    from toolweave.cli._progress import call_progress
    from toolweave.cli._render.views import table
    from toolweave.tools import CallContext, ProgressCallback

    answer(wrapped("\nSix calls at once, three of them slow:", indent=0))
    rows: dict[str, tuple[str, str, str]] = {}

    async def one(name: str, arguments: Json, on_progress: ProgressCallback | None) -> None:
        started = time.monotonic()
        result = await fleet.hub.execute(name, arguments, CallContext(on_progress=on_progress))
        rows[name] = (name, _brief(result), f"{time.monotonic() - started:.2f} s")

    with call_progress(*(name for name, _ in _SLOW)) as listeners:
        async with anyio.create_task_group() as tasks:
            for (name, arguments), listener in zip(_SLOW, listeners, strict=True):
                tasks.start_soon(one, name, arguments, listener)
            for name, arguments in _QUICK:
                tasks.start_soon(one, name, arguments, None)
    show(
        table(["call", "answer", "took"], [rows[name] for name, _ in (*_SLOW, *_QUICK)], right=("took",)),
        piped_width=_PIPED_WIDTH,
    )


async def _show_errors(fleet: OpenServers) -> None:
    from toolweave.cli._render.views import first_line, table  # late, as above

    answer(wrapped("\nErrors are results, and the other servers keep working:", indent=0))
    rows: list[tuple[str, str, str, str]] = []
    for name, arguments, why in _WRONG:
        error = (await fleet.hub.execute(name, arguments)).require_error()
        rows.append((name, error.kind.value, first_line(error.message), why))
    missing = fleet.errors[_MISSING]
    rows.append((_MISSING, "not_sent", str(missing), "the server could not be started"))
    show(table(["call", "kind", "message", "meaning"], rows), piped_width=_PIPED_WIDTH)


def _brief(result: ToolResult) -> str:
    from toolweave.cli._render.text import clip  # late, as above

    return clip(result.text, 100)


COMMAND = Command(demo, examples=_EXAMPLES)
