"""`toolweave.lock`: the definitions that were trusted, by server and name, with their hashes.

A lock is read by people in a review and by `toolweave pin check` in CI, so it holds the definitions themselves: a diff
of the file is a diff of the texts that a model reads. Each is checked against its hash. Pure, except for the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar, cast

import msgspec

from toolweave._files import read_file
from toolweave._json_types import Json, JsonObject, object_or_empty, text_or_empty, without_members
from toolweave._value import Value
from toolweave.config import ServerConfig, program_name
from toolweave.config._naming import package_of
from toolweave.config.secret_args import mask_url
from toolweave.config.trust import write_privately
from toolweave.definitions._definition import (
    NAME_MEMBERS,
    OFFER_PARTS,
    OfferedDefinitions,
    OfferPart,
    definition_of,
    of_part,
)
from toolweave.errors import ConfigError
from toolweave.tools import ToolSpec

LOCK = "toolweave.lock"
_FORMAT = 1
_MAX_BYTES = 256 * 1024 * 1024
_RESTORE = "restore it from your version control, or write it again with `toolweave pin`"
_KEYS: Mapping[OfferPart, str] = {"prompt": "prompts", "resource": "resources", "template": "resourceTemplates"}
"""The members of a server in the lock file, by part."""


class ServerIdentity(Value, frozen=True, kw_only=True):
    """A server, as it is distinguished from another one.

    Attributes:
        name: Its own name for itself (`serverInfo.name`); `""` before the handshake.
        version: The version it says it has; `""` when it says none.
        origin: The program or package that is started, or scheme and host of its URL.
        package: The package with the version that the command asks for, such as `mcp-server-time@1.2.0`; else `""`.
    """

    name: str = ""
    version: str = ""
    origin: str = ""
    package: str = ""

    @classmethod
    def of(cls, config: ServerConfig, server_info: JsonObject | None = None) -> ServerIdentity:
        """Return the identity of a configured server, with its name and version from the handshake."""
        reported = object_or_empty(server_info)
        package, version = package_of(config.command, config.args) if config.command else ("", "")
        return cls(
            name=text_or_empty(reported.get("name")),
            version=text_or_empty(reported.get("version")),
            origin=_origin(config, package),
            package=f"{package}@{version}" if version else "",
        )


class PinnedDefinition(Value, frozen=True, kw_only=True):
    """A definition as it was trusted.

    Attributes:
        sha256: The hash of its canonical JSON, in hexadecimal.
        definition: Its visible members: of a tool its name, title, description, schemas and annotations.
    """

    sha256: str
    definition: JsonObject

    @classmethod
    def pin(cls, definition: JsonObject) -> Self:
        """Pin a definition."""
        return cls(sha256=tool_hash(definition), definition=definition)


class PinnedTool(PinnedDefinition, frozen=True, kw_only=True):
    """The definition of a tool as it was trusted."""

    @classmethod
    def of(cls, spec: ToolSpec) -> PinnedTool:
        """Pin the definition of a tool."""
        return cls.pin(definition_of(spec))


_PinnedList: TypeAlias = Mapping[str, PinnedDefinition]
_PinnedT = TypeVar("_PinnedT", bound=PinnedDefinition)


class PinnedServer(Value, frozen=True, kw_only=True):
    """A server as it was trusted: its tools by their own names, and its definitions beside them.

    None stands for a part that was not pinned, such as in a lock that an older version wrote. It is not compared.

    Attributes:
        identity: The server itself.
        tools: Its tools by name.
        instructions: Its instructions for a model; `""` if it had none.
        prompts: Its prompts by name.
        resources: Its resources by URI.
        templates: Its resource templates by URI template.
    """

    identity: ServerIdentity = ServerIdentity()
    tools: Mapping[str, PinnedTool] = msgspec.field(default_factory=dict[str, PinnedTool])
    instructions: str | None = None
    prompts: Mapping[str, PinnedDefinition] | None = None
    resources: Mapping[str, PinnedDefinition] | None = None
    templates: Mapping[str, PinnedDefinition] | None = None

    @classmethod
    def of(
        cls, identity: ServerIdentity, specs: Iterable[ToolSpec], offers: OfferedDefinitions | None = None
    ) -> PinnedServer:
        """Pin a server with these definitions.

        Args:
            identity: The server itself.
            specs: Its tools.
            offers: Its definitions beside tools; by default none of these are pinned or compared.
        """
        known = offers or OfferedDefinitions()
        return cls(
            identity=identity,
            tools={spec.original_name: PinnedTool.of(spec) for spec in specs},
            instructions=known.instructions,
            prompts=_pinned(known.prompts),
            resources=_pinned(known.resources),
            templates=_pinned(known.templates),
        )

    @classmethod
    def nothing(cls, identity: ServerIdentity | None = None) -> PinnedServer:
        """Return a server of which nothing was trusted: all that it offers is new."""
        return cls(identity=identity or ServerIdentity(), instructions="", prompts={}, resources={}, templates={})

    def listed(self, part: OfferPart) -> Mapping[str, PinnedDefinition] | None:
        """Return the pinned definitions of one part by name, or None if they are not compared."""
        return of_part(part, self.prompts, self.resources, self.templates)

    def with_listed(self, part: OfferPart, definitions: Mapping[str, PinnedDefinition]) -> PinnedServer:
        """Return the server with these pinned definitions of one part."""
        match part:
            case "prompt":
                return self.replace(prompts=definitions)
            case "resource":
                return self.replace(resources=definitions)
            case "template":
                return self.replace(templates=definitions)


def _pinned(definitions: Mapping[str, JsonObject] | None) -> _PinnedList | None:
    if definitions is None:
        return None
    return {name: PinnedDefinition.pin(one) for name, one in definitions.items()}


class Pins(Value, frozen=True, kw_only=True):
    """All that was trusted: a lock file as a value."""

    servers: Mapping[str, PinnedServer] = msgspec.field(default_factory=dict[str, PinnedServer])

    @classmethod
    def read(cls, path: Path) -> Pins:
        """Read a lock file; a missing file has no pins.

        Raises:
            ConfigError: It cannot be read, it is not a lock file, or a definition does not have its hash.
        """
        try:
            data = read_file(path, max_bytes=_MAX_BYTES)
        except FileNotFoundError:
            return cls()
        except OSError as error:
            raise ConfigError(f"it cannot be read: {error.strerror or error}", path=str(path)) from None
        return cls.parse(data, path=str(path))

    @classmethod
    def parse(cls, data: bytes, *, path: str = LOCK) -> Pins:
        """Read the bytes of a lock file.

        Raises:
            ConfigError: As `read`.
        """
        try:
            document: Any = json.loads(data)
        except (ValueError, RecursionError):
            raise ConfigError(f"it is not JSON; {_RESTORE}", path=path) from None
        top = _require_object(document, "it", path)
        # Not read in part: a newer format may pin what this version would not compare.
        if top.get("version") != _FORMAT:
            message = f"its format {top.get('version')!r} is not known here; a newer toolweave may have written it"
            raise ConfigError(message, path=path)
        servers = _require_object(top.get("servers"), "'servers'", path)
        return cls(servers={name: _read_server(name, entry, path) for name, entry in servers.items()})

    def dump(self) -> bytes:
        """Return the bytes of the lock file: sorted, so that a diff shows the changes and nothing else."""
        servers = {name: _server_json(server) for name, server in self.servers.items()}
        # Letters of all languages stay readable in a review. Only hidden characters are escaped, afterwards.
        text = json.dumps({"version": _FORMAT, "servers": servers}, ensure_ascii=False, indent=1, sort_keys=True)
        return _escaped(text).encode() + b"\n"

    def write(self, path: Path) -> None:
        """Write the lock file, as a whole or not at all.

        Raises:
            OSError: It cannot be written.
        """
        # Readable by all, unlike a token: it is committed and reviewed.
        write_privately(path, self.dump(), mode=0o644)

    def with_server(self, name: str, server: PinnedServer | None) -> Pins:
        """Return the pins with this entry for a server; None removes it."""
        servers = without_members(self.servers, name)
        return Pins(servers=servers if server is None else {**servers, name: server})


def tool_hash(definition: JsonObject) -> str:
    """Return the SHA-256 of a definition's canonical JSON, in hexadecimal.

    Canonical as in RFC 8785: members sorted, no white space, whole numbers without a fraction.
    """
    text = json.dumps(_canonical(definition), ensure_ascii=False, separators=(",", ":"))
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def lock_path(config: ServerConfig) -> Path:
    """Return the lock file of a server: as configured, else in the project of its config file or the current folder."""
    from toolweave.config.load import project_of  # loading files costs, and a connection from code needs none of it

    if config.source is None:
        folder = Path.cwd()
    else:
        folder = project_of(Path(config.source.path))
    return folder / (Path(config.lockfile).expanduser() if config.lockfile else LOCK)


def _canonical(value: Any) -> Any:
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        return {key: _canonical(members[key]) for key in sorted(members, key=_utf16)}
    if isinstance(value, (list, tuple)):
        return list(map(_canonical, cast("Sequence[Any]", value)))
    # Servers that compute their schemas write 1 at one start and 1.0 at another (RFC 8785, 3.2.2.3).
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _utf16(key: str) -> bytes:
    # The order of RFC 8785, 3.2.3: by UTF-16 code units, where U+1F600 is before U+FF21. JSON may hold lone surrogates,
    # which must not make the hash fail.
    return key.encode("utf-16-be", "surrogatepass")


def _origin(config: ServerConfig, package: str) -> str:
    if config.url:
        # Scheme and host alone: paths and queries hold tenants and keys, which must not get into a committed file.
        scheme, _, rest = mask_url(config.url).partition("://")
        return f"{scheme}://{rest.partition('/')[0].partition('?')[0]}"
    if config.command:
        return f"{program_name(config.command)} {package}".strip()
    return config.transport


def _escaped(text: str) -> str:
    """Return JSON in which hidden characters are escaped, so that a review of the file shows them."""
    from toolweave._text import replace_hidden  # writing alone needs it

    return replace_hidden(text, lambda char: json.dumps(char)[1:-1] if char != "\x7f" else "\\u007f")


def _identity_json(identity: ServerIdentity) -> Json:
    """Return the members of an identity that are known."""
    made: Json = {}
    for name in identity.__struct_fields__:
        value = getattr(identity, name)
        if value:
            made[name] = value
    return made


def _server_json(server: PinnedServer) -> Json:
    said = server.identity
    made: Json = {
        "identity": _identity_json(said),
        "tools": _list_json(server.tools),
    }
    if server.instructions is not None:
        made["instructions"] = {"sha256": _text_hash(server.instructions), "text": server.instructions}
    for part in OFFER_PARTS:
        listed = server.listed(part)
        if listed is not None:
            made[_KEYS[part]] = _list_json(listed)
    return made


def _list_json(definitions: Mapping[str, PinnedDefinition]) -> Json:
    return {name: {"sha256": one.sha256, "definition": one.definition} for name, one in definitions.items()}


def _text_hash(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class _ServerEntry(NamedTuple):
    """The entry of a server in a file of pins: its members, and for messages its server and the path of the file."""

    server: str
    members: JsonObject
    path: str

    def read_instructions(self) -> str | None:
        """Return the pinned instructions, or None if they were not pinned.

        Raises:
            ConfigError: The entry is not as a pin is written, or the hash is not that of the text.
        """
        if "instructions" not in self.members:
            return None
        label = f"'instructions' of server {self.server!r}"
        pin = _require_object(self.members["instructions"], label, self.path)
        text = pin.get("text")
        if not isinstance(text, str) or pin.get("sha256") != _text_hash(text):
            raise ConfigError(f"{label} does not have its hash; {_RESTORE}", path=self.path)
        return text

    def read_definitions(self, part: str, key: str, kind: type[_PinnedT]) -> dict[str, _PinnedT] | None:
        """Return the pinned definitions of one part, such as the tools, or None if they were not pinned.

        Raises:
            ConfigError: The entry is not as a pin is written, or a hash is not that of its definition.
        """
        if key not in self.members:
            return None
        definitions: dict[str, _PinnedT] = {}
        for name, value in _require_object(self.members[key], f"{key!r} of server {self.server!r}", self.path).items():
            label = f"{part} {name!r} of server {self.server!r}"
            pin = _require_object(value, label, self.path)
            definition = _require_object(pin.get("definition"), f"'definition' of {label}", self.path)
            digest = pin.get("sha256")
            # The name is compared as well: a merge conflict could leave a pin under the name of another tool, with a
            # right hash.
            if digest != tool_hash(definition) or definition.get(NAME_MEMBERS[part]) != name:
                raise ConfigError(f"{label} does not have its hash; {_RESTORE}", path=self.path)
            definitions[name] = kind(sha256=str(digest), definition=definition)
        return definitions


def _read_server(name: str, value: Any, path: str) -> PinnedServer:
    entry = _ServerEntry(name, _require_object(value, f"server {name!r}", path), path)
    identity = _require_object(entry.members.get("identity", {}), f"'identity' of server {name!r}", path)
    texts = {key: str(identity.get(key, "")) for key in ServerIdentity.__struct_fields__}
    server = PinnedServer(
        identity=ServerIdentity(**texts),
        tools=entry.read_definitions("tool", "tools", PinnedTool) or {},
        instructions=entry.read_instructions(),
    )
    for part, key in _KEYS.items():
        definitions = entry.read_definitions(part, key, PinnedDefinition)
        if definitions is not None:
            server = server.with_listed(part, definitions)
    return server


def _require_object(value: Any, what: str, path: str) -> Json:
    if not isinstance(value, dict):
        raise ConfigError(f"{what} is not an object; {_RESTORE}", path=path)
    return cast("dict[str, Any]", value)
