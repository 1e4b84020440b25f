"""The methods that serve an endpoint: over stdio, over HTTP, in process, async or blocking.

A transport is imported when it is used, so that a server over stdio loads nothing of HTTP.
"""

from __future__ import annotations

import asyncio
import functools
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Unpack

import anyio
import anyio.abc

from toolweave.serve._changes import Changes
from toolweave.serve._duplex.conversation import MAX_REQUESTS
from toolweave.serve._duplex.inprocess import ClientEnd, InProcessSessions, in_process
from toolweave.serve._endpoint import Endpoint
from toolweave.serve._plain_calls import PlainCalls
from toolweave.serve.request import Offered
from toolweave.tools import Toolset, ToolSpec
from toolweave.tools.owner_loop import running_loop

if TYPE_CHECKING:
    from toolweave.serve._auth.token_auth import TokenAuth
    from toolweave.serve._http.app import HttpApp, ServedEndpoint
    from toolweave.serve._http.options import HttpOptions


def run_blocking(serve: Callable[[], Awaitable[None]], *, name: str, instead: str) -> None:
    """Run `serve` as the process's main job.

    Args:
        serve: Serves until it is done.
        name: The function that was called, for errors.
        instead: The async alternative that the error names.

    Raises:
        RuntimeError: Called inside an event loop.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        if _foreign_loop_runs():
            running_loop(f"{name}()")
    else:
        raise RuntimeError(f"an event loop runs in this thread already; await {instead}() instead")
    anyio.run(serve, backend_options={"use_uvloop": find_spec("uvloop") is not None})


def _foreign_loop_runs() -> bool:
    """Whether an event loop other than asyncio's runs in this thread: trio's."""
    try:
        anyio.get_cancelled_exc_class()
    except RuntimeError:
        return False
    return True


class ServerRunners(ABC):
    """Base class with the methods that serve an endpoint.

    Attributes:
        name: Its name, for programs.
        tools: Everything that is offered as a tool.
        endpoint: Answers the requests of every transport.
        changes: The change notifications and their subscribers.
        auth: The authorization of requests over HTTP, where serving is given none; None for none.
    """

    name: str
    tools: Toolset
    endpoint: Endpoint
    changes: Changes
    auth: TokenAuth | None = None
    _plain_calls: PlainCalls

    def __init__(self) -> None:
        self._visits = InProcessSessions(self._visit)

    @abstractmethod
    def running(self) -> AbstractAsyncContextManager[anyio.abc.TaskGroup]:
        """Run the server's lifespan; each transport enters it once, any number may."""

    @abstractmethod
    def find_tool(self, name: str, version: str | None = None) -> ToolSpec | None:
        """Return the definition of a tool that is offered under this name or alias, or one version of it, or None."""

    @abstractmethod
    def offers_of(self, method: str, params: Mapping[str, Any]) -> Sequence[Offered]:
        """Return the offers that a request is about, with the scopes that their definitions need."""

    async def learn_offers(self, method: str, params: Mapping[str, Any]) -> None:  # noqa: B027  # most know theirs
        """Read the definitions that `offers_of` needs; a server's own offers are known."""

    def tool_schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the input schema of a tool that is offered under this name or alias, or None."""
        spec = self.find_tool(name)
        if spec is None:
            return None
        return spec.input_schema

    def speak(self, protocol: str) -> None:
        """Speak only some protocol revisions, as a server that knows no others; call it before serving.

        Args:
            protocol: `"auto"` for all, which is the default, `"legacy"` for those that begin with `initialize`, else
                one, such as `"2025-11-25"`.

        Raises:
            ValueError: The revision is not known.
        """
        self.endpoint.speak(protocol)

    def run(
        self,
        transport: Literal["stdio", "http"] = "stdio",
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        on_started: Callable[[str], object] | None = None,
        **options: Unpack[HttpOptions],
    ) -> None:
        """Serve as the process's main job: `run_stdio()`, or `run_http(host, port, ...)` with `transport="http"`.

        Args:
            transport: The transport to serve on.
            host: For HTTP: the address or name to bind.
            port: For HTTP: the port, 0 for a free one.
            on_started: For HTTP: called with the address once requests are accepted; None writes it to standard error.
            **options: For HTTP; see `HttpOptions`.

        Raises:
            RuntimeError: Called inside an event loop; use `await serve_stdio()` or `await serve_http()` there.
            TypeError: An option is unknown, on either transport.
            ValueError: The transport is not known.
        """
        if transport == "http":
            self.run_http(host, port, on_started=on_started, **options)
        elif transport == "stdio":
            if options:  # those of HTTP, for a server that runs over stdio now
                from toolweave.serve._http.options import check_option_names

                check_option_names("run()", options)
            self.run_stdio()
        else:
            raise ValueError(f"a server runs over 'stdio' or 'http', not {transport!r}")

    # stdio

    async def serve_stdio(self, *, max_requests: int = MAX_REQUESTS) -> None:
        """Serve one client over standard input and output, until it ends the conversation or a signal does.

        Nothing else may write to standard output; `print` goes to standard error meanwhile.

        Args:
            max_requests: How many requests may run at once. More are refused with -32603 and `data.retryable`; pings
                are always answered.

        Raises:
            RuntimeError: A server of this process serves them already, or no asyncio event loop is running.
        """
        running_loop("serve_stdio()")
        await self._serve_stdio(max_requests=max_requests, owns_process=False)

    def run_stdio(self, *, max_requests: int = MAX_REQUESTS) -> None:
        """Serve over standard input and output as the process's main job; returns when the client is gone.

        See `serve_stdio`.

        Raises:
            RuntimeError: Called inside an event loop; use `await serve_stdio()` there.
        """
        serve = functools.partial(self._serve_stdio, max_requests=max_requests, owns_process=True)
        run_blocking(serve, name="run_stdio", instead="serve_stdio")

    async def _serve_stdio(self, *, max_requests: int, owns_process: bool) -> None:
        from toolweave.serve._duplex.stdio import serve_stdio

        await serve_stdio(
            self.endpoint,
            lifespan=self.running,
            conversations=self.changes,
            closing=self.changes.close,
            max_requests=max_requests,
            owns_process=owns_process,
        )

    # HTTP

    def asgi_app(self, *, host: str = "127.0.0.1", **options: Unpack[HttpOptions]) -> HttpApp:
        """Return the server as an ASGI app, whose lifespan enters toolsets that are not open.

        Args:
            host: The address that will be bound; it decides which Host headers are right.
            **options: See `HttpOptions`; `path` is `/mcp` by default, `auth` that of the server.

        Raises:
            ConfigError: An option is wrong.
            TypeError: An option is unknown, or has another type.
        """
        from toolweave.serve._http.app import http_app

        if options.get("auth") is None:
            # None is what a program passes that has none to give; it does not take away the server's own.
            options["auth"] = self.auth
        return http_app(self.http_endpoint(), host=host, options=options)

    def http_endpoint(self) -> ServedEndpoint:
        """Return the server as `HttpApp.mounted` takes it: to be served beside another, on one port."""
        from toolweave.serve._http.app import ServedEndpoint

        return ServedEndpoint(
            endpoint=self.endpoint,
            lifespan=self.running,
            offers=self.offers_of,
            conversations=self.changes,
            tool_schema=self.tool_schema,
            on_drain=[self.changes.close],
            auth=self.auth,
            plain=self._plain_calls,
        )

    async def serve_http(
        self,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        tls: tuple[str, str] | None = None,
        on_started: Callable[[str], object] | None = None,
        **options: Unpack[HttpOptions],
    ) -> None:
        """Serve over HTTP until SIGINT or SIGTERM, or until cancelled; calls that run may finish.

        Args:
            host: The address or name to bind.
            port: The port, 0 for a free one.
            tls: The files of certificate and key; None for plain HTTP.
            on_started: Called with the address, such as `http://127.0.0.1:8000`, once requests are accepted.
            **options: See `HttpOptions`; `path` is `/mcp` by default.

        Raises:
            ConfigError: An option is wrong.
            OSError: The port cannot be bound.
            RuntimeError: No asyncio event loop is running.
        """
        running_loop("serve_http()")
        from toolweave.serve._http.http_server import serve_http

        app = self.asgi_app(host=host, **options)
        await serve_http(app, host=host, port=port, tls=tls, on_started=on_started)

    def run_http(
        self,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        tls: tuple[str, str] | None = None,
        on_started: Callable[[str], object] | None = None,
        **options: Unpack[HttpOptions],
    ) -> None:
        """Serve over HTTP as the process's main job, until SIGINT or SIGTERM; see `serve_http`.

        Without `on_started`, a line on standard error has the URL once requests are accepted.

        Raises:
            RuntimeError: Called inside an event loop; use `await serve_http()` there.
        """
        started = on_started or functools.partial(_announce, self.name, options.get("path", "/mcp"))
        serve = functools.partial(self.serve_http, host, port, tls=tls, on_started=started, **options)
        run_blocking(serve, name="run_http", instead="serve_http")

    # in process

    async def __aenter__(self) -> ClientEnd:
        """Begin a conversation in this process, for `connect_mcp(server)`; each task may have one.

        Raises:
            RuntimeError: No asyncio event loop is running.
        """
        running_loop("a server in process")
        return await self._visits.enter()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._visits.leave(exc_type, exc, traceback)

    @asynccontextmanager
    async def _visit(self) -> AsyncGenerator[ClientEnd, None]:
        async with self.running(), in_process(self.endpoint, conversations=self.changes) as visit:
            yield visit.client


def _announce(name: str, path: str, address: str) -> None:
    """Write a line with the URL of a server to standard error."""
    sys.stderr.write(f"server {name!r} runs at {address}{path}; Ctrl-C stops it\n")
    sys.stderr.flush()
