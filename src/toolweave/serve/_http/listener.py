"""Closing a listening socket so that no connection is reset: new ones are refused, and those under way are accepted.

Knows nothing of HTTP. A listener that is closed resets the connections in its queue, and a client cannot distinguish
such a reset from a request that was lost while it ran. So the queue has to be empty at that moment, while clients still
connect. On Linux a packet filter drops their first packet (SYN): a handshake under way ends, none begins, and a client
whose packet was dropped sends it again a second later, when the port is closed and refuses it. A refused connection is
safe to try elsewhere. On other systems a connection that is made in the very moment of closing is reset.
"""

from __future__ import annotations

import ctypes
import selectors
import socket
import struct
import sys
from collections.abc import Sequence

import anyio
import anyio.lowlevel

_HANDSHAKE_SECONDS = 0.3
"""Seconds for handshakes under way to end, which is more than a round trip."""
_MAX_SECONDS = 2.0
"""Maximum number of seconds until the connections in the queue are accepted, also in a process that is busy."""
_SO_ATTACH_FILTER = 26
_DROP_SYN = (
    (0x30, 0, 0, 13),  # load the byte of the flags, which is the 14th of the header
    (0x54, 0, 0, 0x12),  # keep SYN and ACK
    (0x15, 0, 1, 0x02),  # SYN alone: the next instruction, else skip it
    (0x06, 0, 0, 0),  # drop the packet
    (0x06, 0, 0, 0xFFFFFFFF),  # keep all of it
)
"""A program of the classic Berkeley Packet Filter: operation, two jumps and a constant for each instruction."""


async def empty_queues(listeners: Sequence[socket.socket], *, hurried: anyio.Event) -> None:
    """Accept no new connection, and return when the event loop has accepted those under way; close the sockets then.

    Args:
        listeners: Listening sockets, whose connections the running event loop accepts.
        hurried: Once it is set, nothing is waited for any more.
    """
    for listener in listeners:
        _refuse_handshakes(listener)
    with anyio.move_on_after(_HANDSHAKE_SECONDS):
        await hurried.wait()
    with anyio.move_on_after(_MAX_SECONDS), selectors.DefaultSelector() as selector:
        for listener in listeners:
            selector.register(listener, selectors.EVENT_READ)
        while selector.select(0) and not hurried.is_set():
            await anyio.lowlevel.checkpoint()


def _refuse_handshakes(listener: socket.socket) -> None:
    """Let the system drop the first packet of each new connection, if it can."""
    if not sys.platform.startswith("linux"):
        return
    program = b"".join(struct.pack("HBBI", *instruction) for instruction in _DROP_SYN)
    buffer = ctypes.create_string_buffer(program, len(program))
    try:
        listener.setsockopt(
            socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", len(_DROP_SYN), ctypes.addressof(buffer))
        )
    except OSError:  # a sandbox without it; the rest of this module does most of the work
        return
