"""One MCP server's settings as one frozen value. Reads no file, builds nothing, connects to nothing."""

from __future__ import annotations

import base64
import inspect
import shlex
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, Unpack
from urllib.parse import urlsplit

import msgspec

from toolweave._json_types import Json, JsonObject, as_object, as_sequence, as_text, object_or_empty
from toolweave._masking import MASK, mask_foreign, mask_json, mask_values
from toolweave._value import Value
from toolweave.config._auth import Auth
from toolweave.config._caller_headers import check_caller_headers
from toolweave.config._confinement import ResourceLimits, Sandbox
from toolweave.config._field_checks import FIELD_CHECKS
from toolweave.config._naming import installs_first
from toolweave.config._secret import Secret, looks_secret, reveal, split_user_info, wrap
from toolweave.config._server_settings import ServerSettings
from toolweave.config._shaping import ShapeRule
from toolweave.config._source import Source, error_at
from toolweave.config._timeouts import Timeouts
from toolweave.config.secret_args import mask_args, mask_options, mask_url, secrets_in, secrets_in_options
from toolweave.config.validation import check_text, check_url, is_loopback
from toolweave.errors import ConfigError

BUILT_IN_TRANSPORTS = ("stdio", "http", "sse", "inprocess")
WEBSOCKET_DEPRECATED = "transport 'websocket' is an old name of 'http' (Streamable HTTP); write 'http'"
_SYNONYMS = {
    **dict.fromkeys(("streamable_http", "streamablehttp", "streamable", "http_stream", "httpstream"), "http"),
    "streaminghttp": "http",
    "in_process": "inprocess",
}
_REMOTE = ("http", "sse")
# only added to, by applications that are starting; a name in it is never removed
_registered: set[str] = set()

HeadersSource = Callable[[], Any]
"""A callable, plain or async, that returns the headers of one request as a mapping."""

HeadersField: TypeAlias = Mapping[str, Secret] | HeadersSource

_CONNECT_SECONDS = 150.0  # a server that is at work on its start for two minutes is not rare
_CONNECT_SILENCE_SECONDS = 30.0
_INSTALL_SILENCE_SECONDS = 120.0
_PROBE_SECONDS = 5.0
_INSTALL_PROBE_SECONDS = 15.0
_NOT_COMPARED = frozenset({"source", "sensitive"})


_field_readers: list[Callable[[Any], ServerConfig]] = []


def read_fields_with(parse: Callable[[Any], ServerConfig]) -> None:
    """Set the function that makes the config of a pydantic model's field; it is in a module that needs this one."""
    _field_readers.append(parse)


