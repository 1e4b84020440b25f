"""Programs that fetch a package and run it: their command lines, and the words that a publisher may add to them.

A runner's options could fetch something else than the package, or from elsewhere. Options that are not known to be
harmless are refused, and so is a word that would stand in the package's place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType

from toolweave._value import Value
from toolweave.errors import RegistryError
from toolweave.install._launch import LaunchWord, SecretWord, rendered
from toolweave.install._records import ServerInput, shown

_STEERING = re.compile(
    r"(?i)(UV|PIP|NPM|BUN|YARN|DOCKER|CONTAINER|CONTAINERS|BUILDAH|PODMAN|DOTNET|NUGET|LD|DYLD|GIT|XDG|COREPACK)_.*"
    r"|(NODE_(OPTIONS|PATH|EXTRA_CA_CERTS)|PYTHON(PATH|HOME|STARTUP|USERBASE)|PATH|HOME|USERPROFILE|SHELL|BASH_ENV|ENV"
    r"|TMPDIR|SSL_CERT_(FILE|DIR)|(HTTP|HTTPS|ALL|NO)_PROXY)"
)
"""Variables that change the package that a runner fetches, its registry, or the programs run beside it."""


class PackageRunner(Value, frozen=True, kw_only=True):
    """The programs that run packages of a kind.

    Attributes:
        programs: The programs, the usual one first.
        flags: The options without a value that a publisher may give.
        options: The options with a value that a publisher may give.
        opening: The options among both that give the server more of this machine, of which the user is warned.
        line: Returns the words after the program: of the package, the runtime's words, the server's, and the variables.
    """

    programs: tuple[str, ...]
    flags: frozenset[str]
    options: frozenset[str] = frozenset()
    opening: frozenset[str] = frozenset()
    line: Callable[[str, list[LaunchWord], list[LaunchWord], list[str]], list[LaunchWord]]

    def remarks(self, words: Sequence[LaunchWord]) -> Iterator[str]:
        """Yield readable remarks about the runtime's words."""
        for at, word in enumerate(words):
            flag = rendered(word, _named)
            if flag not in self.opening:
                continue
            value = f" {rendered(words[at + 1], _named)}" if flag in self.options else ""
            yield f"the server gets more of this machine by {shown(flag + value)}"


def runtime_arguments(runner: PackageRunner, sources: Sequence[ServerInput], env: Sequence[str]) -> list[ServerInput]:
    """Return the arguments that a publisher gives a runner, flags as such.

    Raises:
        RegistryError: A publisher may not give one of them.
    """
    # The lists have the allowed options and not the refused ones: a later runner may have options that nobody
    # thought of.
    found: list[ServerInput] = []
    for number, source in enumerate(sources, 1):
        name = _option_name(source)
        if name in runner.flags and _is_flag(source):
            found.append(source.replace(type="named", name=name, value=""))
        elif name in runner.options and _is_option(source):
            _check_variable(name, source, env)
            found.append(source)
        elif number > 1 or not _is_subcommand(runner, source):
            raise RegistryError(
                f"its runtime argument {shown(name) or number!r} is not an option of {runner.programs[0]} that a "
                "publisher may give: it could change the program that is run, or its source"
            )
    return found


def _option_name(source: ServerInput) -> str:
    if source.type == "positional":
        return source.value or ""
    return source.name


def _is_flag(source: ServerInput) -> bool:
    return source.type == "positional" or source.value in (None, "", "true")


def _is_option(source: ServerInput) -> bool:
    return source.type == "named" and source.value != ""


def _is_subcommand(runner: PackageRunner, source: ServerInput) -> bool:
    """Return whether an argument is the `run` of a container's program, which its command line has already."""
    if "docker" not in runner.programs:
        return False
    return source.type == "positional" and source.value == "run"


def variables(sources: Sequence[ServerInput]) -> Sequence[ServerInput]:
    """Return the variables that a publisher gives a runner.

    Raises:
        RegistryError: A variable that steers the runner has a value that is not the user's.
    """
    for source in sources:
        # The user may give such a variable, a publisher may not preset it.
        is_preset = source.value is not None or source.default is not None
        if is_preset and _STEERING.fullmatch(source.name):
            raise RegistryError(
                f"it sets the variable {shown(source.name)!r}, which decides on the packages and programs of a runner"
            )
    return sources


