"""Server names derived from command lines and URLs, and whether a command may install its server first.

Pure text processing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath, PureWindowsPath
from urllib.parse import urlsplit

_RUNNERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "npx": ((),),
    "bunx": ((),),
    "pnpx": ((),),
    "uvx": ((),),
    "npm": (("exec",), ("x",)),
    "pnpm": (("dlx",), ("exec",)),
    "yarn": (("dlx",),),
    "bun": (("x",),),
    "pipx": (("run",),),
    "uv": (("tool", "run"), ("run",)),
    "deno": (("run",),),
    "docker": (("run",), ("container", "run")),
    "podman": (("run",), ("container", "run")),
    "nerdctl": (("run",),),
}
"""Programs that fetch and run packages, with the subcommands that do so."""

_INTERPRETERS = ("node", "bun", "deno", "tsx", "ruby", "java", "dotnet")
_CONTAINERS = ("docker", "podman", "nerdctl")
_TAKES_VALUE = frozenset(
    {
        *(
            "-p",
            "--package",
            "--call",
            "--from",
            "--with",
            "--with-editable",
            "--with-requirements",
            "--python",
            "--spec",
        ),
        *("--index", "--index-url", "--extra-index-url", "--default-index", "--directory", "--project", "--env-file"),
        *("--registry", "--group", "--extra", "--cache", "--cache-dir", "--prefix", "-C", "--cwd"),
        *(
            "-e",
            "--env",
            "-v",
            "--volume",
            "--mount",
            "--name",
            "--network",
            "--net",
            "-w",
            "--workdir",
            "-u",
            "--user",
        ),
        *("--platform", "--entrypoint", "--add-host", "-l", "--label", "-h", "--hostname", "-m", "--memory", "--cpus"),
        *("--gpus", "--pull"),
    }
)
"""Options of the runners whose value is the next argument."""

_TAKES_VALUE_TOO = {"uvx": ("-c",), "node": ("-r", "--require", "--import", "--loader")}
_VERSION = r"(?<=.)(@[^/@]*|[=<>~!]=?.*|\[[^\]]*\].*)$"
_ASKED = r"(@?[^@=<>~!\[]+)(?:\[[^\]]*\])?(?:@|={1,3})([^@=]+)"
_SUFFIX = r"(?i)\.(py|pyz|js|mjs|cjs|ts|mts|jar|rb|sh|exe|cmd|bat)$"


def program_name(command: str) -> str:
    """Return the program's base name without the suffix that Windows adds."""
    base = PureWindowsPath(command).name if "\\" in command else PurePosixPath(command).name
    return re.sub(r"\.(exe|cmd|bat|ps1)$", "", base, flags=re.IGNORECASE)


def installs_first(command: str, args: Sequence[str]) -> bool:
    """Return whether the command may download the server before it can answer."""
    program = program_name(command)
    if program in ("cmd", "sh", "bash", "zsh"):
        return any(_fetches(word) for arg in args for word in arg.split()[:1])
    words = [arg for arg in args if not arg.startswith("-")]
    return any(tuple(words[: len(sub)]) == sub for sub in _RUNNERS.get(program, ()))


def name_from_url(url: str) -> str:
    """Name a server after its URL's host."""
    return urlsplit(url).hostname or "server"


def name_from_command(command: str, args: Sequence[str]) -> str:
    """Name a server after the package, script or image its command runs.

    `npx -y @scope/server-everything` is `server-everything`, `uvx mcp-server-time` is
    `mcp-server-time`, `python server.py` is `server`, a plain program is itself.
    """
    program = program_name(command)
    subject = _subject(program, list(args))
    if subject is None:
        return re.sub(_SUFFIX, "", program) or "server"
    base = PureWindowsPath(subject).name if "\\" in subject else PurePosixPath(subject).name
    if program in _CONTAINERS:
        base = base.partition(":")[0]
    return re.sub(_SUFFIX, "", re.sub(_VERSION, "", base)) or "server"


def package_of(command: str, args: Sequence[str]) -> tuple[str, str]:
    """Return the package, script or image that a command runs and the version it asks for; `""` for an unnamed one.

    `npx -y @scope/a@1.2.0` is (`@scope/a`, `1.2.0`), `uvx mcp-server-time==1.2` is (`mcp-server-time`, `1.2`). Of a
    path it is the file alone, so that the same project elsewhere has the same name.
    """
    program = program_name(command)
    subject = _subject(program, list(args))
    if subject is None:
        return "", ""
    if program in _CONTAINERS:
        image, colon, tag = subject.rpartition(":")
        return (image, tag) if colon and "/" not in tag else (subject, "")
    found = re.fullmatch(_ASKED, subject)
    if found is not None:
        return found[1], found[2]
    is_path = "\\" in subject or subject.startswith((".", "/", "~")) or re.search(_SUFFIX, subject)
    return (PureWindowsPath(subject).name if is_path else subject), ""


def _fetches(word: str) -> bool:
    return program_name(word) in ("npx", "bunx", "pnpx", "uvx")


def _subject(program: str, args: list[str]) -> str | None:
    """Find the argument that names the program to run, or None when the command itself is the server."""
    if program == "env":
        return _env_subject(args)
    if re.fullmatch(r"python[\d.]*w?|py", program):
        return _python_subject(args)
    for subcommand in _RUNNERS.get(program, ()):
        if tuple(args[: len(subcommand)]) == subcommand:
            words = list(_positional(program, args[len(subcommand) :]))
            if program == "uv" and words and re.fullmatch(r"python[\d.]*", words[0]):
                return _python_subject(args[args.index(words[0]) + 1 :])
            return words[0] if words else None
    if program in _INTERPRETERS:
        return next(iter(_positional(program, args)), None)
    if program in ("cmd", "sh", "bash") and len(args) > 1 and args[0] in ("/c", "/C") and _fetches(args[1]):
        return _subject(program_name(args[1]), args[2:])
    return None


def _env_subject(args: Sequence[str]) -> str | None:
    """Return the subject of the command that `env` runs, behind its options and variables."""
    left = list(args)
    while left and (left[0].startswith("-") or "=" in left[0]):
        left.pop(0)
    if not left:
        return None
    return _subject(program_name(left[0]), left[1:]) or left[0]


def _python_subject(args: list[str]) -> str | None:
    if "-m" in args[:-1]:
        return args[args.index("-m") + 1].split(".")[0]
    return next((arg for arg in args if arg.endswith((".py", ".pyz"))), None)


def _positional(program: str, args: Sequence[str]) -> Iterator[str]:
    takes_value = _TAKES_VALUE | set(_TAKES_VALUE_TOO.get(program, ()))
    skip = False
    for arg in args:
        if skip:
            skip = False
        elif arg.startswith("-"):
            skip = arg in takes_value
        else:
            yield arg
