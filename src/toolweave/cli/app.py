"""The command tree: names, help texts and examples of every command. Runs none of them itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Annotated, Any

import typer

from toolweave.cli.chatting.options import CHAT_DEFAULTS, ChatOptions
from toolweave.cli.commands import (
    add,
    call,
    chat,
    components,
    config,
    demo,
    doctor,
    init,
    prompts,
    resources,
    runs,
    serve,
    status,
    tools,
    worker,
)
from toolweave.cli.exits import CommandError, ExitCode, error_json, exit_code_of, is_expected, is_usage, show_usage
from toolweave.cli.options import takes, takes_target

__all__ = ["app", "run_app"]

_HELP = """Use the tools of any MCP server, from a terminal, and serve your own.

Servers come from mcp.json, .mcp.json, [tool.toolweave] in pyproject.toml and your editors' files in this
project, such as .vscode/mcp.json and .cursor/mcp.json; where it has none, from your editors' own files. Or
name files with --config, or one server with --url URL or after --. What came with a project starts after one
yes for each content of a file, or with --trust.

Exit codes: 0 ok; 1 the tool answered with an error or its arguments do not fit; 2 wrong usage or config, or
no such tool or server; 3 no server could be reached or a deadline passed; 4 a config file of this project is
not trusted; 130 interrupted.
"""

app = typer.Typer(
    name="toolweave",
    help=_HELP,
    rich_markup_mode=None,  # help in plain text: rich takes as long to import as everything else here
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


_AD_HOC = "[OPTIONS] [-- COMMAND ARGS...]"


def _epilog(examples: str) -> str:
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in examples.strip().splitlines())


def _exits(function: Callable[..., ExitCode]) -> Callable[..., None]:
    @wraps(function)
    def command(**values: Any) -> None:  # any option's value
        raise typer.Exit(int(function(**values)))

    return command


for _verb in (tools, call, resources, prompts, status, doctor):
    _name = _verb.__name__.rpartition(".")[2]
    _usage = "[OPTIONS]" if _verb in (call, prompts) else _AD_HOC
    app.command(_name, epilog=_epilog(_verb.EXAMPLES), options_metavar=_usage)(takes_target(getattr(_verb, _name)))
app.command("chat", epilog=_epilog(chat.EXAMPLES), options_metavar=_AD_HOC)(
    takes(chat.chat, "options", ChatOptions, CHAT_DEFAULTS)
)
app.command("serve", epilog=_epilog(serve.EXAMPLES))(takes(serve.serve, "options", serve.ServeOptions, serve.DEFAULTS))
app.command("worker", epilog=_epilog(worker.EXAMPLES), options_metavar=_AD_HOC)(
    takes(worker.worker, "options", worker.WorkerOptions, worker.DEFAULTS)
)
app.command("init", epilog=_epilog(init.EXAMPLES))(_exits(init.init))
app.command("add", epilog=_epilog(add.EXAMPLES))(_exits(add.add))
app.command("demo", epilog=_epilog(demo.EXAMPLES))(_exits(demo.demo))


def _group(name: str, text: str, examples: Mapping[str, str], functions: Mapping[str, Callable[..., None]]) -> None:
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    app.add_typer(group, name=name, help=text)
    for verb, function in functions.items():
        group.command(verb, epilog=_epilog(examples[verb]))(function)


_group(
    "components",
    components.HELP,
    components.EXAMPLES,
    {
        "list": _exits(components.list_components),
        "diff": _exits(components.diff),
        "update": _exits(components.update),
        "remove": _exits(components.remove),
    },
)
_group("config", config.HELP, config.EXAMPLES, {"show": _exits(config.show_config)})
_group(
    "runs",
    runs.HELP,
    runs.EXAMPLES,
    {
        "spawn": takes(runs.spawn, "options", ChatOptions, CHAT_DEFAULTS),
        "list": _exits(runs.list_runs),
        "show": _exits(runs.show_run),
        "cancel": _exits(runs.cancel),
    },
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # takes as long as the rest of --help

        typer.echo(f"toolweave {version('toolweave')}")
        raise typer.Exit


@app.callback()
def toolweave(
    version: Annotated[
        bool, typer.Option("--version", "-V", is_eager=True, callback=_version, help="Print the version and exit.")
    ] = False,
) -> None:
    # the help text is `_HELP`
    ...


def run_app(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code; what follows the first `--` is a stdio server's command."""
    words = list(argv)
    try:
        words, command = _split(words)
        code = app(words, prog_name="toolweave", obj=command, standalone_mode=False)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(ExitCode.OK)
    except typer.Abort:
        return int(ExitCode.INTERRUPTED)
    except Exception as error:  # boundary: expected errors end in one line and their code
        if not is_expected(error) and not is_usage(error):
            raise
        return _complained(error, as_json="--json" in words)
    return code if isinstance(code, int) else int(ExitCode.OK)


def _complained(error: Exception, *, as_json: bool) -> int:
    """Tell an error on standard error, and as a document on standard output where JSON was asked for."""
    from toolweave.cli.screen import answer_json, complain  # only needed now

    if is_usage(error):
        show_usage(error)
    else:
        complain(error)
    code = exit_code_of(error)
    if as_json:
        answer_json({"error": error_json(error, code)})
    return int(code)


def _split(words: list[str]) -> tuple[list[str], tuple[str, ...]]:
    if "--" not in words:
        return words, ()
    at = words.index("--")
    if at == len(words) - 1:
        raise CommandError("after -- the command of a stdio server is expected")
    return words[:at], tuple(words[at + 1 :])
