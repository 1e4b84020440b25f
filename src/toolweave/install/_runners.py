"""Programs that fetch a package and run it: their command lines, and the words that a publisher may add to them.

A runner's own options could fetch something else than the package, or from elsewhere: those that are not known to do
neither are refused, as is a word that would stand in the package's place.
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
        flags: Their options without a value that a publisher may give.
        options: Those with a value.
        opening: Those of both that give the server more of this machine, which a person is warned of.
        line: Makes the words after the program: of the package, the runtime's words, the server's, and the variables.
    """

    programs: tuple[str, ...]
    flags: frozenset[str]
    options: frozenset[str] = frozenset()
    opening: frozenset[str] = frozenset()
    line: Callable[[str, list[LaunchWord], list[LaunchWord], list[str]], list[LaunchWord]]

    def remarks(self, words: Sequence[LaunchWord]) -> Iterator[str]:
        """Yield the remarks about the runtime's words, for a person."""
        for at, word in enumerate(words):
            flag = rendered(word, _named)
            if flag in self.opening:
                if flag in self.options:
                    value = f" {rendered(words[at + 1], _named)}"
                else:
                    value = ""
                yield f"the server gets more of this machine by {shown(flag + value)}"


def runtime_arguments(runner: PackageRunner, sources: Sequence[ServerInput], env: Sequence[str]) -> list[ServerInput]:
    """Return the arguments that a publisher gives a runner, flags as such.

    Raises:
        RegistryError: One of them is not taken.
    """
    found: list[ServerInput] = []
    for number, source in enumerate(sources, 1):
        if source.type == "positional":
            name = source.value or ""
        else:
            name = source.name
        if name in runner.flags and (source.type == "positional" or source.value in (None, "", "true")):
            found.append(source.replace(type="named", name=name, value=""))
        elif source.type == "named" and name in runner.options and source.value != "":
            _check_variable(name, source, env)
            found.append(source)
        elif not (source.type == "positional" and number == 1 and name == "run" and "docker" in runner.programs):
            raise RegistryError(
                f"its runtime argument {shown(name) or number!r} is no option of {runner.programs[0]} that a publisher "
                "may give: it could change what is run, or from where"
            )
    return found


def variables(sources: Sequence[ServerInput]) -> Sequence[ServerInput]:
    """Return the variables that a publisher gives a runner.

    Raises:
        RegistryError: One that steers the runner has a value which is not the user's.
    """
    for source in sources:
        if _STEERING.fullmatch(source.name) and (source.value is not None or source.default is not None):
            raise RegistryError(
                f"it sets the variable {shown(source.name)!r}, which says what a runner fetches or what else is run"
            )
    return sources


def _check_variable(flag: str, source: ServerInput, env: Sequence[str]) -> None:
    """Refuse `-e NAME`, by which a container gets a variable of the user's, unless the server asks for that one."""
    if flag in ("-e", "--env") and source.value is not None and "=" not in source.value and source.value not in env:
        raise RegistryError(f"it would take the variable {shown(source.value)!r} of yours into the container")


def _named(secret: SecretWord) -> str:
    return f"<{secret.name}>"


def _npx(what: str, before: list[LaunchWord], after: list[LaunchWord], env: list[str]) -> list[LaunchWord]:
    asks = not {("-y",), ("--yes",)} & set(before)  # it would ask on the pipe of the protocol
    return [*([("-y",)] if asks else []), *before, (what,), *after]


def _plain(what: str, before: list[LaunchWord], after: list[LaunchWord], env: list[str]) -> list[LaunchWord]:
    return [*before, (what,), *after]


def _container(what: str, before: list[LaunchWord], after: list[LaunchWord], env: list[str]) -> list[LaunchWord]:
    given = {value for flag, value in pairwise(before) if flag in (("-e",), ("--env",))}
    # the variable by its name alone: its value is in the environment of the runner, not in a command line
    passed = [word for name in env if (name,) not in given for word in (("-e",), (name,))]
    usual = [(flag,) for flag in ("-i", "--rm") if (flag,) not in before]
    return [("run",), *usual, *passed, *before, (what,), *after]


def _dnx(what: str, before: list[LaunchWord], after: list[LaunchWord], env: list[str]) -> list[LaunchWord]:
    asks = [] if ("--yes",) in before else [("--yes",)]
    return [*before, (what,), *asks, *([("--",), *after] if after else [])]


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
