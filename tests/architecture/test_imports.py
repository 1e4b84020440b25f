"""Importing is cheap and changes nothing. Each look is a fresh interpreter."""

from __future__ import annotations

import json
import sys
from typing import TypedDict

import pytest

from tests.architecture.source import modules
from tests.programs import ran

pytestmark = pytest.mark.slow

_BOUND_SECONDS = 300  # of one interpreter, on a machine that has much else to do

HEAVY = {
    *("mcp", "mcp_types", "pydantic", "pydantic_core"),
    *("httpx", "httpx2", "httpcore2", "aiohttp", "uvicorn", "starlette"),
}

PROBE = """
import json, logging, os, sys, threading, warnings

written = []
def watch(event, args):
    if event == "open":
        path, mode, _ = args
        if isinstance(mode, str) and set(mode) & set("wax+"):
            written.append(str(path))
    elif event in ("socket.connect", "socket.bind", "subprocess.Popen", "os.posix_spawn", "os.mkdir", "os.putenv"):
        written.append(event)

def state():
    return {
        "environment": dict(os.environ),
        "threads": [thread.name for thread in threading.enumerate()],
        "handlers": {
            name: len(logger.handlers)
            for name, logger in [("", logging.root), *logging.root.manager.loggerDict.items()]
            if isinstance(logger, logging.Logger) and logger.handlers
        },
        "level": logging.root.level,
        "filters": len(warnings.filters),
        "hooks": [repr(sys.excepthook), repr(sys.unraisablehook), repr(threading.excepthook)],
        "cwd": os.getcwd(),
    }

def look(statement):
    before = state()
    sys.addaudithook(watch)
    exec(statement)
    after = state()
    print(json.dumps({
        "statement": statement,
        "modules": sorted({name.partition(".")[0] for name in sys.modules}),
        "changed": [key for key in before if before[key] != after[key]],
        "written": written,
    }), flush=True)
"""

ONE = "look(sys.argv[1])"

EACH_IN_TURN = """
import builtins, importlib

# What the libraries below do at their own import is not ours to answer for, so they are loaded before.
import asyncio, anyio, mcp, mcp.client, pydantic, rich.console, shellingham
import agents, langgraph.prebuilt, pydantic_ai

real, half = builtins.__import__, []

def importing(name, globals=None, locals=None, fromlist=(), level=0):
    spec = getattr(sys.modules.get(name), "__spec__", None)
    begun = name.partition(".")[0] == PACKAGE and not level and getattr(spec, "_initializing", False)
    module = real(name, globals, locals, fromlist, level)
    if begun and not all(f"{name}.{one}" in sys.modules for one in fromlist or [""]):  # a package's modules are there
        half.append(f"{(globals or {}).get('__name__')} asks for {name}, which is half imported")
    return module

sys.addaudithook(watch)
builtins.__import__ = importing
for name in sys.argv[1:]:
    half.clear()
    written.clear()
    before = state()
    try:
        importlib.import_module(name)
    except BaseException as exc:
        half.append(repr(exc))
    after = state()
    changed = [key for key in before if before[key] != after[key]]
    print(json.dumps({"statement": name, "modules": [], "changed": changed + half, "written": written}), flush=True)
""".replace("PACKAGE", repr("toolweave"))


class Seen(TypedDict):
    """What one statement loaded, changed and wrote."""

    statement: str
    modules: list[str]
    changed: list[str]
    written: list[str]


def look(*statements: str, how: str = ONE) -> list[Seen]:
    """Run statements in a fresh interpreter and say what each of them did."""
    command = [sys.executable, "-B", "-W", "error", "-c", PROBE + how, *statements]
    done = ran(command, seconds=_BOUND_SECONDS)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    "name",
    [
        "toolweave",
        "toolweave.tools",
        "toolweave.config",
        "toolweave.schema",
        "toolweave.compose._agent",
        "toolweave.serve",
        "toolweave.serve._server",
    ],
)
def test_importing_loads_neither_the_sdk_nor_pydantic_nor_an_http_library(name: str) -> None:
    (seen,) = look(f"import {name}")

    assert HEAVY.isdisjoint(seen["modules"])


def test_plain_code_that_connects_to_a_server_loads_no_agents() -> None:
    look("from toolweave.sync import connect_mcp; assert not {'toolweave.agent', 'toolweave.compose'} & {*sys.modules}")


def test_the_help_of_the_command_loads_neither_the_sdk_nor_pydantic_nor_an_http_library() -> None:
    (seen,) = look(
        "import contextlib, io\n"
        "from toolweave.cli.main import main\n"
        "sys.argv = ['toolweave', '--help']\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        "    try:\n"
        "        main()\n"
        "    except SystemExit as end:\n"
        "        assert not end.code, end.code"
    )

    assert HEAVY.isdisjoint(seen["modules"])


def test_every_module_imports_alone_and_changes_nothing() -> None:
    """Each is run once, in one interpreter: where none asks for one that is half imported, any can be the first."""
    names = [module.name for module in modules()]

    seen = look(*names, how=EACH_IN_TURN)

    assert [one["statement"] for one in seen] == names
    assert not [one for one in seen if one["changed"] or one["written"]]
