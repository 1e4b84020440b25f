"""The ways to use a published server: its remotes, and its packages as the command lines of their runners.

No text of a publisher becomes part of a command line unchecked: names and versions are those of their registries,
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
from toolweave.oauth.fetch import FetchFailed, checked_url

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_VERSION = re.compile(r"[vV]?\d[\w.+!-]{0,199}", re.ASCII)
# a shorter one is a range there
_NPM_VERSION = re.compile(r"\d+\.\d+\.\d+([-+][\w.+-]{0,199})?", re.ASCII)
_RANGE = re.compile(r"\.[xX*](\.|$)")
_MAX_IDENTIFIER = 500
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
_MAX_INPUTS = 500


class BundleLocation(Value, frozen=True, kw_only=True):
    """The bundle of a package: its URL and the SHA-256 it has to have."""

    url: str
    sha256: str


class InstallOption(Value, frozen=True, kw_only=True):
    """A way to use a server.

    Attributes:
        kind: `http`, `sse`, `npm`, `pypi`, `oci`, `nuget` or `mcpb`.
        source: The package with its version, or the URL.
        questions: The values it needs; those of a bundle are in the bundle.
        bundle: Where the bundle is that has to be read first; None for every other kind.
        build: Returns the server that the answers make.
    """

    kind: str
    source: str
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
    # The URL is checked twice: here with examples, so that a remote that can never work is not offered, and by `build`
    # with the answers, since a variable may change the host.
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
            if re.search(r"[\r\n]", rendered(word, _revealed)):
                raise RegistryError(f"the header {shown(name)!r} would have a line break")
        return ServerLaunch(transport="sse" if kind == "sse" else "http", url=url, headers=made)

    questions = _questions_of((address, *headers.values()))
    return InstallOption(kind=kind, source=remote.url, questions=questions, build=build)


def _revealed(secret: SecretWord) -> str:
    if secret.value is None:
        return ""
    return secret.value.reveal()


def _questions_of(slots: Iterable[ValueSlot]) -> tuple[LaunchQuestion, ...]:
    questions: list[LaunchQuestion] = []
    for slot in slots:
        questions += slot.questions()
    return merged(questions)


def _example(remote: RemoteEndpoint) -> str:
    """Return the URL with an example value for each variable."""
    pieces = [(text, name) for text, name in _pieces(remote) if text or name]
    example = "".join("x" if name else text for text, name in pieces)
    # the URL begins with a variable, which then holds the scheme and the host
    if pieces and pieces[0][1]:
        return f"https://{example}"
    return example


def _address(remote: RemoteEndpoint, answers: LaunchAnswers) -> LaunchWord:
    """Return the URL with its variables, each escaped except one that the URL begins with.

    Raises:
        RegistryError: The result is not a URL that may be connected to; a host cannot come out of a path, or the other
            way round.
    """
    parts: list[str | SecretWord] = []
    # the URL so far, with an `x` for each secret: it is checked and shown in errors
    before = ""
    for text, name in _pieces(remote):
        if name is None:
            parts.append(text)
            before += text
            continue
        part = _escaped(_value_of(remote, name, answers), name, before)
        parts.append(part)
        before += part if isinstance(part, str) else "x"
    _checked_address(before)
    return joined(parts)


def _value_of(remote: RemoteEndpoint, variable: str, answers: LaunchAnswers) -> str | SecretWord:
    fixed = remote.variables[variable].value
    if fixed is not None:
        return fixed
    return next(iter(answers[variable]), "")


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
    if not before:
        return part
    text = part if isinstance(part, str) else _revealed(part)
    # The third slash of a URL ends its host.
    is_in_host = before.count("/") < 3
    if is_in_host:
        if text and not re.fullmatch(r"[A-Za-z0-9.-]+", text):
            raise RegistryError(f"{shown(name)!r} is a part of a host name, which has letters, digits, dots and dashes")
        return part
    escaped = quote(text, safe="/:@,~")
    if isinstance(part, str):
        return escaped
    if part.value is None or escaped == text:
        return part
    # Another name: the file of the secret holds it escaped, and a header may need it as it is.
    return part.replace(name=f"{part.name}.url", value=Secret(escaped))


def _checked_address(url: str) -> None:
    try:
        checked_url(url, "its URL")
    except FetchFailed as exc:
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


def _run_by(program: str, runner: PackageRunner, package: ServerPackage, source: str) -> InstallOption:
    env = _named(variables(package.environment_variables), _ENV_NAME, "a variable")
    before = _arguments(runtime_arguments(runner, package.runtime_arguments, list(env)))
    after = _arguments(package.package_arguments)

    # The package stands between the two groups of words, and none of them can take its place: those before it were
    # checked as options of the runner, those after it are the server's.
    def build(answers: LaunchAnswers) -> ServerLaunch:
        made = _values(env, answers)
        given = _words(before, answers)
        words = runner.line(source, given, _words(after, answers), list(made))
        notes = (*_notes(package, program, source), *runner.remarks(given))
        return ServerLaunch(command=program, args=tuple(words), env=made, notes=notes)

    slots = [slot.place for slot in before]
    slots += env.values()
    slots += (slot.place for slot in after)
    return InstallOption(kind=package.registry_type, source=source, questions=_questions_of(slots), build=build)


def _bundle(package: ServerPackage) -> InstallOption:
    if not _SHA256.fullmatch(package.file_sha256):
        raise RegistryError(f"the bundle {shown(package.identifier)!r} has no SHA-256, so it is not downloaded")
    _checked_address(package.identifier)

    def build(answers: LaunchAnswers) -> ServerLaunch:
        raise RegistryError("a bundle is downloaded and read first: `bundle_option`")

    location = BundleLocation(url=package.identifier, sha256=package.file_sha256)
    return InstallOption(kind="mcpb", source=package.identifier, bundle=location, build=build)


def _identifier(package: ServerPackage) -> str:
    """Return the package as its runner takes it, with its version.

    Raises:
        RegistryError: Its name is not one of this kind, it comes from another registry, or its version is not exact.
    """
    kind = package.registry_type
    name = package.identifier
    version = package.version
    match = _IDENTIFIERS[kind].fullmatch(name[:_MAX_IDENTIFIER])
    if match is None or len(name) > _MAX_IDENTIFIER:
        raise RegistryError(f"{shown(name)!r} is not a name of such a package")
    home = package.registry_base_url.rstrip("/")
    if kind == "oci":
        is_pinned = match["tag"] is not None or match["digest"] is not None
        return _image(name, version, home, pinned=is_pinned)
    if home and home not in _HOMES[kind]:
        raise RegistryError(f"the package {shown(name)!r} is in {shown(home)}, which its runner does not read")
    exact = _exact(name, version, _NPM_VERSION if kind == "npm" else _VERSION)
    if kind == "pypi":
        return f"{name}=={exact}"
    return f"{name}@{exact}"


def _exact(name: str, version: str, pattern: re.Pattern[str] = _VERSION) -> str:
    if not pattern.fullmatch(version) or _RANGE.search(version):
        raise RegistryError(f"the version of {shown(name)!r} is {shown(version)!r}, which is not an exact one")
    return version


def _image(name: str, version: str, home: str, *, pinned: bool) -> str:
    # Without a host, Docker reads an image of Docker Hub: an image of another registry has to name it.
    host = urlsplit(home).netloc or home
    if host not in ("", *_DOCKER_HUB) and not _names_host(name):
        if not _HOST.fullmatch(host):
            raise RegistryError(f"the registry of the image {shown(name)!r} is {shown(host)!r}, which is not a host")
        name = f"{host}/{name}"
    if pinned:
        return name
    if "+" in version or "!" in version:
        raise RegistryError(f"the image {shown(name)!r} has no tag, and {shown(version)!r} cannot be one")
    return f"{name}:{_exact(name, version)}"


def _names_host(image: str) -> bool:
    """Return whether an image's name begins with the host of its registry, by Docker's rule."""
    first, slash, _ = image.partition("/")
    return slash != "" and re.search("[.:]", first) is not None


def _notes(package: ServerPackage, program: str, source: str) -> Iterator[str]:
    if package.registry_type == "oci" and source.endswith(":latest"):
        yield f"the tag of {shown(source)} is 'latest': the image may change, since no version is pinned"
    if package.file_sha256:
        yield f"its SHA-256 is not checked: {program} downloads it"


# inputs


def _arguments(sources: Sequence[ServerInput]) -> list[ArgumentSlot]:
    _bounded(sources)
    return [ArgumentSlot.of(source, number) for number, source in enumerate(sources, 1)]


def _words(slots: Iterable[ArgumentSlot], answers: LaunchAnswers) -> list[LaunchWord]:
    words: list[LaunchWord] = []
    for slot in slots:
        words += slot.words(answers)
    return words


def _named(sources: Sequence[ServerInput], pattern: re.Pattern[str], what: str) -> dict[str, ValueSlot]:
    _bounded(sources)
    for source in sources:
        if not pattern.fullmatch(source.name):
            raise RegistryError(f"{shown(source.name)!r} is not a name of {what}")
    return {source.name: ValueSlot(name=source.name, source=source) for source in sources}


def _values(slots: dict[str, ValueSlot], answers: LaunchAnswers) -> dict[str, LaunchWord]:
    found: dict[str, LaunchWord] = {}
    for name, slot in slots.items():
        words = slot.words(answers)
        if words:
            found[name] = words[0]
    return found


def _bounded(sources: Sequence[ServerInput]) -> None:
    if len(sources) > _MAX_INPUTS:
        raise RegistryError(f"it asks for {len(sources):,} values; at most {_MAX_INPUTS} are allowed")
