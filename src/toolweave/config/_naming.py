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

_WRAPPERS: dict[str, int] = {
    "env": 0,
    "exec": 0,
    "ionice": 0,
    "nice": 0,
    "nohup": 0,
    "setsid": 0,
    "stdbuf": 0,
    "sudo": 0,
    "time": 0,
    "timeout": 1,
}
"""Programs that run the command behind their options, with the number of their own arguments before it."""

_WRAPPER_TAKES_VALUE: dict[str, frozenset[str]] = {
    "env": frozenset({"-u", "--unset", "-C", "--chdir", "-a", "--argv0", "-S", "--split-string"}),
    "exec": frozenset({"-a"}),
    "ionice": frozenset({"-c", "--class", "-n", "--classdata"}),
    "nice": frozenset({"-n", "--adjustment"}),
    "stdbuf": frozenset({"-i", "--input", "-o", "--output", "-e", "--error"}),
    "sudo": frozenset({"-u", "--user", "-g", "--group", "-C", "-h", "-p", "-D", "-R", "-T"}),
    "time": frozenset({"-f", "--format", "-o", "--output"}),
    "timeout": frozenset({"-s", "--signal", "-k", "--kill-after"}),
}
"""Their options whose value is the next argument."""

_HOSTS: dict[str, str] = {"fastmcp": "run", "mcp": "run", "toolweave": "serve"}
"""Programs that serve a file that is named behind a subcommand."""

_MODULES_OF_A_PACKAGE = frozenset({"__main__", "app", "cli", "main", "mcp", "mcp_server", "run", "server", "stdio"})
"""Names of modules that many packages have, so that the name of the package distinguishes servers."""

_FILES_OF_A_FOLDER = frozenset({"__main__", "index"})
_FOLDERS_OF_BUILDS = frozenset({"", ".", "..", "/", "bin", "build", "dist", "lib", "out", "src"})

_INTERPRETERS = ("node", "bun", "deno", "tsx", "ruby", "java", "dotnet")
_CONTAINERS = ("docker", "podman", "nerdctl")
_SHELLS = ("cmd", "sh", "bash", "zsh")
_FETCHERS = ("npx", "bunx", "pnpx", "uvx")
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
_SCRIPTS = (".py", ".pyz")
_VERSION = r"(?<=.)(@[^/@]*|[=<>~!]=?.*|\[[^\]]*\].*)$"
_ASKED = r"(@?[^@=<>~!\[]+)(?:\[[^\]]*\])?(?:@|={1,3})([^@=]+)"
_SUFFIX = r"(?i)\.(py|pyz|js|mjs|cjs|ts|mts|jar|rb|sh|exe|cmd|bat)$"


def program_name(command: str) -> str:
    """Return the program's base name without the suffix that Windows adds."""
    if "\\" in command:
        base = PureWindowsPath(command).name
    else:
        base = PurePosixPath(command).name
    return re.sub(r"\.(exe|cmd|bat|ps1)$", "", base, flags=re.IGNORECASE)


def inner_command(command: str, args: Sequence[str]) -> tuple[str, list[str]]:
    """Return the command that a command line runs behind `env`, `nice`, `timeout` and their like, or itself.

    `env A=B uvx x` is (`uvx`, [`x`]), `cmd /c npx x` is (`npx`, [`x`]). The script of a shell is not read.
    """
    # Ends since every turn takes the wrapper itself off the list, even if it has no options.
    left = list(args)
    while True:
        program = program_name(command)
        start = _inner_start(program, left)
        if start is None or start >= len(left):
            return command, left
        command = left[start]
        left = left[start + 1 :]


def _inner_start(program: str, args: Sequence[str]) -> int | None:
    """Return the place among the arguments where another command begins; None for a program that runs none."""
    if program == "cmd":
        is_plain = len(args) > 1 and " " not in args[1]  # else it is a command line in one word
        return 1 if is_plain and args[0].lower() == "/c" else None
    if program not in _WRAPPERS:
        return None
    takes_value = _WRAPPER_TAKES_VALUE.get(program, frozenset())
    own = _WRAPPERS[program]
    place = 0
    while place < len(args):
        word = args[place]
        if word.startswith("-"):
            place += 2 if word in takes_value else 1
        elif "=" in word and program in ("env", "sudo"):
            place += 1
        elif own:
            own -= 1
            place += 1
        else:
            break
    return place


def installs_first(command: str, args: Sequence[str]) -> bool:
    """Return whether the command may download the server before it can answer."""
    command, args = inner_command(command, args)
    program = program_name(command)
    if program in _SHELLS:
        return any(map(_begins_with_runner, args))
    return _runner_words(program, args) is not None


def name_from_url(url: str) -> str:
    """Name a server after its URL's host."""
    return urlsplit(url).hostname or "server"


def name_from_command(command: str, args: Sequence[str]) -> str:
    """Name a server after the package, script or image its command runs.

    `npx -y @scope/server-everything` is `server-everything`, `uvx mcp-server-time` is
    `mcp-server-time`, `python server.py` is `server`, `python -m weather.server` is `weather`, a plain program is
    itself.
    """
    command, args = inner_command(command, args)
    program = program_name(command)
    module = _module(program, args)
    if module:
        return _module_name(module)
    subject = _subject(program, args)
    if subject is None:
        return re.sub(_SUFFIX, "", program) or "server"
    parts = _path_parts(subject)
    base = parts[-1] if parts else subject
    if program in _CONTAINERS:
        base = base.partition(":")[0]
    name = re.sub(_SUFFIX, "", re.sub(_VERSION, "", base)) or "server"
    if name not in _FILES_OF_A_FOLDER:
        return name
    for folder in reversed(parts[:-1]):
        if folder not in _FOLDERS_OF_BUILDS:
            return folder
    return name


