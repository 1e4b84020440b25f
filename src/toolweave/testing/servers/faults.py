"""Misbehaving stdio servers: `run.py faults --mode MODE`; one fault each, well-behaved else."""

from __future__ import annotations

import argparse

from toolweave.testing.servers import fault_answers, fault_bytes, fault_lists, fault_messages, fault_process
from toolweave.testing.servers.echo import add_peer_arguments, peer_from
from toolweave.testing.servers.fault_base import MESSAGE_MODES, MODES, FaultServer, Quota
from toolweave.testing.servers.stdio_loop import StdioServer
from toolweave.testing.servers.toolset import Json

__all__ = ["MESSAGE_FAULTS", "STDIO_FAULTS", "add_fault_arguments", "main", "quota_from", "with_fault"]

FAULT_MODULES = (fault_answers, fault_bytes, fault_lists, fault_messages, fault_process)
"""The modules that fill `MODES` when they are imported."""
STDIO_FAULTS = {name: function.__doc__ or "" for name, function in sorted(MODES.items())}
"""Mode -> its description, in one sentence."""
MESSAGE_FAULTS = {name: text for name, text in STDIO_FAULTS.items() if name in MESSAGE_MODES}
"""The modes that an HTTP server can also have."""
DEFAULT_SIZES = {"huge_line": 50_000_000, "stderr_flood": 4_000_000, "stdout_flood": 4_000_000}
DEFAULT_CODES = {"dies_mid_call": 9}


class StdioFault(StdioServer):
    """A stdio server that lets its fault handle a message first."""

    fault: FaultServer

    def run(self) -> None:
        """Serve, with the mode's hooks at the start and the end."""
        self.fault.before_start()
        super().run()
        self.fault.after_end()

    def respond(self, message: Json) -> None:
        """Handle one message, in the way of the mode."""
        if self.fault.handle(message):
            return
        answer = self.peer.handle(message, self.session, self.send)
        if answer is not None:
            data = self.fault.rewrite_answer(message, answer)
            self.write(self.encode(answer) if data is None else data)


def add_fault_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the modes."""
    parser.add_argument("--times", type=int, default=0, metavar="N", help="the fault takes the first N only")
    parser.add_argument("--memory", metavar="FILE", help="counts --times over processes")
    parser.add_argument("--seconds", type=float, default=1.0, help="for the slow modes")
    parser.add_argument("--size", type=int, default=0, help="bytes, for the floods and the huge answers")
    parser.add_argument("--code", type=int, default=None, help="exit code of the modes that die")


def quota_from(options: argparse.Namespace) -> Quota:
    """Return the quota of the fault."""
    return Quota(options.times, options.memory)


def with_fault(server: FaultServer, name: str) -> FaultServer:
    """Hook a mode into a server."""
    MODES[name](server)
    return server


def main() -> None:
    """Serve on standard input and output, in the way of the mode."""
    listing = "\n".join(f"  {name:32}{text}" for name, text in STDIO_FAULTS.items())
    parser = argparse.ArgumentParser(
        description=f"{__doc__}\n\nmodes:\n{listing}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mode", required=True, choices=sorted(MODES), metavar="MODE")
    add_peer_arguments(parser)
    add_fault_arguments(parser)
    parser.add_argument("--port", type=int, default=9, help="for schema_ref_network")
    parser.add_argument("rest", nargs="*", help="anything after --; the tool `args` shows it")
    options = parser.parse_args()
    name: str = options.mode
    server = StdioFault(peer_from(options))
    fault = FaultServer(
        server.peer,
        server.write,
        quota_from(options),
        seconds=options.seconds,
        size=options.size or DEFAULT_SIZES.get(name, 0),
        port=options.port,
        code=DEFAULT_CODES.get(name, 3) if options.code is None else options.code,
    )
    fault.session = server.session
    server.fault = with_fault(fault, name)
    server.run()