class ServerConfig(Value, frozen=True, kw_only=True):
    """Everything needed to reach one MCP server.

    Lists become tuples and mappings read-only; values of `env` and `headers` are wrapped as
    `Secret`. User info in `url` becomes an `Authorization: Basic` header. Two configs are equal
    when their settings are, wherever they were read. The representation shows no secret.

    Raises:
        ConfigError: A required field is missing or a value cannot be right. It is a
            `ValueError` and names the server and the field.

    Attributes:
        name: The server's key; also the default prefix of its tools.
        transport: `stdio`, `http` (Streamable HTTP), `sse`, `inprocess` or a registered name.
            Empty: `http` when there is a `url`, `stdio` for a `command`, `inprocess` for a `server`.
        command: The program to start (stdio).
        args: Its arguments, passed unchanged and without a shell.
        env: Variables merged over a safe part of our own environment.
        cwd: The working directory of the process; None inherits ours.
        url: The endpoint (http, sse).
        headers: Headers of every HTTP request, or a callable that returns them before each request.
        forward_headers: The names of the headers that a gateway sends on from each caller, such as `X-Tenant`. Callers
            with different values never share a connection.
        claim_headers: The headers that a gateway sends with a claim of each caller's token or API key, as header and
            claim. Callers without the claim are not offered the server.
        auth: The authorization of HTTP requests.
        disabled: Keep the entry but do not connect.
        timeout: Bounds in seconds; see `Timeouts`.
        include: The only tools to offer, by original name; empty or `*` is all. Wins over `exclude`.
        exclude: Tools not to offer, by original name; `*` is all.
        confirm: The calls that a person has to approve when an agent makes them: `always`, `writes` (of tools that do
            not say that they only read), `destructive`, or `never`; or one of these by tool, `*` for the others.
        tool_prefix: The literal prefix of each tool's name; None is the server's name and `_`, `""` adds nothing.
        restart: `on_failure` reconnects a lost connection, with an end; `always` has no end and also tries a server
            again that was never reached; `never` keeps the exact cause as the answer of each call.
        legacy_sse: Fall back to the old HTTP+SSE transport when Streamable HTTP is not there.
        protocol: `auto`, `legacy` (the newest handshake revision), or one revision such as `2025-06-18`.
        validate_input: Check arguments against the tool's schema before sending.
        repair_arguments: Make arguments fit that nearly do: texts that hold JSON where the schema takes no text, and
            null for optional arguments. They are errors otherwise.
        repair_messages: Read messages and results of the server that are nearly right. They are errors otherwise, and
            such a call has run. If it is true, a gateway passes the objects of results on as they came.
        validate_output: The handling of structured content that is missing or breaks the tool's output schema:
            `error` makes the result an error that keeps the content, `warn` only logs it.
        max_concurrency: Calls in flight at once; None sets no limit.
        max_connections: HTTP connections that are open at once for requests; one beyond that waits. None is 100.
        max_message_bytes: The largest message that is accepted from the server; None is 128 MiB.
        max_list_bytes: The size of all pages of one list together, after which no more are read; None is 128 MiB.
        max_questions: Questions to the user, and requests for sampling, that the server may send in one call; None is
            100. More are refused.
        max_question_bytes: The size of all of them together; None is 32 MiB.
        on_conflict: The handling of a tool name that is taken.
        shape: Rules that change names, descriptions and arguments of its tools, in their order; see
            `toolweave.definitions`.
        scan: Look for hidden text and the like in everything that the server sends; see `toolweave.definitions`.
        pins: Enforcement of the pins in the lock file: `warn` reports new and changed tools, `block` also withholds
            them until they are allowed. None is `warn` for a server that the lock file beside its config file has, else
            `off`.
        lockfile: The lock file; None is `toolweave.lock` in the project of the config file, or in the current folder.
        limits: Limits of the resources of a stdio server.
        sandbox: A sandbox for a stdio server.
        options: Other keys of the entry or its `connection`, for custom transports.
        server: An in-process server object or a transport of the SDK. Only from code.
        source: The file and line of the entry.
        sensitive: Values to mask wherever they appear, such as the value of `${API_KEY}` in `args`.
    """

    name: str = ""
    transport: str = ""
    command: str = ""
    args: Sequence[str] = ()
    env: Mapping[str, str | Secret] = msgspec.field(default_factory=dict[str, "str | Secret"])
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str | Secret] | HeadersSource = msgspec.field(default_factory=dict[str, "str | Secret"])
    forward_headers: Sequence[str] = ()
    claim_headers: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    auth: Auth | None = None
    disabled: bool = False
    timeout: Timeouts = msgspec.field(default_factory=Timeouts)
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    confirm: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    tool_prefix: str | None = None
    restart: Literal["on_failure", "always", "never"] = "on_failure"
    legacy_sse: Literal["auto", "never", "only"] = "auto"
    protocol: str = "auto"
    validate_input: bool = True
    repair_arguments: bool = True
    repair_messages: bool = True
    validate_output: Literal["warn", "error", "off"] = "error"
    max_concurrency: int | None = None
    max_connections: int | None = None
    max_message_bytes: int | None = None
    max_list_bytes: int | None = None
    max_questions: int | None = None
    max_question_bytes: int | None = None
    on_conflict: Literal["rename", "skip", "error"] = "rename"
    shape: Sequence[ShapeRule] = ()
    scan: bool = True
    pins: Literal["off", "warn", "block"] | None = None
    lockfile: str | None = None
    limits: ResourceLimits | None = None
    sandbox: Sandbox | None = None
    options: JsonObject = msgspec.field(default_factory=Json)
    server: Any = None  # whatever an in-process server is
    source: Source | None = None
    sensitive: Sequence[Secret] = ()

    if TYPE_CHECKING:
        # the attributes hold the normal forms, the parameters may have others: `timeout=5`
        def __init__(self, **settings: Unpack[ServerSettings]) -> None: ...

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> object:
        """Return the schema of a field of a pydantic model, whose values `server_config` reads."""
        from toolweave.config._pydantic import config_schema  # only where there is such a model

        def show(config: ServerConfig) -> Json:
            def shown(other: object) -> object:
                if other is None or isinstance(other, (bool, int, float)):
                    return other
                return config.redact(str(other))

            return mask_json(config.without_defaults(), config.redact, shown)

        return config_schema(cls, _field_readers[-1], show)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: object, handler: object) -> Json:
        """Return the JSON Schema of such a field: the entry of a config file, or a URL or command line."""
        return {"title": cls.__name__, "type": ["object", "string"], "description": "An MCP server."}

    def __post_init__(self) -> None:
        # A frozen struct has no other way to hold the canonical form of its fields. Nobody else has this value yet.
        try:
            for key, value in _normalised(self).items():
                msgspec.structs.force_setattr(self, key, value)
            _check_reachable(self)
        except ConfigError as error:
            raise self.error(error.message, field=error.field) from None

    @property
    def connect_timeout(self) -> float:
        """Seconds the handshake may take, regardless of signs of life: `timeout.connect`, else 150."""
        if self.timeout.connect is None:
            return _CONNECT_SECONDS
        return self.timeout.connect

    @property
    def connect_silence(self) -> float:
        """Seconds of the handshake that may pass without a sign of life.

        `timeout.connect`, else 30, or 120 when the command may install first.
        """
        if self.timeout.connect is not None:
            return self.timeout.connect
        if self._may_install:
            return _INSTALL_SILENCE_SECONDS
        return _CONNECT_SILENCE_SECONDS

    @property
    def probe_timeout(self) -> float:
        """Seconds until `initialize` is sent beside the probe: `timeout.probe`, else 5, or 15 if it may install."""
        if self.timeout.probe is not None:
            return self.timeout.probe
        if self._may_install:
            return _INSTALL_PROBE_SECONDS
        return _PROBE_SECONDS

    @property
    def _may_install(self) -> bool:
        return self.transport == "stdio" and installs_first(self.command, self.args)

    @property
    def as_caller(self) -> bool:
        """Whether a gateway calls it with credentials or headers of each caller, so that each has connections to it."""
        if self.forward_headers or self.claim_headers:
            return True
        oauth = None if self.auth is None else self.auth.oauth
        if oauth is None or self.transport not in _REMOTE:
            return False
        return oauth.identity == "caller"

    @property
    def signs_in_callers(self) -> bool:
        """Whether a gateway calls it with the credentials of each caller, so that it cannot be called without one."""
        oauth = None if self.auth is None else self.auth.oauth
        if oauth is None or not self.as_caller:
            return False
        return oauth.identity == "caller"

    @property
    def endpoint(self) -> str:
        """The command line or URL as it may be shown, secrets masked."""
        if self.transport == "stdio":
            hide = self._hider()
            return " ".join(map(_quoted, self._shown_args((self.command, *self.args), hide)))
        if self.server is not None:
            return f"in-process {type(self.server).__name__}"
        return self._hider()(mask_url(self.url)) or self.transport

    @property
    def caution(self) -> str:
        """A readable warning about a setting that works but is unsafe; `""` without one."""
        parts = urlsplit(self.url)
        if parts.scheme != "http" or is_loopback(parts.hostname):
            return ""
        if not self._sends_credentials:
            return ""
        return (
            f"its credentials go to {parts.hostname!r} over plain http, where anyone on the way can read them; "
            "use an https URL"
        )

    @property
    def _sends_credentials(self) -> bool:
        if self.auth is not None and not self.auth.may_send_nothing:
            return True
        return callable(self.headers) or any(map(looks_secret, self.headers))

    def env_values(self) -> dict[str, str]:
        """Return the environment variables as plain strings, for the process and nothing else."""
        return {name: reveal(value) for name, value in self.env.items()}

    def header_values(self) -> dict[str, str]:
        """Return the fixed headers as plain strings; none when `headers` is a callable."""
        if callable(self.headers):
            return {}
        return {name: reveal(value) for name, value in self.headers.items()}

    def redact(self, text: str) -> str:
        """Return a foreign text (a process's output, an answer) with this server's secrets masked.

        Credentials, header values, secret-looking variables, arguments and options, and the user info of URLs in
        these, of at least four characters, also where the text has them escaped or encoded.
        """
        return mask_foreign(text, self._secrets())

    def error(self, message: str, *, field: str | None = None) -> ConfigError:
        """Make a `ConfigError` about this server, with its name and location and without its secrets."""
        # Both may be of any type, if this error is about them.
        name = as_text(self.name)
        given: object = self.source
        source = given if isinstance(given, Source) else None
        return error_at(source, self._hider()(message), server=name or None, field=field)

    def replace(self, **changes: Unpack[ServerSettings]) -> Self:
        """Return a config with some fields changed, checked like a new one.

        Raises:
            ConfigError: As the class.
        """
        return msgspec.structs.replace(self, **changes)

    def to_mapping(self) -> Json:
        """Return the entry that `parse_server` reads back: values that differ from the defaults, secrets wrapped."""
        out: Json = {}
        for name, value in self.without_defaults().items():
            if name in _NOT_COMPARED:
                continue
            if isinstance(value, Timeouts):
                value = value.to_dict()
            elif isinstance(value, (Auth, ResourceLimits, Sandbox)):
                value = value.to_mapping()
            elif name == "shape":
                value = [rule.to_mapping() for rule in self.shape]
            out[name] = _thawed(value)
        return out

    def to_dict(self, *, reveal: bool = False) -> Json:
        """Return the entry as a JSON object; secrets are `***` unless `reveal` is true.

        Objects that only code can give (a callable, an in-process server) are shown by their type's name.
        """
        entry = self.to_mapping()
        if reveal:
            return {key: _plain(value, _reveal_all) for key, value in entry.items()}
        hide = self._hider()
        if self.args:
            entry["args"] = self._shown_args(self.args, hide)
        if self.command:
            entry["command"] = mask_args((self.command,))[0]
        if self.url:
            entry["url"] = mask_url(self.url)
        for name in ("auth", "options", "shape"):
            if name in entry:
                entry[name] = mask_options(entry[name])
        return {key: _plain(value, hide) for key, value in entry.items()}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ServerConfig):
            return NotImplemented
        # Where a server was configured does not change what it is: a reload of an unchanged entry keeps its connection.
        names = (name for name in self.__struct_fields__ if name not in _NOT_COMPARED)
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def __hash__(self) -> int:
        # A part is enough for a hash, and other fields hold mappings, which cannot be hashed.
        return hash((self.name, self.transport, self.command, tuple(self.args), self.url))

    def __repr__(self) -> str:
        shown = ", ".join(f"{key}={value!r}" for key, value in self.to_dict().items())
        return f"ServerConfig({shown})"

    def __reduce__(self) -> tuple[Any, ...]:
        state = msgspec.structs.asdict(self)
        for key in ("env", "headers", "claim_headers", "options", "confirm"):
            state[key] = _thawed(state[key])  # a read-only view does not pickle
        return _rebuild, (state,)

    def _shown_args(self, words: Sequence[str], hide: Callable[[str | Secret], str]) -> list[str]:
        """Return arguments with their secrets masked by place and by value.

        A mask in the middle of a value hides it from the search for that value, and the rest would stay visible. So
        both orders are tried, and an argument that they mask differently is masked as a whole.
        """
        by_place_first = map(hide, mask_args(words))
        by_value_first = mask_args(list(map(hide, words)))
        shown: list[str] = []
        for one, other in zip(by_place_first, by_value_first, strict=True):
            if one == other:
                shown.append(one)
            else:
                shown.append(MASK)
        return shown

    def _hider(self) -> Callable[[str | Secret], str]:
        """Return a function that masks the secrets in a text; they are looked for once, for all texts of a view."""
        secrets = self._secrets()
        sensitive = _plain_texts(self.sensitive)

        def hide(text: str | Secret) -> str:
            if isinstance(text, Secret):
                return MASK
            return mask_foreign(mask_values(text, sensitive), secrets)

        return hide

    def _secrets(self) -> list[str]:
        """Return the values to mask, short ones included. The config may be invalid, with fields of any type."""
        # An error about one field must not show the secrets of the others, so this works before the checks are done.
        named = [f"{name}={value}" for name, value in _texts(self.env)]
        values: list[str] = []
        for words in ((self.command, *_items(self.args)), named, (self.url,)):
            values += secrets_in([word for word in words if isinstance(word, str)])
        rules = [rule.to_mapping() for rule in _items(self.shape) if isinstance(rule, ShapeRule)]
        values += secrets_in_options({"shape": rules, "options": self.options})
        values += _plain_texts(self.sensitive)
        for _, header in _texts(self.headers):
            # a server may repeat the token without its scheme
            values += (header, header.partition(" ")[2])
        if isinstance(self.auth, Auth):
            values += self.auth.secrets()
        return values


