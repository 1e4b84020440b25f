"""Misbehaving stdio servers: `python -S -E fault.py --mode MODE`; one fault each, well-behaved else."""

from __future__ import annotations

import argparse

import fault_answers
import fault_life
import fault_lists
from echo import add_peer_arguments, peer_from
from fault_base import MODES, FaultServer

__all__ = ["main"]

ROOMS = (fault_answers, fault_life, fault_lists)
DEFAULT_SIZES = {"huge_line": 50_000_000, "stderr_flood": 4_000_000, "stdout_flood": 4_000_000}
DEFAULT_CODES = {"dies_mid_call": 9}


def main() -> None:
    """Serve on standard input and output, in the way of the mode."""
    listing = "\n".join(f"  {name:32}{function.__doc__}" for name, function in sorted(MODES.items()))
    parser = argparse.ArgumentParser(
        description=f"{__doc__}\n\nmodes:\n{listing}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mode", required=True, choices=sorted(MODES), metavar="MODE")
    add_peer_arguments(parser)
    parser.add_argument("--seconds", type=float, default=1.0, help="for slow_start")
    parser.add_argument("--size", type=int, default=0, help="bytes, for the floods and huge_line")
    parser.add_argument("--port", type=int, default=9, help="for schema_ref_network")
    parser.add_argument("--code", type=int, default=None, help="exit code of the modes that die")
    parser.add_argument("rest", nargs="*", help="anything after --; the tool `args` shows it")
    options = parser.parse_args()
    name: str = options.mode
    server = FaultServer(
        peer_from(options),
        seconds=options.seconds,
        size=options.size or DEFAULT_SIZES.get(name, 0),
        port=options.port,
        code=DEFAULT_CODES.get(name, 3) if options.code is None else options.code,
    )
    MODES[name](server)
    server.run()


if __name__ == "__main__":
    main()
