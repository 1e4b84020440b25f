"""An API as a toolset: its document is read once, each call is a request."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias, cast
from urllib.parse import urljoin, urlsplit

import anyio
import anyio.to_thread

from toolweave._files import read_file
from toolweave._json_types import array_or_empty, as_array, object_or_empty
from toolweave._masking import mask_foreign
from toolweave._text import counted
from toolweave.config import Secret, looks_secret, reveal
from toolweave.config.validation import check_headers, check_url
from toolweave.errors import ConfigError, ErrorKind, ToolError, as_tool_error
from toolweave.http import TransportError, origin_of
from toolweave.openapi._asgi import AsgiApp, AsgiSender
from toolweave.openapi._bodies import BodyWriter, UnusableArgument
from toolweave.openapi._credentials import ApiAuth, ApiCredentials, AppliedCredentials
from toolweave.openapi._document import MAX_BYTES, ApiDocument, plain, read_text
from toolweave.openapi._operations import Operation, OperationProblem, OperationReader
from toolweave.openapi._request_parts import request_parts
from toolweave.openapi._resources import ApiResources
from toolweave.openapi._results import AnswerReader
from toolweave.openapi._routes import RoutesDocument, asgi_of, document_of_routes, framework_origin, is_wsgi
from toolweave.openapi._sender import ApiRequest, ApiSender, HttpSender, unanswered, with_query
from toolweave.openapi._styles import joined
from toolweave.schema import Problem
from toolweave.schema.fitting import fitted
from toolweave.tools import BaseToolset, CallContext, ToolCall, ToolResult, ToolsChanged, ToolSnapshot, Unsubscribe
from toolweave.tools.names import unknown_tool
from toolweave.tools.owner_loop import OwnerLoop
from toolweave.tools.result import invalid_input
from toolweave.tools.toolset import Listeners

ApiSource: TypeAlias = str | Path | Mapping[str, Any] | AsgiApp
"""A document: its URL, its path, or itself; or an application that is called in this process."""
_IN_PROCESS = "http://localhost"
_CONNECT_SECONDS = 15.0
_PUBLISHED = (
    *("/openapi.json", "/api/openapi.json", "/schema/openapi.json", "/docs/openapi.json", "/openapi.yaml"),
    *("/api/schema/", "/schema/", "/swagger.json"),
)
"""Paths at which the usual frameworks publish the document of an application."""
_STARTING: ContextVar[tuple[AsgiApp, ...]] = ContextVar("_STARTING", default=())
"""The applications whose lifespan runs around this code."""
_NO_OPERATIONS: Mapping[str, Operation] = {}
_VARIABLE = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenApiOptions:
    """Further settings of a toolset of an API, whose defaults are right for most.

    Attributes:
        timeout: Seconds for one request, or for one pause in a stream of events. A call's own timeout has priority.
        max_bytes: The maximum size of an answer, in bytes.
        uploads: The folder whose files a model may upload by their path. Without it, a model can only upload content.
        output_schemas: Whether tools have output schemas, with which answers are compared.
        repair_arguments: Whether arguments that nearly fit are made to fit, such as a text of JSON for an object.
        server_variables: Values of the variables in the document's server URL, instead of their defaults.
    """

    timeout: float = 60.0
    max_bytes: int = 10 * 1024 * 1024
    uploads: Path | None = None
    output_schemas: bool = True
    repair_arguments: bool = True
    server_variables: Mapping[str, str] = field(default_factory=dict[str, str])


def openapi_tools(
    source: ApiSource,
    *,
    base_url: str | None = None,
    auth: ApiAuth = None,
    headers: Mapping[str, str | Secret] | None = None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    name: str | None = None,
    options: OpenApiOptions | None = None,
) -> OpenApiToolset:
    """Return the operations of an API as tools; enter the toolset to use it.

    A document that you pass, or that is in a file, is read at once. A document at a URL, or of an application, is read
    when you enter the toolset.

    Args:
        source: The URL or path of an OpenAPI document (3.0, 3.1 or Swagger 2.0, JSON or YAML), the document, or an
            application of FastAPI, Starlette, Django or another ASGI framework, which is called without a socket.
        base_url: The URL that paths are appended to, instead of the document's servers. Without it, servers with
            private addresses are called only if the document is at such an address.
        auth: A token for the security scheme of each operation, `(user, password)`, an `Auth`, an `OAuth` with the id
            and secret of a client that gets its tokens for itself (RFC 6749, 4.4), a callable that returns a token, or
            a mapping from names of security schemes to any of these.
        headers: Headers of every request, such as a version. Headers and credentials are sent only to the API's origin.
        include: Patterns of the operations to offer, as in `fnmatch`: a tool's name, an operation id, `GET /pets*`,
            or `tag:NAME`. Without patterns, all are offered.
        exclude: Patterns of operations that are not offered even if `include` matches them.
        name: The name for messages; by default the document's title.
        options: Further settings.

    Raises:
        ConfigError: The document is not an OpenAPI document, cannot be read or names no server, or another argument is
            not valid.
    """
    if base_url is not None:
        base_url = check_url(base_url, "base_url")
    settings = _Settings(
        base_url=base_url,
        auth=auth,
        headers={key.lower(): reveal(value) for key, value in check_headers(headers or {}).items()},
        include=_patterns(include),
        exclude=_patterns(exclude),
        name=name,
        options=options or OpenApiOptions(),
    )
    return OpenApiToolset(source, settings)


def _patterns(given: str | Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str):
        return (given,)
    return tuple(given)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class _Settings:
    base_url: str | None
    auth: ApiAuth
    headers: Mapping[str, str]
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    name: str | None
    options: OpenApiOptions


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class _Api:
    """A document that was read.

    Attributes:
        base_url: The URL of its server.
        operations: The operations by the names of their tools.
    """

    document: ApiDocument
    base_url: str
    credentials: ApiCredentials
    operations: Mapping[str, Operation]
    problems: tuple[OperationProblem, ...]


class OpenApiToolset(BaseToolset):
    """The operations of an API as tools, made by `openapi_tools`.

    Each call is one request. An error status is an error result with the status in `error.data["status"]`.

    It may be entered several times, at once or one after another.
    """

    # The first to enter opens the sender and the last to leave closes it, both under the lock `_opening`, so that the
    # second waits until the first has opened. `_owner` remembers the event loop that opened it: a call from another
    # loop runs there. The document is read once and stays when the toolset is closed.

    __slots__ = ("_api", "_app", "_changed", "_listeners", "_opening", "_owner", "_sender", "_settings", "_snapshot",
                 "_source", "_users")  # fmt: skip

    def __init__(self, source: ApiSource, settings: _Settings) -> None:
        self._settings = settings
        self._source = source
        self._app: AsgiApp | None = None
        self._api: _Api | None = None
        self._sender: HttpSender | AsgiSender | None = None
        self._snapshot = ToolSnapshot()
        self._listeners = Listeners()
        self._opening = anyio.Lock()
        self._owner = OwnerLoop(settings.name or "api")
        self._users = 0
        if isinstance(source, Mapping):
            self._read(ApiDocument(plain(cast("object", source), "the document"), shown="the document"))
        elif isinstance(source, Path):
            self._read(_from_file(source))
        elif not isinstance(source, str):
            self._app = _application(source)
        elif not source.startswith(("http://", "https://")):
            self._read(_from_file(Path(source)))

    @property
    def problems(self) -> tuple[OperationProblem, ...]:
        """The faults of the document, each with the operation that it excludes; other operations are not affected."""
        if self._api is None:
            return ()
        return self._api.problems

    @property
    def name(self) -> str:
        """The name for messages."""
        if self._settings.name:
            return self._settings.name
        if self._api is None:
            return "api"
        return str(self._api.document.objects("info").get("title") or "api")

    @property
    def base_url(self) -> str | None:
        """The URL that paths are appended to; None until the document is read."""
        if self._api is None:
            return None
        return self._api.base_url

    def resources(self, uri: str = "api://") -> ApiResources:
        """Return the GET operations that need only their path as resources; pass them to `resources=` of a server.

        `GET /pets/{id}` is the template `api://pets/{id}`, and a path without parameters is a resource. Reading one
        calls the operation as the tool does, without its optional parameters.

        Args:
            uri: The beginning of each URI, before the path.
        """
        return ApiResources(self, self._operations, uri)

    def _operations(self) -> Mapping[str, Operation]:
        if self._api is None:
            return _NO_OPERATIONS
        return self._api.operations

    def snapshot(self) -> ToolSnapshot:
        """Return the tools; none until the document is read."""
        return self._snapshot

    def subscribe(self, listener: Callable[[ToolsChanged], None]) -> Unsubscribe:
        """Call `listener` when the document is read; see `Toolset.subscribe`."""
        return self._listeners.subscribe(listener)

    async def __aenter__(self) -> Self:
        """Read the document if it is not read yet, and start the application.

        Raises:
            ConfigError: The document cannot be read, is not an OpenAPI document or names no server; the application
                does not start, or its lifespan enters a toolset of itself.
        """
        if not self._users and any(app is self._app for app in _STARTING.get()):
            raise ConfigError(
                "the application's lifespan enters a toolset of the same application, which waits for that lifespan: "
                "put the application, and what serves its operations, below an application around both"
            )
        async with self._opening:
            if self._sender is None:
                self._owner.settle()
                await self._open()
            self._users += 1
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        # Counted before the lock is waited for: one who enters meanwhile finds the count, and under the lock either the
        # open sender or none. Shielded, and every wait of closing is bounded.
        self._users -= 1
        with anyio.CancelScope(shield=True):
            async with self._opening:
                if not self._users:
                    await self._close()
        return None

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        """Send the request of one operation; a toolset that is not entered is entered for it."""
        if self._users:
            return await self._owner.run(self._call(call, ctx))
        try:
            async with self:
                return await self._call(call, ctx)
        except ConfigError as exc:
            return ToolResult.failure(str(exc))

    def __repr__(self) -> str:
        tools = len(self._snapshot)
        return f"<OpenApiToolset {self.name!r}: {counted(tools, 'tool')}>"

    async def _open(self) -> None:
        if self._app is not None:
            sender = self._sender = AsgiSender(self._app)
            starting = _STARTING.set((*_STARTING.get(), self._app))
            try:
                await sender.start()
                if self._api is None:
                    await self._read_app(self._app)
            except BaseException:
                await self._close()
                raise
            finally:
                _STARTING.reset(starting)
            return
        api = self._api
        if api is None:
            api = self._read(await self._fetched(str(self._source)))
        self._sender = HttpSender(
            api.base_url, trusted=self._trusted(api.document), connect_seconds=self._connect_seconds
        )

    def _trusted(self, document: ApiDocument) -> tuple[str, ...]:
        """Return the URLs in the config, which are not checked."""
        return tuple(filter(None, (self._settings.base_url, document.url)))

    @property
    def _connect_seconds(self) -> float:
        return min(self._settings.options.timeout, _CONNECT_SECONDS)

    async def _close(self) -> None:
        sender = self._sender
        self._sender = None
        self._owner.leave()
        if isinstance(sender, AsgiSender):
            await sender.stop()
        elif sender is not None:
            sender.close()

    async def _read_app(self, app: Any) -> None:
        """Read the document that an application has or publishes, or one made from its routes.

        Raises:
            ConfigError: The application has no document and no known routes, or its document is malformed.
        """
        shown = "the application's document"
        own = getattr(app, "openapi", None)  # FastAPI's
        if callable(own):
            self._read(ApiDocument(plain(own(), shown), shown=shown))
            return
        for path in _PUBLISHED:
            try:
                text, where = await self._downloaded(self._origin_of_app(app) + path)
            except ConfigError:
                # nothing is published there
                continue
            if text.lstrip().startswith(b"<"):  # a page for a browser
                continue
            value = await anyio.to_thread.run_sync(read_text, text, path)
            self._read(ApiDocument(value, shown=path, url=where))
            return
        made = document_of_routes(app)
        if made is None:
            raise ConfigError(
                f"{_named(app)} has no method 'openapi', publishes no OpenAPI document at {', '.join(_PUBLISHED)}, and "
                "its routes are of no known framework (Starlette, FastAPI, Django): give its document to openapi_tools "
                "instead, with base_url, or serve functions that call it"
            )
        self._read(ApiDocument(made.document, shown="the application's routes"), made)

    def _origin_of_app(self, app: Any) -> str:
        base = self._settings.base_url
        if base is not None:
            return origin_of(base)
        return framework_origin(app) or _IN_PROCESS

    async def _fetched(self, url: str) -> ApiDocument:
        """Return the document at a URL."""
        shown = url.partition("?")[0]
        text, where = await self._downloaded(url)
        value = await anyio.to_thread.run_sync(read_text, text, shown)
        return ApiDocument(value, shown=shown, url=where)

    async def _downloaded(self, url: str) -> tuple[bytes, str]:
        """Get a document and the URL that gave it; credentials are sent if the config names an API at its origin."""
        shown = url.partition("?")[0]
        base = self._settings.base_url
        options = self._settings.options
        sender = self._sender or HttpSender(base or url, trusted=(url,), connect_seconds=self._connect_seconds)
        request = ApiRequest(
            method="GET", url=url, headers={"accept": "application/json, application/yaml;q=0.9, */*;q=0.5"}
        )
        if base is not None:
            request = replace(request, private=self._settings.headers)
        try:
            with anyio.fail_after(options.timeout):
                answer, where = await sender.send(request)
                try:
                    if answer.status != 200:
                        raise ConfigError(
                            f"{shown} was answered with HTTP {answer.status}, so it has no document to read; check the "
                            f"URL, or download the OpenAPI document and give its path"
                            f"{sender.came_through(where)}"
                        )
                    reader = AnswerReader(max_bytes=MAX_BYTES, seconds=options.timeout)
                    return await reader.whole(answer), where
                finally:
                    answer.close()
        except TransportError as exc:
            raise ConfigError(f"{shown}: {unanswered(exc, request)}") from None
        except ToolError as exc:
            raise ConfigError(f"{shown}: {exc}") from None
        except TimeoutError:
            raise ConfigError(f"{shown} did not arrive within {options.timeout:g} s") from None
        finally:
            if isinstance(sender, HttpSender):
                sender.close()

    def _read(self, document: ApiDocument, routes: RoutesDocument | None = None) -> _Api:
        settings = self._settings
        options = self._settings.options
        credentials = ApiCredentials(settings.auth, document, self._trusted(document))
        reader = OperationReader(
            document,
            include=settings.include,
            exclude=settings.exclude,
            output_schemas=options.output_schemas,
            upload_paths=options.uploads is not None,
            concealed=credentials.places | {("header", name) for name in settings.headers},
        )
        operations = {one.spec.name: one for one in reader.read()}
        problems: list[OperationProblem] = []
        if routes is not None:
            problems += routes.problems
        problems += reader.problems
        api = self._api = _Api(
            document=document,
            base_url=self._base_url_of(document),
            credentials=credentials,
            operations=operations,
            problems=tuple(problems),
        )
        before = self._snapshot
        self._snapshot = ToolSnapshot((one.spec for one in operations.values()), version=1)
        self._listeners.emit(ToolsChanged.between(before, self._snapshot))
        return api

    def _base_url_of(self, document: ApiDocument) -> str:
        if self._settings.base_url is not None:
            return self._settings.base_url
        if self._app is not None:
            return self._origin_of_app(self._app)
        return _server_url(document, self._settings.options)

    async def _call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        api = self._api
        sender = self._sender
        operation = self._operations().get(call.name)
        if api is None or sender is None or operation is None:
            return ToolResult.failure(unknown_tool(call.name, self._snapshot.by_name), kind=ErrorKind.NOT_FOUND)
        arguments = dict(call.arguments)
        if not operation.arguments.is_valid(arguments):
            repaired = None
            if self._settings.options.repair_arguments:
                repaired = fitted(operation.arguments, arguments)
            if repaired is None:
                return invalid_input(call.name, operation.arguments.problems(arguments))
            arguments = dict(repaired[0])
        secrets = tuple(value for name, value in self._settings.headers.items() if looks_secret(name))
        try:
            placed = await api.credentials.apply(operation.security)
            secrets = (*secrets, *placed.secrets)
            request = await self._request(api, operation, arguments, placed)
            result = await self._answered(operation, sender, request, ctx)
            if result.is_error and result.require_error().kind is ErrorKind.AUTH_REQUIRED:
                api.credentials.refused()
        except UnusableArgument as exc:
            return invalid_input(call.name, [Problem(path=exc.path, message=str(exc))])
        except TimeoutError:
            seconds = ctx.timeout or self._settings.options.timeout
            problem = f"{operation.method} {operation.path} was not answered within {seconds:g} s"
            return ToolResult.failure(ToolError(problem, kind=ErrorKind.TIMEOUT, retryable=operation.reads))
        except Exception as exc:  # boundary: callables of the user, and an application's own
            return ToolResult.failure(as_tool_error(exc))
        if result.is_error:
            return _masked(result, secrets)
        return result

    async def _answered(
        self, operation: Operation, sender: ApiSender, request: ApiRequest, ctx: CallContext
    ) -> ToolResult:
        options = self._settings.options
        seconds = ctx.timeout or options.timeout
        with anyio.fail_after(seconds) as scope:
            answer, url = await sender.send(request)
            try:
                if answer.headers.get("content-type", "").startswith("text/event-stream"):
                    # the reader bounds the pauses and the size of a stream
                    scope.deadline = float("inf")
                reader = AnswerReader(max_bytes=options.max_bytes, seconds=seconds, through=sender.came_through(url))
                return await reader.read(operation, request, answer, url, ctx)
            finally:
                answer.close()

    async def _request(
        self, api: _Api, operation: Operation, arguments: Mapping[str, Any], placed: AppliedCredentials
    ) -> ApiRequest:
        parts = request_parts(operation, arguments)
        headers = {"accept": operation.accept, **parts.headers}
        content = b""
        if operation.body is not None:
            body = await BodyWriter(self._settings.options.uploads).write(operation.body, arguments)
            if body is not None:
                content, headers["content-type"] = body
        private = {**self._settings.headers, **placed.headers}
        if cookies := "; ".join([*parts.cookies, *placed.cookies]):
            private["cookie"] = cookies
        return ApiRequest(
            method=operation.method,
            url=with_query(self._base_url_for(api, operation).rstrip("/") + parts.path, parts.query),
            headers=headers,
            body=content,
            private=private,
            private_query=joined(placed.query),
        )

    def _base_url_for(self, api: _Api, operation: Operation) -> str:
        has_one_server = self._settings.base_url is not None or self._app is not None
        if has_one_server or operation.server is None:
            return api.base_url
        return _expanded(operation.server, api.document, self._settings.options) or api.base_url


def _application(source: object) -> AsgiApp:
    """Return an application of ASGI.

    Raises:
        ConfigError: It is another object.
    """
    app = asgi_of(source)
    if not callable(app):
        raise ConfigError(f"an OpenAPI document or an ASGI application is expected, not {type(source).__name__}")
    if is_wsgi(app):
        raise ConfigError(
            f"{_named(app)} is a WSGI application, which cannot be called in process: start it with its own server and "
            "give the URL of its OpenAPI document, or serve functions that call it"
        )
    return cast("AsgiApp", app)


def _named(app: object) -> str:
    kind = type(app)
    if kind.__name__ == "function":
        return "the function"
    return f"the {kind.__name__} of {kind.__module__.partition('.')[0]!r}"


def _from_file(path: Path) -> ApiDocument:
    try:
        text = read_file(path, max_bytes=MAX_BYTES)
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or exc
        raise ConfigError(f"the document cannot be read: {reason}", path=str(path)) from None
    return ApiDocument(read_text(text, str(path)), shown=str(path))


def _server_url(document: ApiDocument, options: OpenApiOptions) -> str:
    """Return the URL of a document's first server, without a slash at its end.

    Raises:
        ConfigError: The document names no server and is not at a URL.
    """
    servers = as_array(document.root.get("servers")) or [{"url": "/"}]
    url = _expanded(servers[0], document, options)
    if url is None:
        raise ConfigError(
            f"{document.shown} has no server URL; set base_url or --base-url, such as https://api.example"
        )
    return url


def _expanded(server: object, document: ApiDocument, options: OpenApiOptions) -> str | None:
    """Return the URL of a server with its variables replaced; None for a relative URL in a document without a URL."""
    node = object_or_empty(server)
    variables = object_or_empty(node.get("variables"))

    def value(found: re.Match[str]) -> str:
        name = found[1]
        declared = object_or_empty(variables.get(name))
        chosen = options.server_variables.get(name) or declared.get("default")
        allowed = array_or_empty(declared.get("enum"))
        if chosen is not None and (not allowed or chosen in allowed):
            return str(chosen)
        known = ""
        if allowed:
            known = f"; one of {', '.join(map(str, allowed))}"
        raise ConfigError(f"the server variable {name!r} has no usable value: give options.server_variables{known}")

    url = _VARIABLE.sub(value, str(node.get("url", "/")))
    if document.url:
        url = urljoin(document.url, url)
    if not urlsplit(url).scheme:
        return None
    return check_url(url, "servers").partition("?")[0].partition("#")[0]


def _masked(result: ToolResult, secrets: Sequence[str]) -> ToolResult:
    """Return an error result without the credentials that a server may have echoed in it."""
    error = result.require_error()
    message = mask_foreign(error.message, secrets)
    if message == error.message:
        return result
    return ToolResult.failure(ToolError(message, kind=error.kind, code=error.code, retryable=error.retryable))
