"""The config of a gateway: its servers as in any config file, and beside them the section `gateway`.

```json
{
  "mcpServers": {"notes": {"command": "notes-server"}, "github": {"url": "https://mcp.example/github"}},
  "gateway": {
    "name": "company",
    "required": ["github"],
    "virtual": {"readers": {"servers": ["notes"], "include": ["read_*"], "rename": {"notes_read_note": "read"}}}
  }
}
```

Reads files; connects to nothing. A file is validated as a whole before any of it is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import msgspec

from toolweave._json_types import as_sequence, object_or_empty, without_members
from toolweave._value import DeferredTypes
from toolweave.config import LoadedConfig, Secret, ServerConfig, ShapeRule, load_config, merge_loaded
from toolweave.config._documents import ConfigDocument, read_document
from toolweave.config._expand import Expander, Scope
from toolweave.config._locate import GATEWAY_SECTION
from toolweave.config._shaping import read_shape, with_secrets
from toolweave.config.load import project_of
from toolweave.config.validation import (
    check_choice,
    check_flag,
    check_object,
    check_seconds,
    check_text,
    check_texts,
    check_url,
    kind_of,
    suggestion,
)
from toolweave.errors import ConfigError
from toolweave.gateway._callers.unheld_claims import unheld_claims
from toolweave.gateway._features.disclosure import DISCLOSURES, DisclosureMode
from toolweave.jobs.retention import TASK_SECONDS

if TYPE_CHECKING:
    from toolweave.gateway._callers.auth import CallerAuth

SECTION = GATEWAY_SECTION
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MAX_VIRTUAL = 500

GatewaySource: TypeAlias = str | PurePath | Sequence[str | PurePath] | Mapping[str, Any] | LoadedConfig
"""One config file or several, of whose servers of one name the first counts; or the content of one."""


class VirtualServer(msgspec.Struct, frozen=True, kw_only=True):
    """A view of the gateway's servers under its own path, `/mcp/NAME`.

    Attributes:
        name: Its name in the path.
        title: Its human-readable name.
        instructions: Its instructions for models.
        servers: The servers whose tools, prompts and resources it offers; empty offers all.
        include: The only tools to offer: names or patterns such as `read_*`, the tools' own, those of the gateway, or
            `server:tool`; empty offers all. It wins over `exclude`.
        exclude: Tools to leave out, likewise.
        rename: Other names of tools, by the name in the gateway or `server:tool`.
        prefix: Put literally before the names of the other tools.
        shape: Rules that change the names, descriptions and arguments of its tools; see `toolweave.definitions`.
        middleware: Its list `middleware`: its own rules, limits and the like, inside those of the gateway.
        disclosure: The form in which callers learn of its tools; by default that of the gateway.
    """

    name: str
    title: str | None = None
    instructions: str | None = None
    servers: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    rename: Mapping[str, str] = {}
    prefix: str = ""
    shape: tuple[ShapeRule, ...] = ()
    middleware: tuple[Any, ...] = ()
    disclosure: DisclosureMode | None = None


class GatewayConfig(msgspec.Struct, frozen=True, kw_only=True, metaclass=DeferredTypes):
    """The validated config of a gateway.

    Attributes:
        servers: The upstreams.
        name: Its name, for programs.
        title: Its human-readable name.
        instructions: Its instructions for models.
        required: The upstreams without which it is not ready.
        rest: Whether tools are also offered over REST.
        ui: Whether there is a console; None for one where only this machine reaches it.
        virtual: The virtual servers by name.
        middleware: The list `middleware`: rules, limits and the like.
        redis: The URL of the Redis or Valkey that its replicas share.
        auth: The authorization of callers over HTTP; None allows everyone.
        url: The address that callers know it by.
        server_card: Whether anyone may read its server card, and those of its virtual servers.
        disclosure: The form in which callers learn of tools.
        slow_call_seconds: Seconds after which a call becomes a task, for callers that take tasks; None for never.
        task_seconds: Seconds from the start of such a task until its result may be deleted.
        runs: The URL or path of the store of agents' runs that the console shows; read once, at the start.
        event_store: Where the streams of older clients are kept for them to be resumed: `memory`, or None for nowhere.
            Replicas and workers keep them in the store that they share, without this setting.
        retry_seconds: The time after which such a client resumes a stream.
        has_section: Whether a file has the section `gateway`.
    """

    servers: LoadedConfig
    name: str | None = None
    title: str | None = None
    instructions: str | None = None
    required: tuple[str, ...] = ()
    rest: bool | None = None
    ui: bool | None = None
    virtual: Mapping[str, VirtualServer] = {}
    middleware: tuple[Any, ...] = ()
    redis: Secret | None = None
    auth: CallerAuth | None = None
    url: str | None = None
    server_card: bool | None = None
    disclosure: DisclosureMode = "all"
    slow_call_seconds: float | None = None
    task_seconds: float = TASK_SECONDS
    runs: Secret | None = None
    event_store: Literal["memory"] | None = None
    retry_seconds: float | None = None
    has_section: bool = False

    @property
    def warnings(self) -> tuple[str, ...]:
        """Remarks for the writer of the file."""
        known = {*self.servers.servers, *self.servers.errors, *self.servers.disabled}
        unknown = [
            f"gateway: virtual server {virtual.name!r}: server {server!r} is not in the config"
            for virtual in self.virtual.values()
            for server in virtual.servers
            if server not in known
        ]
        asks = any(object_or_empty(entry).get("name") == "approval" for entry in self.middleware)
        if asks:
            unasked = []
        else:
            unasked = [*filter(None, map(_unasked, self.servers.servers.values()))]
        return (*self.servers.warnings, *unasked, *unknown, *unheld_claims(self))


def _unasked(server: ServerConfig) -> str:
    """Return a warning about calls that agents would ask about and callers are not asked about; `""` for none."""
    if all(mode == "never" for mode in server.confirm.values()):
        return ""
    return f"gateway: server {server.name!r}: its 'confirm' asks no caller of a gateway; add the middleware 'approval'"


def load_gateway_config(source: GatewaySource, *, names: Iterable[str] = ()) -> GatewayConfig:
    """Read the config of a gateway.

    Args:
        source: A config file, several, or the content of one.
        names: Only these servers; all by default.

    Raises:
        ConfigError: A file cannot be read, its section `gateway` is wrong, or a `LoadedConfig` is of files with such a
            section, which it does not hold. The error of a single server is in `servers.errors` instead.
    """
    if isinstance(source, LoadedConfig):
        documents = []
        loaded = [source]
    elif isinstance(source, Mapping):
        content = dict(source)
        documents = [ConfigDocument(value=content, path="")]
        loaded = [load_config(without_members(content, SECTION))]
    else:
        if isinstance(source, str | PurePath):
            paths = [source]
        else:
            paths = list(source)
        documents = [read_document(Path(path).expanduser()) for path in paths]
        loaded = list(map(load_config, paths))
    if isinstance(source, LoadedConfig):
        check_section_applied(source.gateway_sections)
    servers = merge_loaded(loaded).replace(gateway_sections=())  # it is applied below
    chosen = list(names)
    if chosen:
        servers = servers.select(chosen)
    sections = [(document, section) for document in documents if (section := _section(document)) is not None]
    # Two sections could be merged in several ways, and one of them decides who may call: the owner has to say it.
    if len(sections) > 1:
        files = " and ".join(document.path for document, _ in sections)
        raise ConfigError(f"only one file may have a section {SECTION!r}, but {files} have one", field=SECTION)
    if not sections:
        return GatewayConfig(servers=servers)
    document, section = sections[0]
    try:
        return _read(section, servers, _scope_of(document))
    except ConfigError as error:
        field = error.field or SECTION
        # A member that is missing has no line, so its section is named.
        line = document.line(tuple(field.split("."))) or document.line((SECTION,))
        raise ConfigError(error.message, field=field, path=document.path or None, line=line) from None


def check_section_applied(places: Sequence[str]) -> None:
    """Refuse configs whose section `gateway` would not be applied: it may say who may call.

    Args:
        places: The configs that have one; see `LoadedConfig.gateway_sections`.

    Raises:
        ConfigError: There is such a section.
    """
    if places:
        raise ConfigError(
            f"the section {SECTION!r} of {' and '.join(places)} would not be applied; run "
            "`toolweave gateway --config FILE`, or give the file to `GatewayManager`. To serve only its servers, give "
            "`load_gateway_config(FILE).servers`",
            field=SECTION,
        )


def _section(document: ConfigDocument) -> Any:
    return object_or_empty(document.value).get(SECTION)


def _scope_of(document: ConfigDocument) -> Scope:
    """Return the variables of a document: the environment, and files beside it."""
    if not document.path:
        return Scope()
    path = Path(document.path)
    return Scope(workspace=str(project_of(path)), directory=str(path.absolute().parent))


def _read(value: Any, servers: LoadedConfig, scope: Scope) -> GatewayConfig:
    section = _known(value, SECTION, GatewayConfig, but=("servers", "has_section"))
    found: dict[str, Any] = dict(_texts(section, SECTION, ("name", "title", "instructions")))
    if "required" in section:
        found["required"] = check_texts(section["required"], f"{SECTION}.required")
        for name in found["required"]:
            # A name that is mistyped would never be ready. One whose entry is wrong is there, and reported with its
            # own error.
            if name not in servers.servers and name not in servers.errors:
                raise ConfigError(
                    f"'{SECTION}.required' names the server {name!r}, which the config does not have",
                    field=f"{SECTION}.required",
                )
    if "auth" in section:
        from toolweave.gateway._callers.auth import read_caller_auth  # only where callers are judged

        found["auth"] = read_caller_auth(section["auth"], scope)
    # These URLs may have a password, so they are secrets from here on.
    for member in [name for name in ("redis", "runs") if name in section]:
        where = f"{SECTION}.{member}"
        found[member] = Secret(Expander(scope).text(check_text(section[member], where), where))
    checks = {
        "rest": check_flag,
        "server_card": check_flag,
        "ui": check_flag,
        "url": check_url,
        "middleware": _list,
        "disclosure": _disclosure,
        "slow_call_seconds": check_seconds,
        "task_seconds": check_seconds,
        "event_store": _event_store,
        "retry_seconds": check_seconds,
    }
    for member, check in checks.items():
        if member in section:
            found[member] = check(section[member], f"{SECTION}.{member}")
    virtual = check_object(section.get("virtual", {}), f"{SECTION}.virtual")
    if len(virtual) > _MAX_VIRTUAL:
        raise ConfigError(f"'{SECTION}.virtual' has more than {_MAX_VIRTUAL} entries", field=f"{SECTION}.virtual")
    found["virtual"] = {str(name): _virtual(str(name), entry, scope) for name, entry in virtual.items()}
    return GatewayConfig(servers=servers, has_section=True, **found)


def _virtual(name: str, value: Any, scope: Scope) -> VirtualServer:
    where = f"{SECTION}.virtual.{name}"
    # The name is a part of a path, below which the REST interface has two of these, and the server card is the third.
    if _NAME.fullmatch(name) is None or name in ("tools", "openapi.json", "server-card"):
        raise ConfigError(
            f"the name of virtual server {name!r} must be at most 64 letters, digits, '.', '_' and '-'",
            field=where,
        )
    section = _known(value, where, VirtualServer, but=("name",))
    found: dict[str, Any] = dict(_texts(section, where, ("title", "instructions", "prefix")))
    for key in ("servers", "include", "exclude"):
        if key in section:
            found[key] = check_texts(section[key], f"{where}.{key}")
    if "rename" in section:
        rename = check_object(section["rename"], f"{where}.rename")
        found["rename"] = {str(old): check_text(new, f"{where}.rename.{old}") for old, new in rename.items()}
    for member, check in {"middleware": _list, "disclosure": _disclosure}.items():
        if member in section:
            found[member] = check(section[member], f"{where}.{member}")
    # Expanded here, as a default value in a rule may be a secret: those that came from a variable are masked.
    if "shape" in section:
        expander = Expander(scope)
        field = f"{where}.shape"
        rules = read_shape(expander.value(section["shape"], field), field)
        found["shape"] = with_secrets(rules, expander.sensitive)
    return VirtualServer(name=name, **found)


def _known(value: Any, where: str, shape: type[msgspec.Struct], *, but: Sequence[str]) -> Mapping[str, Any]:
    """Return a section, all of whose keys are known: a rule with a slip in its name must not be left out silently."""
    section = check_object(value, where)
    known = [name for name in shape.__struct_fields__ if name not in but]
    for key in section:
        if key not in known:
            raise ConfigError(f"{where!r} has no setting {key!r}; {suggestion(key, known)}", field=f"{where}.{key}")
    return section


def _disclosure(value: Any, where: str) -> DisclosureMode:
    return cast("DisclosureMode", check_choice(value, where, DISCLOSURES))


def _event_store(value: Any, where: str) -> Literal["memory"]:
    return cast("Literal['memory']", check_choice(value, where, ("memory",)))


def _list(value: Any, where: str) -> tuple[Any, ...]:
    found = as_sequence(value)
    if found is None:
        raise ConfigError(f"{where!r} must be a list, not {kind_of(value)}", field=where)
    return tuple(found)


def _texts(section: Mapping[str, Any], where: str, keys: Sequence[str]) -> Mapping[str, str]:
    return {key: check_text(section[key], f"{where}.{key}") for key in keys if key in section}