def _check_variable(flag: str, source: ServerInput, env: Sequence[str]) -> None:
    """Refuse `-e NAME`, by which a container gets a variable of the user's, unless the server asks for that one."""
    if flag not in ("-e", "--env") or source.value is None:
        return
    if "=" not in source.value and source.value not in env:
        raise RegistryError(f"it would pass your variable {shown(source.value)!r} to the container")


def _named(secret: SecretWord) -> str:
    return f"<{secret.name}>"


def _npx(what: str, before: list[LaunchWord], after: list[LaunchWord], env: list[str]) -> list[LaunchWord]:
    line: list[LaunchWord] = [*before, (what,), *after]
    if ("-y",) in before or ("--yes",) in before:
        return line
    return [("-y",), *line]  # it would ask on the pipe of the protocol


def _plain(what: str, before: list[LaunchWord], after: list[LaunchWord], env: list[str]) -> list[LaunchWord]:
    return [*before, (what,), *after]


def _container(what: str, before: list[LaunchWord], after: list[LaunchWord], env: list[str]) -> list[LaunchWord]:
    given = {value for flag, value in pairwise(before) if flag in (("-e",), ("--env",))}
    line: list[LaunchWord] = [("run",)]
    # The protocol needs standard input to stay open. Each start would leave a container behind.
    line += ((flag,) for flag in ("-i", "--rm") if (flag,) not in before)
    for name in env:
        if (name,) not in given:
            # the variable by its name alone: its value is in the environment of the runner, not in a command line
            line += (("-e",), (name,))
    return [*line, *before, (what,), *after]


def _dnx(what: str, before: list[LaunchWord], after: list[LaunchWord], env: list[str]) -> list[LaunchWord]:
    line: list[LaunchWord] = [*before, (what,)]
    if ("--yes",) not in before:
        line.append(("--yes",))
    if after:
        # Otherwise the runner would read the server's words as its own options.
        line += (("--",), *after)
    return line


_OPENING = (
    *("--privileged", "-v", "--volume", "--mount", "--device", "--gpus", "--network", "--net", "-p", "--publish"),
    *("--cap-add", "--pid", "--ipc", "--security-opt", "--userns", "--uts", "--cgroupns", "--group-add"),
)
_CONTAINERS = PackageRunner(
    programs=("docker", "podman"),
    flags=frozenset(("-i", "--interactive", "--rm", "--init", "--read-only", "--privileged", "--no-healthcheck")),
    options=frozenset(
        {
            *("-e", "--env", "-w", "--workdir", "-u", "--user", "-h", "--hostname", "--name", "-l", "--label"),
            *("-m", "--memory", "--cpus", "--pids-limit", "--shm-size", "--ulimit", "--tmpfs", "--cap-drop"),
            *("--platform", "--pull", "--add-host", "--dns", "--stop-timeout", "--log-driver"),
            *(option for option in _OPENING if option != "--privileged"),
        }
    ),
    opening=frozenset(_OPENING),
    line=_container,
)
RUNNERS: Mapping[tuple[str, str], PackageRunner] = MappingProxyType(
    {
        ("npm", "npx"): PackageRunner(
            programs=("npx",),
            flags=frozenset(("-y", "--yes", "-q", "--quiet", "--silent", "--prefer-offline", "--ignore-scripts")),
            options=frozenset(("--loglevel",)),
            line=_npx,
        ),
        ("npm", "bunx"): PackageRunner(programs=("bunx",), flags=frozenset(("--bun", "--silent")), line=_plain),
        ("pypi", "uvx"): PackageRunner(
            programs=("uvx",),
            flags=frozenset(("-q", "--quiet", "--isolated", "--no-progress", "--native-tls", "--no-config")),
            options=frozenset(("-p", "--python", "--prerelease", "--exclude-newer")),
            line=_plain,
        ),
        ("oci", "docker"): _CONTAINERS,
        ("oci", "podman"): _CONTAINERS,
        ("nuget", "dnx"): PackageRunner(
            programs=("dnx",),
            flags=frozenset(("-y", "--yes", "--prerelease", "--no-http-cache")),
            options=frozenset(("--verbosity",)),
            line=_dnx,
        ),
    }
)
"""The runners by kind of package and program, the usual one of each kind first; no other is started."""
