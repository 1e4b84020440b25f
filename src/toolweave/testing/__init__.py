"""The testing kit: servers in memory, servers that misbehave, recorded sessions and a fake clock.

For the tests of applications that use Toolweave; `toolweave.testing.plugin` offers the same as pytest fixtures, and is
the only module that imports pytest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolweave.testing._clock import FakeClock
    from toolweave.testing._memory import MemoryServer
    from toolweave.testing._recorder import Recorder, record
    from toolweave.testing._replayer import Replay, replay
    from toolweave.testing._script import Received
    from toolweave.testing.servers import (
        HTTP_FAULTS,
        STDIO_FAULTS,
        http_fault_server,
        http_server,
        stdio_fault_command,
        stdio_server_command,
    )

__all__ = [
    "HTTP_FAULTS",
    "STDIO_FAULTS",
    "FakeClock",
    "MemoryServer",
    "Received",
    "Recorder",
    "Replay",
    "http_fault_server",
    "http_server",
    "record",
    "replay",
    "stdio_fault_command",
    "stdio_server_command",
]

_HOMES = {
    "FakeClock": "_clock",
    "MemoryServer": "_memory",
    "Received": "_script",
    "Recorder": "_recorder",
    "Replay": "_replayer",
    "record": "_recorder",
    "replay": "_replayer",
}
"""Modules of the names that are not of `servers`."""


def __getattr__(name: str) -> Any:  # whatever the name stands for
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'servers')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