def _thawed(value: object) -> object:
    """Return a read-only mapping as a dictionary and a tuple as a list, as an entry has them."""
    if isinstance(value, MappingProxyType):
        return dict(object_or_empty(value))  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, tuple):
        return list(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return value


def _quoted(word: str) -> str:
    """Quote a word as a shell wants it, the mask counting as plain text."""
    return shlex.quote(word.replace(MASK, "_mask_")).replace("_mask_", MASK)


def _rebuild(state: Json) -> ServerConfig:
    return ServerConfig(**state)


def _reveal_all(text: str | Secret) -> str:
    return reveal(text)


def _items(value: object) -> Sequence[Any]:  # a field that may not be checked yet
    return as_sequence(value) or ()


def _plain_texts(value: object) -> list[str]:  # as above
    return [reveal(item) for item in _items(value) if isinstance(item, (str, Secret))]


def _texts(value: object) -> Sequence[tuple[str, str]]:  # as above
    members = object_or_empty(value).items()
    return [(str(name), reveal(item)) for name, item in members if isinstance(item, (str, Secret))]


def _plain(value: object, show: Callable[[str | Secret], str]) -> object:
    """Return a value as JSON, its texts and secrets shown by a function."""
    if isinstance(value, (str, Secret)):
        return show(value)
    if value is None or isinstance(value, (int, float)):
        return value
    members = as_object(value)
    if members is not None:
        return {str(key): _plain(item, show) for key, item in members.items()}
    items = as_sequence(value)
    if items is not None:
        return [_plain(item, show) for item in items]
    return f"<{type(value).__name__}>"


def known_transports() -> frozenset[str]:
    """Return the names `ServerConfig.transport` accepts: the built-in ones and the registered ones."""
    return frozenset(BUILT_IN_TRANSPORTS) | _registered


def register_transport_name(name: str) -> None:
    """Let configs use a transport of this name; doing it again has no effect.

    Raises:
        ConfigError: The name is empty or not a string.
    """
    if not check_text(name, "transport").strip():
        raise ConfigError("a transport needs a name", field="transport")
    _registered.add(name)


def _normalised(config: ServerConfig) -> Json:
    """Return every field in its canonical form, `transport` inferred, values checked one by one."""
    out: Json = {name: check(getattr(config, name), name) for name, check in FIELD_CHECKS.items()}
    out["transport"] = _transport(config, out)
    # Last, as it needs all three: the URL of a registered transport has a form that only the transport knows, and the
    # header for the user info must not replace one that the owner gave.
    if out["url"] and out["transport"] not in _registered:
        out["url"], out["headers"] = _without_user_info(check_url(out["url"]), out["headers"])
    return out


def _check_reachable(config: ServerConfig) -> None:
    """Check that the transport has the fields it needs."""
    transport = config.transport
    if transport not in known_transports():
        known = ", ".join(sorted(known_transports()))
        raise ConfigError(f"unknown transport {transport!r}; known: {known}", field="transport")
    if transport == "stdio" and not config.command.strip():
        raise ConfigError("transport 'stdio' needs 'command', the program to start", field="command")
    if transport in _REMOTE and not config.url:
        raise ConfigError(f"transport {transport!r} needs 'url', the address of the MCP endpoint", field="url")
    if transport == "inprocess" and config.server is None:
        raise ConfigError("transport 'inprocess' needs 'server', an object from code", field="server")
    if config.forward_headers or config.claim_headers:
        if transport not in _REMOTE:
            raise ConfigError(
                f"headers of callers need a server with a 'url': transport {transport!r} has no headers. Send a claim "
                'as an argument by a rule in \'shape\': {"arguments": {"NAME": {"claim": "CLAIM"}}}',
                field="forward_headers" if config.forward_headers else "claim_headers",
            )
        fixed = () if callable(config.headers) else config.headers
        check_caller_headers(fixed, config.forward_headers, config.claim_headers)


def canonical_transport(name: str) -> str:
    """Return the one name of a transport that has several, without its deprecations."""
    plain = name.strip().replace("-", "_").lower()
    if plain in BUILT_IN_TRANSPORTS:
        return plain
    return _SYNONYMS.get(plain, name)


def warn_deprecated(message: str) -> None:
    """Issue a `DeprecationWarning` at the nearest caller outside of the package."""
    # The number of our own frames differs by way: a config from code, an entry of a file, a pydantic model.
    level = 1
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("toolweave."):
        frame = frame.f_back
        level += 1
    warnings.warn(message, DeprecationWarning, stacklevel=level)


def _transport(config: ServerConfig, out: JsonObject) -> str:
    name = check_text(config.transport, "transport")
    if name == "websocket" and name not in _registered:
        warn_deprecated(WEBSOCKET_DEPRECATED)
        return "http"
    if name:
        if name in _registered:
            return name
        return canonical_transport(name)
    given = [field for field in ("command", "url") if out[field]]
    if len(given) > 1:
        raise ConfigError("has both 'command' and 'url'; say which with 'transport'", field="transport")
    if given:
        if given == ["command"]:
            return "stdio"
        return "http"
    if config.server is not None:
        return "inprocess"
    raise ConfigError(
        "has neither 'command' (a program to start) nor 'url' (a server to reach); one is needed", field="command"
    )


def _without_user_info(url: str, headers: HeadersField) -> tuple[str, HeadersField]:
    plain, info = split_user_info(url)
    if info is None:
        return url, headers
    if callable(headers) or any(name.lower() == "authorization" for name in headers):
        raise ConfigError("'url' holds user and password although 'headers' authorize already", field="url")
    basic = "Basic " + base64.b64encode(info.encode()).decode()
    return plain, MappingProxyType({**headers, "Authorization": wrap(basic)})
