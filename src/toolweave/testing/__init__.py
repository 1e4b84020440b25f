"""The testing kit: servers in memory, servers that misbehave, recorded sessions and a fake clock.

For the tests of applications that use Toolweave; `toolweave.testing.plugin` offers the same as pytest fixtures, and is
the only module that imports pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolweave.testing._clock import FakeClock
    from toolweave.testing._memory import MemoryServer
    from toolweave.testing._recorder import Recorder, record
    from toolweave.testing._replayer import RecordedExchange, Replay, replay
    from toolweave.testing._script import Received
    from toolweave.testing.servers import (
        HTTP_FAULTS,
        STDIO_FAULTS,
        http_fault_server,
        http_server,
        stdio_fault_command,
        stdio_server_command,
    )
else:
    from toolweave._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "_clock": ("FakeClock",),
            "_memory": ("MemoryServer",),
            "_recorder": (
                "Recorder",
                "record",
            ),
            "_replayer": (
                "RecordedExchange",
                "Replay",
                "replay",
            ),
            "_script": ("Received",),
            "servers": (
                "HTTP_FAULTS",
                "STDIO_FAULTS",
                "http_fault_server",
                "http_server",
                "stdio_fault_command",
                "stdio_server_command",
            ),
        },
    )

__all__ = [
    "HTTP_FAULTS",
    "STDIO_FAULTS",
    "FakeClock",
    "MemoryServer",
    "Received",
    "RecordedExchange",
    "Recorder",
    "Replay",
    "http_fault_server",
    "http_server",
    "record",
    "replay",
    "stdio_fault_command",
    "stdio_server_command",
]
