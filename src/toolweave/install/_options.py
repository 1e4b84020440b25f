"""The ways to use a published server: its remotes, and its packages as the command lines of their runners.

Nothing a publisher says becomes part of a command line unchecked: names and versions are those of their registries,
runners are known ones, and an option cannot pass for a name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from urllib.parse import quote, urlsplit

from toolweave._value import Value
from toolweave.config import Secret
from toolweave.errors import RegistryError
from toolweave.install._launch import LaunchWord, SecretWord, ServerLaunch, joined, rendered
from toolweave.install._questions import LaunchAnswers, LaunchQuestion, merged
from toolweave.install._records import PublishedServer, RemoteEndpoint, ServerInput, ServerPackage, shown
from toolweave.install._runners import RUNNERS, PackageRunner, runtime_arguments, variables
from toolweave.install._slots import ArgumentSlot, ValueSlot
from toolweave.oauth._fetch import NotFetched, checked_url

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_VERSION = re.compile(r"[vV]?\d[\w.+!-]{0,199}", re.ASCII)
_NPM_VERSION = re.compile(r"\d+\.\d+\.\d+([-+][\w.+-]{0,199})?", re.ASCII)  # a shorter one is a range there
_NO_RANGE = re.compile(r"\.[xX*](\.|$)")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_IDENTIFIERS = {
    "npm": re.compile(r"(?:@[a-z0-9~][\w.~-]{0,100}/)?[A-Za-z0-9~][\w.~-]{0,200}", re.ASCII),
    "pypi": re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,198}[A-Za-z0-9])?"),
    "nuget": re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}"),
    "oci": re.compile(
        r"[A-Za-z0-9][\w.-]*(?::\d+(?=/))?(?:/[a-z0-9][a-z0-9._-]*)*"
        r"(?P<tag>:[A-Za-z0-9_][\w.-]{0,127})?(?P<digest>@sha256:[0-9a-f]{64})?",
        re.ASCII,
    ),
}
_HOMES = {
    "npm": ("https://registry.npmjs.org",),
    "pypi": ("https://pypi.org", "https://pypi.org/simple"),
    "nuget": ("https://api.nuget.org", "https://api.nuget.org/v3/index.json"),
}
"""The registries of these runners; a package of another registry may be of another author."""
_DOCKER_HUB = ("docker.io", "index.docker.io", "registry-1.docker.io", "hub.docker.com", "registry.hub.docker.com")
_HOST = re.compile(r"[A-Za-z0-9.-]+(:\d+)?")
_MOST_INPUTS = 500


class BundleLocation(Value, frozen=True, kw_only=True):
    """The bundle of a package: its URL and the SHA-256 it has to have."""

    url: str
    sha256: str


class InstallOption(Value, frozen=True, kw_only=True):
    """A way to use a server.

    Attributes:
        kind: `http`, `sse`, `npm`, `pypi`, `oci`, `nuget` or `mcpb`.
        what: The package with its version, or the URL.
        questions: The values it needs; those of a bundle are in the bundle.
        bundle: Where the bundle is that has to be read first; None for every other kind.
        build: Makes the server out of the answers.
    """

    kind: str
    what: str
    questions: tuple[LaunchQuestion, ...] = ()
    bundle: BundleLocation | None = None
    build: Callable[[LaunchAnswers], ServerLaunch]


def install_options(server: PublishedServer) -> tuple[list[InstallOption], list[str]]:
    """Return the ways to use a server, its remotes first, and the reasons why others cannot be used."""
    options: list[InstallOption] = []
    refused: list[str] = []
    for remote in server.remotes:
        _collect(partial(_remote, remote), shown(remote.type), options, refused)
    for package in server.packages:
        _collect(partial(_package, package), shown(package.registry_type), options, refused)
    return options, refused


def _collect(make: Callable[[], InstallOption], kind: str, options: list[InstallOption], refused: list[str]) -> None:
    try:
        options.append(make())
    except RegistryError as exc:
        refused.append(f"{kind}: {exc.message}")


# remotes


def _remote(remote: RemoteEndpoint) -> InstallOption:
    kind = {"streamable-http": "http", "sse": "sse"}.get(remote.type)
    if kind is None:
        raise RegistryError("its transport is not known")
    address = ValueSlot(name="url", source=ServerInput(value=remote.url, variables=remote.variables, is_required=True))
    headers = _named(remote.headers, _HEADER_NAME, "a header")
    _checked_address(_example(remote))

    def build(answers: LaunchAnswers) -> ServerLaunch:
        url = _address(remote, answers)
        made = _values(headers, answers)
        for name, word in made.items():
            if re.search(r"[\r\n]", rendered(word, lambda secret: secret.value.reveal() if secret.value else "")):
                raise RegistryError(f"the header {shown(name)!r} would have a line break")
        return ServerLaunch(transport="sse" if kind == "sse" else "http", url=url, headers=made)

    questions = merged(one for slot in (address, *headers.values()) for one in slot.questions())
    return InstallOption(kind=kind, what=remote.url, questions=questions, build=build)


def _example(remote: RemoteEndpoint) -> str:
    """Return the URL with an example value for each variable."""
    text = "".join("x" if name else text for text, name in _pieces(remote))
    begins = next((name for text, name in _pieces(remote) if text or name), None)
    if begins:
        return f"https://{text}"
    return text


def _address(remote: RemoteEndpoint, answers: LaunchAnswers) -> LaunchWord:
    """Return the URL with its variables: escaped, but for one that the URL begins with.

    Raises:
        RegistryError: It is no URL that is connected to; a host cannot come out of a path, or the other way round.
    """
    parts: list[str | SecretWord] = []
    before = ""
    for text, name in _pieces(remote):
        if name is None:
            parts.append(text)
            before += text
            continue
        fixed = remote.variables[name].value
        if fixed is None:
            given = next(iter(answers[name]), "")
        else:
            given = fixed
        part = _escaped(given, name, before)
        parts.append(part)
        before += part if isinstance(part, str) else "x"
    _checked_address(before)
    return joined(parts)


def _pieces(remote: RemoteEndpoint) -> Iterator[tuple[str, str | None]]:
    start = 0
    for match in re.finditer(r"\{([^{}]*)\}", remote.url):
        if match[1] in remote.variables:
            yield remote.url[start : match.start()], None
            yield "", match[1]
            start = match.end()
    yield remote.url[start:], None


def _escaped(part: str | SecretWord, name: str, before: str) -> str | SecretWord:
    """Return a variable's value, escaped for a URL after the text `before`."""
    if isinstance(part, str):
        text = part
    elif part.value:
        text = part.value.reveal()
    else:
        text = ""
    if not before:
        return part
    if before.count("/") < 3:
        if text and not re.fullmatch(r"[A-Za-z0-9.-]+", text):
            raise RegistryError(f"{shown(name)!r} is a part of a host name: letters, digits, dots and dashes are taken")
        return part
    escaped = quote(text, safe="/:@,~")
    if isinstance(part, str) or part.value is None:
        if isinstance(part, str):
            return escaped
        return part
    if escaped == text:
        return part
    return part.replace(name=f"{part.name}.url", value=Secret(escaped))


