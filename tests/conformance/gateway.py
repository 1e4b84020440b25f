"""A gateway in front of one server, for the official suite: `gateway.py --port N URL`, served at `/mcp`.

Uses the public names of the package alone.
"""

from __future__ import annotations

import argparse

from toolweave.gateway import create_gateway
from toolweave.serve import MemoryEventStore

__all__ = ["main"]

RETRY_MS = 100
"""After how many milliseconds a client comes back that lost its stream."""


def main() -> None:
    """Serve over HTTP."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True, metavar="N", help="the port on the loopback interface")
    parser.add_argument("--protocol", default="auto", help="the revision to speak with the server")
    parser.add_argument("url", metavar="URL", help="the server")
    options = parser.parse_args()
    up = {"type": "http", "url": options.url, "tool_prefix": "", "protocol": options.protocol}
    gateway = create_gateway({"up": up}, name="gateway")
    gateway.run_http(port=options.port, event_store=MemoryEventStore(), retry_interval=RETRY_MS)


if __name__ == "__main__":
    main()
