"""An upstream that is replaced by a version of the other era, behind a gateway with callers of every revision."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.gateway.relayed import CALLERS, EACH_CALLER, MODERN, Json, calling, gateway_to
from tests.servers.fixtures import echo_command, http_server, relay_command
from toolweave import Callbacks, McpConnection

pytestmark = pytest.mark.slow

ERAS = ("legacy", "modern", "dual")
CHANGES = [(one, other) for one in ERAS for other in ERAS if one != other]
ABLE = Callbacks(elicitation=lambda request: {"name": "Ann"})
"""A caller that can be asked has private connections."""
EACH_ABILITY = pytest.mark.parametrize(
    "callbacks", [Callbacks(), ABLE], ids=["shared connection", "private connection"]
)
Replace = Callable[[], None]


@contextlib.contextmanager
def replaced_process(before: str, after: str, folder: Path) -> Generator[tuple[Json, Replace]]:
    """Yield the entry of a server as a process, and the end of its processes: later ones are of the other version."""
    eras = folder / "era"
    eras.write_text(before)
    pids = folder / "pids"
    program = (
        "import os, sys; eras, pids, *command = sys.argv[1:]; era = open(eras).read(); "
        "open(pids, 'a').write(f'{os.getpid()} '); os.execv(command[0], [*command, '--era', era])"
    )
    command = [sys.executable, "-c", program, str(eras), str(pids), *echo_command()]

    def replace() -> None:
        eras.write_text(after)
        running = pids.read_text().split()
        pids.write_text("")
        for pid in running:
            with contextlib.suppress(ProcessLookupError):  # the connection that found out its era has ended it
                os.kill(int(pid), signal.SIGKILL)

    yield {"command": command[0], "args": command[1:], "tool_prefix": ""}, replace


@contextlib.contextmanager
def replaced_service(before: str, after: str, folder: Path) -> Generator[tuple[Json, Replace]]:
    """Yield the entry of a server over HTTP, and what puts the other version in its place."""
    with contextlib.ExitStack() as old, contextlib.ExitStack() as new:
        url = old.enter_context(http_server("--era", before))
        port = url.split(":")[2].split("/")[0]

        def replace() -> None:
            old.close()
            new.enter_context(http_server("--era", after, "--port", port))

        yield {"type": "http", "url": url, "tool_prefix": ""}, replace


@contextlib.contextmanager
def replaced_behind_relay(before: str, after: str, folder: Path) -> Generator[tuple[Json, Replace]]:
    """Yield the entry of a process that stays while the server behind it is replaced."""
    eras = folder / "era"
    eras.write_text(before)
    command = relay_command(eras)

    def replace() -> None:
        eras.write_text(after)

    yield {"command": command[0], "args": command[1:], "tool_prefix": ""}, replace


CARRIERS: dict[str, Any] = {"stdio": replaced_process, "relay": replaced_behind_relay, "http": replaced_service}


async def echoed(caller: McpConnection, text: str) -> str:
    with anyio.fail_after(15):
        return (await caller.execute("echo", {"text": text})).text


def _is_carried(carrier: str, before: str, after: str, version: str) -> bool:
    """Return whether a client can live on: the relay repeats no handshake within one era, which every client loses."""
    if carrier != "relay":
        return True
    if version == MODERN:
        return (before, after) != ("legacy", "dual")
    return {before, after} != {"legacy", "dual"}


CARRIED_CHANGES = [
    (carrier, before, after, version)
    for carrier in CARRIERS
    for before, after in CHANGES
    for version in CALLERS
    if _is_carried(carrier, before, after, version)
]


@pytest.mark.parametrize(("carrier", "before", "after", "version"), CARRIED_CHANGES)
@EACH_ABILITY
async def test_the_first_call_after_the_change_reaches_the_new_version(
    version: str, before: str, after: str, callbacks: Callbacks, carrier: str, tmp_path: Path
) -> None:
    with CARRIERS[carrier](before, after, tmp_path) as (entry, replace):
        async with calling(gateway_to(entry), version, callbacks=callbacks) as caller:
            assert await echoed(caller, "a") == "a"
            replace()
            assert await echoed(caller, "b") == "b"
            assert await echoed(caller, "c") == "c"


@EACH_CALLER
@pytest.mark.parametrize(("before", "after"), [("legacy", "modern"), ("modern", "legacy")])
async def test_a_subscription_is_made_again_in_the_new_era(
    version: str, before: str, after: str, tmp_path: Path
) -> None:
    changed = anyio.Event()
    with replaced_service(before, after, tmp_path) as (entry, replace):
        async with calling(gateway_to(entry), version, callbacks=Callbacks()) as caller:
            uri = (await caller.list_resources())[0].uri
            await caller.subscribe_resource(uri, lambda update: update.missed or changed.set())
            replace()
            assert await echoed(caller, "b") == "b"
            with anyio.fail_after(20):
                while not changed.is_set():
                    await caller.execute("touch", {"uri": uri})
                    with anyio.move_on_after(0.2):
                        await changed.wait()