def _path_parts(path: str) -> tuple[str, ...]:
    if "\\" in path:
        return PureWindowsPath(path).parts
    return PurePosixPath(path).parts


def _module_name(module: str) -> str:
    """Return the part of a module's name that distinguishes servers: `numbers` of `demo.numbers`, `a` of `a.server`."""
    parts = list(filter(None, module.split(".")))
    for part in reversed(parts):
        if part not in _MODULES_OF_A_PACKAGE:
            return part
    return parts[0] if parts else "server"


def package_of(command: str, args: Sequence[str]) -> tuple[str, str]:
    """Return the package, script or image that a command runs and the version it asks for; `""` for an unnamed one.

    `npx -y @scope/a@1.2.0` is (`@scope/a`, `1.2.0`), `uvx mcp-server-time==1.2` is (`mcp-server-time`, `1.2`). Of a
    path it is the file alone, so that the same project elsewhere has the same name.
    """
    command, args = inner_command(command, args)
    program = program_name(command)
    module = _module(program, args)
    if module:
        subject = module.split(".")[0]
    else:
        subject = _subject(program, args)
    if subject is None:
        return "", ""
    if program in _CONTAINERS:
        image, colon, tag = subject.rpartition(":")
        # A colon before a slash belongs to the port of a registry.
        if colon and "/" not in tag:
            return (image, tag)
        return (subject, "")
    found = re.fullmatch(_ASKED, subject)
    if found is not None:
        return found[1], found[2]
    if _looks_like_path(subject):
        return PureWindowsPath(subject).name, ""
    return subject, ""


def _looks_like_path(text: str) -> bool:
    if "\\" in text or text.startswith((".", "/", "~")):
        return True
    return re.search(_SUFFIX, text) is not None


def _begins_with_runner(text: str) -> bool:
    """Return whether the first word of a shell's script fetches packages; the rest of it is not read."""
    words = text.split()
    return len(words) > 0 and program_name(words[0]) in _FETCHERS


def _runner_words(program: str, args: Sequence[str]) -> list[str] | None:
    """Return the arguments of a runner of packages behind its subcommand, None for any other command line.

    Options may stand before the subcommand, as in `uv --directory /srv run server.py`.
    """
    # The subcommand is compared with the words that are not options, and then looked for in all arguments: the rest has
    # to keep the options of the command that is run.
    words = list(_positional(program, args))
    for subcommand in _RUNNERS.get(program, ()):
        if tuple(words[: len(subcommand)]) != subcommand:
            continue
        rest = list(args)
        for word in subcommand:
            rest = rest[rest.index(word) + 1 :]
        return rest
    return None


def _subject(program: str, args: Sequence[str]) -> str | None:
    """Find the argument that names the program to run, or None when the command itself is the server."""
    if _is_python(program):
        position = _script_position(args)
        return None if position is None else args[position]
    runner_args = _runner_words(program, args)
    if runner_args is not None:
        inner = _inner_of_runner(program, runner_args)
        if inner is None:
            return None
        return _subject(*inner) or inner[0]
    if program in _HOSTS and tuple(args[:1]) == (_HOSTS[program],):
        target = "".join(args[1:2])
        return None if target.startswith("-") else target.partition(":")[0] or None
    if program in _INTERPRETERS:
        return next(_positional(program, args), None)
    return None


def _script_position(args: Sequence[str]) -> int | None:
    """Return the position of the script among the arguments of Python; None for a module or a program in a word."""
    for position, arg in enumerate(args):
        if arg.endswith(_SCRIPTS):
            return position
    return None


def _inner_of_runner(program: str, args: Sequence[str]) -> tuple[str, Sequence[str]] | None:
    """Return the program and the arguments that a runner of packages starts; None if it names no program."""
    name = next(_positional(program, args), None)
    if name is None:
        return None
    if program in _CONTAINERS:  # the image distinguishes servers, not the program in it
        return name, ()
    return name, args[list(args).index(name) + 1 :]


def _module(program: str, args: Sequence[str]) -> str:
    """Return the Python module that a command runs by `-m`, `""` if it runs none."""
    if _is_python(program):
        # behind a script it is the script's option
        return _value_after("-m", args[: _script_position(args)])
    runner_args = _runner_words(program, args) if program == "uv" else None
    if runner_args is None:
        return ""
    inner = _inner_of_runner(program, runner_args)
    if inner is None:
        before = runner_args
    elif _is_python(inner[0]):
        return _module(*inner)
    else:
        before = runner_args[: runner_args.index(inner[0])]
    return _value_after("-m", before) or _value_after("--module", before)


def _value_after(option: str, args: Sequence[str]) -> str:
    if option in args[:-1]:
        return args[list(args).index(option) + 1]
    return ""


def _is_python(program: str) -> bool:
    return re.fullmatch(r"python[\d.]*w?|py", program) is not None


def _positional(program: str, args: Sequence[str]) -> Iterator[str]:
    # `--option=value` is one argument. An unknown option is taken to have no value: then the name may be its value,
    # which is a worse name and nothing else.
    takes_value = _TAKES_VALUE | set(_TAKES_VALUE_TOO.get(program, ()))
    skip = False
    for arg in args:
        if skip:
            skip = False
        elif arg.startswith("-"):
            skip = arg in takes_value
        else:
            yield arg
