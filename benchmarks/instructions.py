"""`python -m benchmarks.instructions [--http | --gateway | --served] [--meta] [TREE ...]`: instructions of one call.

Ratios to raw move by a tenth and more from run to run; counted instructions do not, however busy the machine is. Each
TREE is a checkout with its `.venv`, this one by default; the first is what the others are divided by. With `--http` the
client is one over HTTP, by itself and with 16 calls at once, in place of one over stdio. With `--gateway` the counts
are those of a gateway's process, and divided by those of the bare pass-through; with `--served` those of a server
over HTTP, and divided by those of a bare ASGI application. With `--meta` each call of these two has a progress token,
a trace context and a key of its client in `_meta`, as those of agents have. Needs `valgrind`.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol, cast

from benchmarks.clients import CLIENTS, Target
from benchmarks.gateway import ERAS, Place, ended, free_port, of_one_endpoint, until_it_answers, written
from benchmarks.raw import RawHttp

__all__ = ["per_call_of_client", "per_call_served", "per_call_through"]

ROOT = Path(__file__).resolve().parents[1]
ECHO = Path(__file__).with_name("echo_server.py")
OURS = [name for name in CLIENTS if name.startswith("toolweave")]
CALLERS = 16
FEW, MANY = 320, 1_600
"""What both runs have in common, the start and the end of the program, is subtracted."""
TOOLS = "1,000 tools"
CASES = {"100 B": (FEW, MANY), "10 kB": (FEW, MANY), "1 MB": (16, 48), "20 rows": (FEW, MANY), TOOLS: (3, 9)}
"""How many calls the two runs make, by the answer: a text, structured content, or the list of all tools."""
SIZES = {"100 B": 100, "10 kB": 10_000, "1 MB": 1_000_000}
CALLERS_THROUGH = 8
"""A gateway that is counted is some fifty times slower: with more callers calls would go on as slow ones."""
START_SECONDS = 240.0
META = {
    "progressToken": 1,
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "com.example/toolUseId": "toolu_01",
}
"""The members of a `_meta` that agents send with a call."""


def per_call_of_client(tree: Path, name: str, case: str) -> int:
    """Return the instructions of a client for one call over stdio, with 16 callers."""
    few, many = CASES[case]
    return round((_counted(tree, name, case, many) - _counted(tree, name, case, few)) / (many - few))


def per_call_over_http(tree: Path, name: str, callers: int) -> int:
    """Return the instructions of a client for one call of the modern era over HTTP."""
    server = [sys.executable, "-S", "-E", str(ECHO), "--http", "--era", "modern"]
    with subprocess.Popen(server, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            over_http = (f"http://127.0.0.1:{int(process.stdout.readline())}/mcp", str(callers))
            few, many = (_counted(tree, name, "100 B", calls, *over_http) for calls in (FEW, MANY))
        finally:
            process.kill()
    return round((many - few) / (MANY - FEW))


def _counted(tree: Path, name: str, case: str, calls: int, *over_http: str) -> int:
    client = [str(tree / ".venv/bin/python"), str(Path(__file__)), "--calls", name, case, str(calls), *over_http]
    done = subprocess.run(_command(client), check=True, env=_environment(tree), capture_output=True, text=True)
    return _collected(done.stderr)


def _command(program: Sequence[str]) -> list[str]:
    return ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *program]


def _environment(tree: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": f"{tree / 'src'}:{ROOT}"}


def _collected(told: str) -> int:
    found = re.search(r"Collected : (\d+)", told)
    if found is None:
        raise RuntimeError(f"valgrind has counted nothing: {told[-500:]}")
    return int(found[1])


def per_call_through(tree: Path, contender: str, *, modern: bool, meta: bool = False) -> int:
    """Return the instructions of a gateway for one call, with 8 callers of an era."""
    few, many = (asyncio.run(_counted_through(tree, contender, modern, calls, meta)) for calls in (FEW, MANY))
    return round((many - few) / (MANY - FEW))


def per_call_served(tree: Path, contender: str, *, modern: bool, meta: bool = False) -> int:
    """Return the instructions of a server over HTTP for one call, with 8 callers of an era."""
    few, many = (asyncio.run(_counted_served(tree, contender, modern, calls, meta)) for calls in (FEW, MANY))
    return round((many - few) / (MANY - FEW))


async def _counted_served(tree: Path, contender: str, modern: bool, calls: int, meta: bool) -> int:
    program = _command([str(tree / ".venv/bin/python"), "-m", "benchmarks.served", contender, "http"])
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *program, env=_environment(tree), cwd=tree, stdout=pipe, stderr=pipe, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            client = RawHttp(f"http://127.0.0.1:{int(await process.stdout.readline())}/mcp", modern=modern)
            await client.start()
            client.meta = META if meta else {}

        async def call(times: int) -> None:
            for _ in range(times):
                await client.call_tool("payload", {"size": 100})

        await asyncio.gather(*(call(calls // CALLERS_THROUGH) for _ in range(CALLERS_THROUGH)))
        await client.close()
    finally:
        await ended(process, seconds=60)
    return _collected((await process.stderr.read()).decode())


async def _counted_through(tree: Path, contender: str, modern: bool, calls: int, meta: bool) -> int:
    port = free_port()
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "told").open("w+") as told:
        no_servers = AsyncExitStack()  # the upstreams speak stdio: the gateway starts them
        config = str(written(Path(folder), Place(), modern=True, stack=no_servers))
        program = [str(tree / ".venv/bin/python"), "-m", "benchmarks.gateway", contender, str(port), config]
        if contender == "toolweave":  # by itself: valgrind would not follow the one that becomes it
            program[1:] = ["-m", "toolweave", "gateway", "--config", config, "--http", f"127.0.0.1:{port}"]
        process = await asyncio.create_subprocess_exec(
            *_command(program), env=_environment(tree), cwd=tree, stdout=told, stderr=told, start_new_session=True
        )
        try:
            client = of_one_endpoint(f"http://127.0.0.1:{port}", modern)
            async with asyncio.timeout(START_SECONDS):
                await until_it_answers(client)
            cast("RawHttp", client).meta = META if meta else {}

            async def call(times: int) -> None:
                for number in range(times):
                    await client.payload("abc"[number % 3], 100)

            await asyncio.gather(*(call(calls // CALLERS_THROUGH) for _ in range(CALLERS_THROUGH)))
            await client.close()
        finally:
            await ended(process, seconds=60)
        told.seek(0)
        return _collected(told.read())


async def _client(name: str, case: str, calls: int, url: str = "", callers: str = "") -> None:
    """Call a tool, or list all tools, so often: over stdio, or with so many callers of a URL."""
    tools = ("--tools", "1000") if case == TOOLS else ()
    async with AsyncExitStack() as stack:
        target = Target(command=(sys.executable, "-S", "-E", str(ECHO), *tools), modern=False)
        if url:
            target = Target(url=url, modern=True)
        opened = await CLIENTS[name].opener(stack, target)

        async def call(times: int) -> None:
            for _ in range(times):
                if case == TOOLS:
                    await opened.list_all()
                else:
                    await (opened.call("payload", {"size": SIZES[case]}) if case in SIZES else opened.call("rows", {}))

        usual = 1 if case == TOOLS else CALLERS  # several at once would share a list
        together = int(callers) if callers else usual
        await asyncio.gather(*(call(calls // together) for _ in range(together)))


def main() -> None:
    """Read the command line, count, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description=__doc__)
    parser.add_argument("trees", nargs="*", type=Path, metavar="TREE", default=[ROOT])
    parser.add_argument("--http", action="store_true", help="count a client over HTTP instead of stdio")
    parser.add_argument("--gateway", action="store_true", help="count a gateway instead of a client")
    parser.add_argument("--served", action="store_true", help="count a server over HTTP instead of a client")
    parser.add_argument("--meta", action="store_true", help="count calls with a progress token and more in `_meta`")
    parser.add_argument("--client", choices=OURS, action="append", help="one of ours; may be repeated")
    parser.add_argument("--case", choices=list(CASES), action="append", help="an answer over stdio; may be repeated")
    parser.add_argument("--calls", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.calls:
        name, case, calls, *over_http = options.calls
        factory = importlib.import_module("uvloop").new_event_loop if CLIENTS[name].uvloop else None
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(_client(name, case, int(calls), *over_http))
        return
    if shutil.which("valgrind") is None:
        parser.exit(2, "valgrind is not installed\n")
    if options.gateway or options.served:
        per_call = per_call_through if options.gateway else per_call_served
        _print_of_eras(per_call, [tree.resolve() for tree in options.trees], meta=options.meta)
        return
    trees = [tree.resolve() for tree in options.trees]
    for name in options.client or OURS[:1]:
        if options.http:
            for callers in (1, CALLERS):
                _print(f"{name}, {callers} at once", [per_call_over_http(tree, name, callers) for tree in trees])
            continue
        for case in options.case or CASES:
            _print(f"{name}, {case}", [per_call_of_client(tree, name, case) for tree in trees])


def _print(case: str, counts: Sequence[int]) -> None:
    ratios = "  ".join(f"{count:>11,} ({count / counts[0]:.2f})" for count in counts)
    print(f"{case:36} {ratios}", flush=True)


class _PerCall(Protocol):
    def __call__(self, tree: Path, contender: str, *, modern: bool, meta: bool) -> int: ...


def _print_of_eras(per_call: _PerCall, trees: Sequence[Path], *, meta: bool) -> None:
    for era, modern in ERAS.items():
        raw = per_call(trees[0], "raw", modern=modern, meta=meta)
        counts = [per_call(tree, "toolweave", modern=modern, meta=meta) for tree in trees]
        ratios = "  ".join(f"{count:>9,} ({count / raw:.2f})" for count in counts)
        print(f"{f'a call{era}':32} {raw:>9,}  {ratios}", flush=True)


if __name__ == "__main__":
    main()
