"""The confinement of a server's process: a command line that sets limits and enters a sandbox, then becomes the server.

Nothing runs in a fork of this process (`preexec_fn` is slow and unsafe with threads), and nothing is limited from
outside after the start, when the server may have started others already: a few lines of our own interpreter set the
limits on themselves and then replace themselves by the rest of the command line, so that the process id and group stay.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from toolweave._files import exists
from toolweave._text import printable
from toolweave.config import ResourceLimits, Sandbox
from toolweave.errors import ConnectError

_PROBE_SECONDS = 10.0
_TEMPORARY = "/tmp"  # noqa: S108 - the one inside, its own
_NAMESPACES = (
    *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
    *("--unshare-user-try", "--unshare-pid", "--unshare-ipc", "--unshare-uts"),
)
_LIMITED = """
import os, resource, sys
for word in sys.argv[1].split(","):
    name, value = word.split("=")
    which, value = getattr(resource, name), int(value)
    hard = resource.getrlimit(which)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    grace = 1 if name == "RLIMIT_CPU" and (hard == resource.RLIM_INFINITY or value < hard) else 0
    resource.setrlimit(which, (value, value + grace))
try:
    os.execv(sys.argv[2], sys.argv[2:])
except OSError as error:
    sys.exit(f"{sys.argv[2]}: {error.strerror}")
"""
_INSTALL = "install bubblewrap (the package is called so in Debian, Fedora and Arch), or leave out 'sandbox'"
_REFUSED = (
    "the system does not let it make a namespace: allow user namespaces (kernel.unprivileged_userns_clone, "
    "user.max_user_namespaces, AppArmor's restriction of them, or the seccomp profile of the container), or leave out "
    "'sandbox'"
)


def confined(
    argv: Sequence[str],
    *,
    limits: ResourceLimits | None,
    sandbox: Sandbox | None,
    env: Mapping[str, str],
    cwd: str | None,
    server: str,
) -> tuple[str, ...]:
    """Return the command line that runs `argv` within limits and a sandbox; `argv` itself without these.

    Blocks while the sandbox is tried, once in the life of this process.

    Raises:
        ConnectError: The system has no such limits or no such sandbox; nothing is started without them.
    """
    words = tuple(argv)
    if sandbox is not None:
        words = (*_bubblewrap(sandbox, env=env, cwd=cwd, server=server), *words)
    wanted = _resource_limits(limits)
    if wanted:
        if os.name != "posix":
            raise ConnectError("'limits' are not there on this system; leave them out", server=server)
        words = (sys.executable, "-I", "-S", "-c", _LIMITED, ",".join(wanted), *words)
    return words


def _resource_limits(limits: ResourceLimits | None) -> list[str]:
    if limits is None:
        return []
    names = {
        "RLIMIT_DATA" if sys.platform == "linux" else "RLIMIT_AS": limits.memory_bytes,
        "RLIMIT_CPU": limits.cpu_seconds,
        "RLIMIT_NOFILE": limits.open_files,
        "RLIMIT_NPROC": limits.processes,
    }
    return [f"{name}={value}" for name, value in names.items() if value is not None]


def _bubblewrap(sandbox: Sandbox, *, env: Mapping[str, str], cwd: str | None, server: str) -> tuple[str, ...]:
    """Return the words of `bwrap` up to the command that it runs."""
    program = shutil.which("bwrap")
    if program is None:
        raise ConnectError(f"its sandbox needs the program 'bwrap', which is not there; {_INSTALL}", server=server)
    refused = _tried(program, sandbox.network)
    if refused:
        raise ConnectError(f"its sandbox does not work here: {refused}", server=server)
    folder = Path(cwd or Path.cwd()).absolute()
    # The order matters, since later words win: an empty folder for temporary files, then the working directory, which
    # that would hide, then the writable places within either.
    words = [program, *_NAMESPACES, *_network(sandbox.network), "--tmpfs", _TEMPORARY]
    if Path(_TEMPORARY) in folder.parents:
        words += ["--ro-bind", str(folder), str(folder)]
    for name in {"TMPDIR", "TMP", "TEMP"} & env.keys():
        words += ["--setenv", name, _TEMPORARY]
    for path in sandbox.writable:
        # The home of the server, which its `env` may set, and not ours as `expanduser` gives it.
        if path.split("/", 1)[0] == "~":
            path = env.get("HOME", "") + path[1:]
        place = str(folder / path)
        if not exists(Path(place)):
            raise ConnectError(
                f"'sandbox.writable' names {place!r}, which does not exist; make it first", server=server
            )
        words += ["--bind", place, place]
    return (*words, "--die-with-parent", "--chdir", str(folder), "--")


def _network(allowed: bool) -> tuple[str, ...]:
    if allowed:
        return ()
    return ("--unshare-net",)


@cache
def _tried(program: str, network: bool) -> str:
    """Return the reason why the sandbox cannot be made on this machine, or `""`."""
    words = [program, *_NAMESPACES, *_network(network), "--", "/bin/sh", "-c", "exit 0"]
    try:
        done = subprocess.run(words, capture_output=True, timeout=_PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{program} does not run: {error}"
    if done.returncode == 0:
        return ""
    reason = printable(done.stderr.decode("utf-8", "replace").strip().partition("\n")[0])
    if not reason:
        reason = f"exit code {done.returncode}"
    return f"{reason}; {_REFUSED}"