def _checked_address(url: str) -> None:
    try:
        checked_url(url, "its URL")
    except NotFetched as exc:
        raise RegistryError(str(exc)) from None


# packages


def _package(package: ServerPackage) -> InstallOption:
    if package.registry_type == "mcpb":
        return _bundle(package)
    programs = [program for kind, program in RUNNERS if kind == package.registry_type]
    if not programs:
        raise RegistryError("packages of this kind are not known")
    if package.transport.type != "stdio":
        raise RegistryError(
            f"the package {shown(package.identifier)!r} serves {shown(package.transport.type)} when somebody "
            "has started it, and only servers over stdio are started for you"
        )
    program = package.runtime_hint or programs[0]
    if program not in programs:
        raise RegistryError(f"its runtime hint is {shown(program)!r}; it is run by {' or '.join(programs)}")
    return _run_by(program, RUNNERS[package.registry_type, program], package, _identifier(package))


def _run_by(program: str, runner: PackageRunner, package: ServerPackage, what: str) -> InstallOption:
    env = _named(variables(package.environment_variables), _ENV_NAME, "a variable")
    before = _arguments(runtime_arguments(runner, package.runtime_arguments, list(env)))
    after = _arguments(package.package_arguments)

    def build(answers: LaunchAnswers) -> ServerLaunch:
        made = _values(env, answers)
        given = _words(before, answers)
        words = runner.line(what, given, _words(after, answers), list(made))
        notes = (*_notes(package, program, what), *runner.remarks(given))
        return ServerLaunch(command=program, args=tuple(words), env=made, notes=notes)

    slots = (*(one.place for one in before), *env.values(), *(one.place for one in after))
    questions = merged(one for slot in slots for one in slot.questions())
    return InstallOption(kind=package.registry_type, what=what, questions=questions, build=build)


