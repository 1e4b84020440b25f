"""A well-behaved stdio server, hand-written JSON-RPC: `run.py echo --era legacy|modern|dual`."""

from __future__ import annotations

import argparse

from toolweave.testing.servers.protocol import HANDSHAKE, MODERN, Peer
from toolweave.testing.servers.stdio_loop import StdioServer
from toolweave.testing.servers.tasking import TaskingPeer

__all__ = ["add_peer_arguments", "main", "peer_from"]


def add_peer_arguments(parser: argparse.ArgumentParser, *more_eras: str) -> None:
    """Add the options that every server of this package understands."""
    parser.add_argument(
        "--era", choices=["legacy", "modern", "dual", *more_eras], help="default: by --version, else legacy"
    )
    parser.add_argument("--version", choices=[*HANDSHAKE, MODERN], help="the one revision the server answers with")
    parser.add_argument("--tools", type=int, default=0, metavar="N", help="add N generated tools")
    parser.add_argument("--tool-bytes", type=int, default=0, metavar="B", help="size of a generated tool")
    parser.add_argument("--page-size", type=int, default=0, metavar="P", help="rows in one page; 0: all")
    parser.add_argument("--probe", choices=["exit", "silent", "error-32601", "error-32602", "ok"])
    parser.add_argument("--name", default="echo", help="serverInfo.name")
    parser.add_argument("--asks", action="store_true", help="add tools that ask the client back, and tasks")
    parser.add_argument("--ttl-ms", type=int, default=0, help="ttlMs of modern lists")


def peer_from(options: argparse.Namespace) -> Peer:
    """Build the peer that the options describe."""
    era: str = options.era or ("modern" if options.version == MODERN else "legacy")
    made = TaskingPeer if options.asks else Peer
    return made(
        era=era,
        version=options.version,
        tools=options.tools,
        tool_bytes=options.tool_bytes,
        page_size=options.page_size,
        probe=options.probe,
        name=options.name,
        ttl_ms=options.ttl_ms,
    )


def main() -> None:
    """Serve on standard input and output."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_peer_arguments(parser)
    parser.add_argument("rest", nargs="*", help="anything after --; the tool `args` shows it")
    StdioServer(peer_from(parser.parse_args())).run()
