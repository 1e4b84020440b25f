"""`toolweave call`: one tool, its arguments as typed, its answer as it came."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from toolweave._json_types import Json, JsonObject
from toolweave.cli._command import Command, Option, Positional
from toolweave.cli._exit_codes import CommandError, ExitCode, exit_code_of, is_expected
from toolweave.cli._options import JsonOption, Target, complete_arguments, complete_tools
from toolweave.cli._runner import run
from toolweave.cli._screen import answer, answer_json, complain, note
from toolweave.errors import ConfigError, ErrorKind, ToolError, as_tool_error

if TYPE_CHECKING:
    from toolweave.cli._arguments import RawArguments
    from toolweave.cli._servers import OpenServers
    from toolweave.config import LoadedConfig
    from toolweave.tools import Tool, ToolResult

_EXAMPLES = """
toolweave call time_get_current_time timezone=Europe/Oslo
toolweave call github:search_issues query="is:open" limit:=5 --json
toolweave call read_text_file path=notes.txt -- npx -y @modelcontextprotocol/server-filesystem .
toolweave call db_query --json-args '{"sql": "select 1"}'
toolweave call db_query sql=@query.sql
echo '{"a": 1, "b": 2}' | toolweave call add -
toolweave call screenshot --save pictures/
"""


def call(
    target: Target,
    name: Annotated[
        str, Positional("NAME", help="server_tool, server:tool, or a tool's own name.", complete=complete_tools)
    ],
    arguments: Annotated[
        tuple[str, ...],
        Positional(
            "ARGUMENTS",
            help="key=value, key:=JSON, key=@FILE, @FILE, or - for standard input.",
            complete_after=complete_arguments,
        ),
    ] = (),
    json_args: Annotated[
        str | None, Option("--json-args", metavar="JSON", help="All arguments as one JSON object.")
    ] = None,
    save: Annotated[
        Path | None, Option("--save", metavar="DIR", help="Write images, sounds and other binary content here.")
    ] = None,
    as_json: JsonOption = False,
) -> ExitCode:
    """Call one tool and print its answer.

    Values are converted to the types of the tool's schema. On a terminal, the command asks for missing required
    arguments. Name one stdio server after all arguments: -- COMMAND ARGS...
    """
    from toolweave.cli._arguments import read_arguments  # imports are late: --help imports this module
    from toolweave.cli._stdin import read_all

    given = read_arguments(arguments, json_args=json_args, stdin=read_all)

    async def body() -> ExitCode:
        started = time.monotonic()
        try:
            tool, result, seconds = await _call(target, name, given)
        except Exception as error:  # boundary: with --json what a call ends in is an answer too
            is_of_the_call = is_expected(error) and not isinstance(error, ConfigError)
            if not as_json or not is_of_the_call:
                raise
            answer_json(_failure_json(error, time.monotonic() - started))
            complain(error)
            return exit_code_of(error)
        if save is not None:
            result = _saved(result, save, tool.original_name)
        if as_json:
            answer_json(_result_json(result, seconds))
        else:
            _print(result)
        return _exit_code(result)

    return run(body, verbose=target.verbose)


def _exit_code(result: ToolResult) -> ExitCode:
    if not result.is_error:
        return ExitCode.OK
    # a server that responded was reached, whatever its own error is about
    if result.raw is not None:
        return ExitCode.TOOL_ERROR
    return exit_code_of(result.require_error())


async def _call(target: Target, name: str, given: RawArguments) -> tuple[Tool, ToolResult, float]:
    from toolweave.cli._progress import call_progress
    from toolweave.cli._servers import open_fleet  # late, as above
    from toolweave.cli._targets import select
    from toolweave.tools import CallContext

    selection = await select(target)
    async with open_fleet(_needed(selection, name)) as fleet:
        tool = await _find(fleet, selection, name)
        arguments = await _complete(given, tool)
        with call_progress(tool.name) as listeners:
            started = time.monotonic()
            ctx = CallContext(timeout=target.timeout, on_progress=listeners[0])
            result = await tool.execute(arguments, ctx)
            return tool, result, time.monotonic() - started


def _needed(selection: LoadedConfig, name: str) -> LoadedConfig:
    from toolweave.cli._targets import servers_named_by  # late, as above

    named = servers_named_by(name, selection)
    if named:
        return selection.select(named)
    return selection


async def _find(fleet: OpenServers, selection: LoadedConfig, name: str) -> Tool:
    tool = _look_up(fleet, name)
    from toolweave.cli._targets import names_in  # late, as above

    if tool is None and fleet.answered:
        # the name only looked as if it began with a server's: it may be another server's own
        started = names_in(fleet.selection)
        others = [server for server in names_in(selection) if server not in started]
        if others:
            await fleet.add(selection.select(others))
            tool = _look_up(fleet, name)
    if tool is not None:
        return tool
    from toolweave.connect._hints import hint_of  # as above
    from toolweave.tools.names import unknown_tool  # only a wrong name needs it

    if not fleet.answered and len(fleet.errors) == 1:
        ((failed, error),) = fleet.errors.items()
        advice = hint_of(fleet.selection.servers.get(failed), error)
        if advice:
            error.add_note(advice)
        raise error
    fleet.show_failures()
    if not fleet.answered:
        raise fleet.none_reached()
    raise ToolError(unknown_tool(name, [spec.name for spec in fleet.specs]), kind=ErrorKind.NOT_FOUND)


def _look_up(fleet: OpenServers, name: str) -> Tool | None:
    tools = fleet.hub.tools
    tool = tools.get(name)
    if tool is not None:
        return tool
    from toolweave.tools import expose  # late, as above
    from toolweave.tools.selection import own_names

    own = [tool for tool in tools if name in own_names(tool.spec)]
    if not own:  # `server_tool`, even if the tool's name has another prefix or none
        own = [tool for tool in tools if tool.spec.server and name == expose(tool.spec.server, tool.spec.original_name)]
    if len(own) > 1:
        choices = ", ".join(tool.name for tool in own)
        raise CommandError(f"tool {name!r} is offered by {len(own)} servers", hint=f"say which: {choices}")
    if own:
        return own[0]
    return None


async def _complete(given: RawArguments, tool: Tool) -> Json:
    from toolweave.cli._arguments import fit_arguments, missing_arguments, read_arguments  # late, as above
    from toolweave.cli._stdin import ask_for, can_ask, read_piped

    arguments = fit_arguments(given, tool.input_schema)
    missing = missing_arguments(arguments, tool.input_schema)
    if not missing:
        return arguments
    if can_ask():
        return arguments | await ask_for(missing, tool.input_schema)
    piped = None if given else await read_piped()
    if piped is not None:
        whole = read_arguments(["-"], json_args=None, stdin=lambda: piped)
        arguments = fit_arguments(whole, tool.input_schema)
        missing = missing_arguments(arguments, tool.input_schema)
    if missing:
        example = " ".join(f"{name}=..." for name in missing)
        raise CommandError(
            f"tool {tool.name!r} needs {', '.join(missing)}",
            code=ExitCode.TOOL_ERROR,
            hint=f"toolweave call {tool.name} {example}",
        )
    return arguments


def _result_json(result: ToolResult, seconds: float) -> JsonObject:
    from toolweave.protocol.content import block_json  # late, as above

    return {
        "content": list(map(block_json, result.content)),
        "structured_content": result.structured_content,
        "is_error": result.is_error,
        "error": result.require_error().to_dict() if result.is_error else None,
        "seconds": round(seconds, 6),
    }


def _failure_json(error: Exception, seconds: float) -> JsonObject:
    if isinstance(error, CommandError):
        kind = ErrorKind.INVALID_INPUT if error.code is ExitCode.TOOL_ERROR else ErrorKind.NOT_FOUND
        error = ToolError(error.message, kind=kind)
    from toolweave.tools import ToolResult  # late, as above

    return _result_json(ToolResult(is_error=True, error=as_tool_error(error)), seconds)


def _print(result: ToolResult) -> None:
    if result.is_error and result.raw is None:
        # ours, not the tool's: it goes to standard error alone
        complain(result.require_error())
        return
    shown = result.for_person()
    if shown.content or result.is_error:
        answer(shown.text)
    elif result.structured_content is not None or not result.content:
        answer_json(result.structured_content)
    hidden = sum("user" not in block.audience for block in result.content)
    if hidden and not result.is_error:
        note(f"{hidden} {'part' if hidden == 1 else 'parts'} of the result for the model alone: --json shows all")
    if result.is_error:
        note("error: the tool answered with an error")


def _saved(result: ToolResult, folder: Path, stem: str) -> ToolResult:
    """Return a result with links to the files that its binary content is in now, and name them.

    Raises:
        CommandError: The folder cannot be written to.
    """
    from toolweave.tools import save_files  # late, as above

    try:
        saved = save_files(result, folder, stem=stem)
    except OSError as exc:
        raise CommandError(f"cannot save to {str(folder)!r}: {exc.strerror or exc}") from None
    for block, link in zip(result.content, saved.content, strict=True):
        if link is not block:
            note(f"saved {folder / getattr(link, 'name', '')}")
        elif getattr(block, "data", None) or getattr(block, "blob", None):
            note(f"not saved, its base64 is broken or it is too large: {block.render()}")
    return saved


COMMAND = Command(call, examples=_EXAMPLES)
