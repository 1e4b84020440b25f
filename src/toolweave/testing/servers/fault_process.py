"""Faults of the process: how it starts, dies, lingers and floods."""

from __future__ import annotations

import os
import signal
import time

from toolweave.testing.servers.fault_base import FaultServer, complain, mode
from toolweave.testing.servers.stdio_loop import write_all
from toolweave.testing.servers.toolset import Json, PeerCall, schema, text_result

__all__: list[str] = []


def die(server: FaultServer, *lines: str) -> None:
    """End the process at once with the code of the command line."""
    complain(*lines)
    os._exit(server.code)


def linger() -> None:
    """Stay alive for ten minutes, also when standard input ends."""
    # Bounded, so that a process that a failing test leaves behind ends by itself.
    for _ in range(600):
        time.sleep(1)


@mode
def exits_at_once(server: FaultServer) -> None:
    """Write two lines to standard error and exit (--code, default 3)."""

    def start() -> None:
        if server.quota.take():
            die(server, "reading settings", "fatal: no API key in EXAMPLE_TOKEN")

    server.before_start = start


@mode
def dies_at_probe(server: FaultServer) -> None:
    """Exit at `server/discover`; legacy and well-behaved otherwise."""

    def probed(message: Json) -> bool:
        complain("unknown method server/discover")
        os._exit(1)

    server.on("server/discover", probed)


@mode
def dies_at_initialize(server: FaultServer) -> None:
    """Exit when asked for anything at all."""

    def asked(message: Json) -> bool:
        die(server, "cannot initialize: no database")
        return True

    server.on("initialize", asked)
    server.on("server/discover", asked)


@mode
def dies_after_initialize(server: FaultServer) -> None:
    """Shake hands, then exit instead of listing."""

    def asked(message: Json) -> bool:
        die(server, "cannot list")
        return True

    server.on("tools/list", asked)


@mode
def dies_mid_call(server: FaultServer) -> None:
    """Exit when `echo` is called; every other tool works."""

    def called(message: Json) -> bool:
        if message["params"].get("name") == "echo":
            die(server, "segmentation fault, on purpose")
        return False

    server.on("tools/call", called)


@mode
def never_answers(server: FaultServer) -> None:
    """Read everything, answer nothing; exit when standard input ends."""
    server.on("*", lambda message: True)


@mode
def slow_start(server: FaultServer) -> None:
    """Start to read after --seconds."""
    server.before_start = lambda: time.sleep(server.seconds)


@mode
def ignores_sigterm(server: FaultServer) -> None:
    """Ignore SIGTERM and the end of standard input; only SIGKILL helps."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    server.after_end = linger


@mode
def ignores_eof(server: FaultServer) -> None:
    """Ignore the end of standard input; SIGTERM helps."""
    server.after_end = linger


@mode
def grandchild_holds_pipes(server: FaultServer) -> None:
    """Leave a child that holds standard output and error when the leader exits; tool `grandchild` returns its id."""
    child = os.fork()
    if child == 0:
        os.close(0)
        linger()
        os._exit(0)

    def grandchild(call: PeerCall) -> Json:
        return text_result(str(child))

    server.peer.tools["grandchild"] = ({"description": "Its process id", "inputSchema": schema()}, grandchild)


@mode
def closes_stdout_but_lives(server: FaultServer) -> None:
    """Close standard output at the first call; live on, also after the end of standard input."""

    def called(message: Json) -> bool:
        os.close(1)
        linger()
        return True

    server.on("tools/call", called)


@mode
def stderr_flood(server: FaultServer) -> None:
    """Write --size bytes to standard error at the start and at each call."""
    line = b"noise " * 12 + b"\n"

    def flood() -> None:
        write_all(2, line * (server.size // len(line)))

    def called(message: Json) -> bool:
        flood()
        return False

    server.before_start = flood
    server.on("tools/call", called)


@mode
def stdout_flood(server: FaultServer) -> None:
    """Write --size bytes of lines that are no JSON to standard output before each answer to a call."""
    line = b"DEBUG something happened " * 4 + b"\n"

    def called(message: Json) -> bool:
        server.write(line * (server.size // len(line)))
        return False

    server.on("tools/call", called)


@mode
def dies_between_calls(server: FaultServer) -> None:
    """Answer a call, then exit."""

    def called(message: Json) -> bool:
        answer = server.peer.handle(message, server.session, server.send)
        if answer is not None:
            server.send(answer)
        die(server, "out of memory")
        return True

    server.on("tools/call", called)


@mode
def dies_mid_line(server: FaultServer) -> None:
    """Exit after half of the answer to a call."""

    def called(message: Json) -> bool:
        answer = server.peer.handle(message, server.session, server.send)
        data = server.encode(answer or {})
        server.write(data[: len(data) // 2])
        die(server, "disk full")
        return True

    server.on("tools/call", called)


@mode
def killed_mid_call(server: FaultServer) -> None:
    """Die of SIGKILL when a tool is called."""

    def called(message: Json) -> bool:
        os.kill(os.getpid(), signal.SIGKILL)
        return True

    server.on("tools/call", called)


@mode
def closes_stdin(server: FaultServer) -> None:
    """Answer a call, then close standard input and live on."""

    def called(message: Json) -> bool:
        answer = server.peer.handle(message, server.session, server.send)
        os.close(0)
        if answer is not None:
            server.send(answer)
        linger()
        return True

    server.on("tools/call", called)


@mode
def stops_reading(server: FaultServer) -> None:
    """Read nothing more after a call, which is not answered; live on."""

    def called(message: Json) -> bool:
        linger()
        return True

    server.on("tools/call", called)


@mode
def stopped_mid_call(server: FaultServer) -> None:
    """Stop the process (SIGSTOP) when a tool is called; only SIGKILL helps."""

    def called(message: Json) -> bool:
        os.kill(os.getpid(), signal.SIGSTOP)
        return True

    server.on("tools/call", called)


@mode
def slow_exit(server: FaultServer) -> None:
    """Exit --seconds after the end of standard input."""
    server.after_end = lambda: time.sleep(server.seconds)


@mode
def exits_with_code(server: FaultServer) -> None:
    """Exit with --code and a last word when standard input ends."""
    server.after_end = lambda: die(server, "could not save the state")


@mode
def grandchild_outlives(server: FaultServer) -> None:
    """Exit in an orderly way and leave a child that ignores SIGTERM and holds no pipe."""

    def leave_a_child() -> None:
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            for fd in (0, 1, 2):
                os.close(fd)
            linger()
            os._exit(0)

    server.before_start = leave_a_child


@mode
def closes_stderr(server: FaultServer) -> None:
    """Close standard error at the start."""
    server.before_start = lambda: os.close(2)