def _bundle(package: ServerPackage) -> InstallOption:
    if not _SHA256.fullmatch(package.file_sha256):
        raise RegistryError(f"the bundle {shown(package.identifier)!r} has no SHA-256, so it is not downloaded")
    _checked_address(package.identifier)

    def build(answers: LaunchAnswers) -> ServerLaunch:
        raise RegistryError("a bundle is downloaded and read first: `bundle_option`")

    location = BundleLocation(url=package.identifier, sha256=package.file_sha256)
    return InstallOption(kind="mcpb", what=package.identifier, bundle=location, build=build)


def _identifier(package: ServerPackage) -> str:
    """Return the package as its runner takes it, with its version.

    Raises:
        RegistryError: It is none of this kind, comes from another registry, or its version is not an exact one.
    """
    kind = package.registry_type
    name = package.identifier
    version = package.version
    if len(name) <= 500:
        match = _IDENTIFIERS[kind].fullmatch(name)
    else:
        match = None
    if match is None:
        raise RegistryError(f"{shown(name)!r} is no name of such a package")
    home = package.registry_base_url.rstrip("/")
    if kind == "oci":
        return _image(name, version, home, pinned=bool(match["tag"] or match["digest"]))
    if home and home not in _HOMES[kind]:
        raise RegistryError(f"the package {shown(name)!r} is in {shown(home)}, which its runner does not ask")
    exact = _exact(name, version, _NPM_VERSION if kind == "npm" else _VERSION)
    if kind == "pypi":
        return f"{name}=={exact}"
    return f"{name}@{exact}"


def _exact(name: str, version: str, pattern: re.Pattern[str] = _VERSION) -> str:
    if not pattern.fullmatch(version) or _NO_RANGE.search(version):
        raise RegistryError(f"the version of {shown(name)!r} is {shown(version)!r}, which is no exact one")
    return version


def _image(name: str, version: str, home: str, *, pinned: bool) -> str:
    host = (urlsplit(home).netloc or home) if home else ""
    first, slash, _ = name.partition("/")
    if host and host not in _DOCKER_HUB and not (slash and ("." in first or ":" in first)):
        if not _HOST.fullmatch(host):
            raise RegistryError(f"the registry of the image {shown(name)!r} is {shown(host)!r}, which is no host")
        name = f"{host}/{name}"
    if pinned:
        return name
    if "+" in version or "!" in version:
        raise RegistryError(f"the image {shown(name)!r} has no tag, and {shown(version)!r} is none")
    return f"{name}:{_exact(name, version)}"


def _notes(package: ServerPackage, program: str, what: str) -> Iterator[str]:
    if package.registry_type == "oci" and what.endswith(":latest"):
        yield f"the tag of {shown(what)} is 'latest': what it stands for may change, no version is pinned"
    if package.file_sha256:
        yield f"its SHA-256 is not checked: {program} downloads it"


# inputs


def _arguments(sources: Sequence[ServerInput]) -> list[ArgumentSlot]:
    _bounded(sources)
    return [ArgumentSlot.of(source, number) for number, source in enumerate(sources, 1)]


def _words(slots: Iterable[ArgumentSlot], answers: LaunchAnswers) -> list[LaunchWord]:
    return [word for slot in slots for word in slot.words(answers)]


def _named(sources: Sequence[ServerInput], pattern: re.Pattern[str], what: str) -> dict[str, ValueSlot]:
    _bounded(sources)
    for source in sources:
        if not pattern.fullmatch(source.name):
            raise RegistryError(f"{shown(source.name)!r} is no name of {what}")
    return {source.name: ValueSlot(name=source.name, source=source) for source in sources}


def _values(slots: dict[str, ValueSlot], answers: LaunchAnswers) -> dict[str, LaunchWord]:
    found = {name: slot.words(answers) for name, slot in slots.items()}
    return {name: words[0] for name, words in found.items() if words}


def _bounded(sources: Sequence[ServerInput]) -> None:
    if len(sources) > _MOST_INPUTS:
        raise RegistryError(f"it asks for {len(sources):,} values; at most {_MOST_INPUTS} are taken")
