"""An application of this process is called without a socket, with its lifespan around the calls."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from fastapi import APIRouter, FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.openapi.documents import document, operation
from toolweave import connect_mcp, create_mcp_server
from toolweave.errors import ConfigError, ErrorKind
from toolweave.openapi import OpenApiOptions, openapi_tools
from toolweave.tools import CallContext

ECHO = {
    "get": operation(operationId="get", parameters=[{"name": "q", "in": "query", "schema": {"type": "string"}}]),
    "post": operation(
        operationId="post",
        requestBody={"required": True, "content": {"application/json": {"schema": {"type": "array"}}}},
    ),
}
DOCUMENT = document(
    {
        "/echo": ECHO,
        "/boom": {"get": operation(operationId="boom")},
        "/slash": {"post": operation(operationId="slash")},
        "/away": {"get": operation(operationId="away")},
        "/stream": {"get": operation(operationId="stream")},
        "/slow": {"get": operation(operationId="slow")},
        "/events": {"get": operation(operationId="events")},
        "/broken": {"get": operation(operationId="broken")},
    }
)


class Application:
    """A Starlette application that notes its life."""

    def __init__(self) -> None:
        self.life: list[str] = []
        self.slow_ended = anyio.Event()
        self.app = Starlette(
            routes=[
                Route("/openapi.json", self.document),
                Route("/echo", self.echo, methods=["GET", "POST"]),
                Route("/boom", self.boom),
                Route("/slash", self.slash, methods=["POST"]),
                Route("/slash/", self.slash, methods=["POST"]),
                Route("/away", self.away),
                Route("/stream", self.stream),
                Route("/slow", self.slow),
                Route("/events", self.events),
                Route("/broken", self.broken),
            ],
            lifespan=self.lifespan,
        )

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncGenerator[dict[str, Any]]:
        self.life.append("started")
        yield {"pool": "open"}
        self.life.append("stopped")

    async def echo(self, request: Request) -> Response:
        body = await request.body()
        return JSONResponse(
            {
                "query": dict(request.query_params),
                "body": body.decode(),
                "pool": request.state.pool,
                "agent": request.headers.get("x-agent"),
            }
        )

    async def document(self, request: Request) -> Response:
        return JSONResponse(DOCUMENT)

    async def slash(self, request: Request) -> Response:
        return JSONResponse({"slash": True}) if request.url.path.endswith("/") else RedirectResponse("/slash/", 307)

    async def away(self, request: Request) -> Response:
        return RedirectResponse("https://elsewhere.example/", 302)

    async def stream(self, request: Request) -> Response:
        return StreamingResponse(self.pieces(), media_type="text/plain")

    async def boom(self, request: Request) -> Response:
        raise RuntimeError("secret detail")

    async def pieces(self) -> AsyncGenerator[str]:
        for number in range(100):
            yield f"{number},"

    async def events(self, request: Request) -> Response:
        async def told() -> AsyncGenerator[bytes]:
            yield b"data: 1\n\n"
            await anyio.sleep_forever()

        return StreamingResponse(told(), media_type="text/event-stream")

    async def broken(self, request: Request) -> Response:
        async def pieces() -> AsyncGenerator[bytes]:
            yield b"[1,"
            raise RuntimeError("secret detail")

        return StreamingResponse(pieces(), media_type="application/json")

    async def slow(self, request: Request) -> Response:
        try:
            await anyio.sleep_forever()
        finally:
            self.slow_ended.set()
        raise AssertionError("it sleeps forever")


async def test_an_application_is_called_with_its_lifespan_around_the_calls() -> None:
    made = Application()
    async with openapi_tools(made.app, headers={"X-Agent": "a"}) as toolset:
        assert set(toolset.tools.names) == {
            one["operationId"] for item in DOCUMENT["paths"].values() for one in item.values()
        }
        async with toolset:
            got = await toolset.execute("get", {"q": "a b&c"})
        assert got.structured_content == {"query": {"q": "a b&c"}, "body": "", "pool": "open", "agent": "a"}
        posted = await toolset.execute("post", {"body": [1, 2]})
        assert posted.structured_content["body"] == "[1,2]"
        assert (await toolset.execute("stream")).text == "".join(f"{number}," for number in range(100))
        assert made.life == ["started"]
    assert made.life == ["started", "stopped"]


async def test_redirects_stay_in_the_application_and_exceptions_are_errors() -> None:
    async with openapi_tools(Application().app) as toolset:
        assert (await toolset.execute("slash")).structured_content == {"slash": True}
        away = await toolset.execute("away")
        assert "redirects to another server" in away.text
        boom = await toolset.execute("boom")
        assert boom.is_error
        assert "secret detail" not in boom.text


async def test_a_stream_of_events_that_falls_silent_is_what_came_until_then() -> None:
    async with openapi_tools(Application().app, options=OpenApiOptions(timeout=0.2)) as toolset:
        result = await toolset.execute("events")

    assert result.structured_content == {"events": [{"event": "message", "data": 1}], "complete": False}


async def test_an_answer_that_breaks_off_is_an_error() -> None:
    async with openapi_tools(Application().app) as toolset:
        result = await toolset.execute("broken")

    assert result.require_error().kind is ErrorKind.OUTCOME_UNKNOWN
    assert "secret detail" not in result.text


async def test_a_call_that_is_given_up_ends_the_request() -> None:
    made = Application()
    async with openapi_tools(made.app) as toolset:
        result = await toolset.execute("slow", {}, CallContext(timeout=0.05))
        assert result.require_error().kind is ErrorKind.TIMEOUT
        with anyio.fail_after(10):
            await made.slow_ended.wait()


async def test_one_task_may_enter_first_and_another_leave_last() -> None:
    made = Application()
    toolset = openapi_tools(made.app)
    inside, left = anyio.Event(), anyio.Event()

    async def first() -> None:
        async with toolset:
            inside.set()
            await left.wait()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first)
        await inside.wait()
        async with toolset:
            left.set()
            await anyio.lowlevel.checkpoint()
    assert made.life == ["started", "stopped"]


async def test_an_application_that_does_not_start_says_so() -> None:
    @asynccontextmanager
    async def broken(app: Starlette) -> AsyncGenerator[None]:
        raise RuntimeError("no database")
        yield

    toolset = openapi_tools(Starlette(lifespan=broken))
    for _ in range(2):
        with pytest.raises(ConfigError, match="did not start"):
            async with toolset:
                pass


@pytest.mark.parametrize("anew", [False, True])
async def test_an_application_whose_lifespan_waits_for_its_own_operations_is_told_so_at_once(anew: bool) -> None:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with openapi_tools(app) if anew else toolset:
            yield

    app = Starlette(routes=[Route("/openapi.json", Application().document)], lifespan=lifespan)
    toolset = openapi_tools(app)

    with anyio.fail_after(10), pytest.raises(ConfigError, match="which waits for that lifespan"):
        async with toolset:
            pass


async def test_an_application_without_a_lifespan_and_with_a_document_of_its_own_is_served() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": b'{"path": "%b"}' % scope["raw_path"]})

    class WithDocument:
        """As FastAPI's: it is called, and makes its document."""

        def openapi(self) -> dict[str, Any]:
            return document({"/a/{id}": {"get": operation(parameters=[
                {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}])}})  # fmt: skip

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await app(scope, receive, send)

    async with openapi_tools(WithDocument()) as toolset:
        assert (await toolset.execute("get_a_id", {"id": "x/y"})).structured_content == {"path": "/a/x%2Fy"}


async def test_routes_of_fastapi_are_called_by_the_names_of_their_functions() -> None:
    app = FastAPI()
    router = APIRouter(prefix="/shop")

    @router.get("/items/{item_id}")
    async def read_item(item_id: int) -> dict[str, int]:
        "Return an item by its number."
        return {"id": item_id}

    @router.get("/files/{path:path}")
    async def read_file(path: str) -> dict[str, str]:
        return {"path": path}

    app.include_router(router)
    async with openapi_tools(app) as toolset:
        assert toolset.tools.names == ("read_item", "read_file")
        assert [tool.description for tool in toolset.tools] == ["Return an item by its number.", "Read File"]
        assert [tool.title for tool in toolset.tools] == ["Read Item", "Read File"]
        assert (await toolset.execute("read_item", {"item_id": 7})).structured_content == {"id": 7}
    assert read_file


async def test_an_application_is_served_as_an_mcp_server() -> None:
    server = create_mcp_server("echo", tools=openapi_tools(Application().app))
    async with connect_mcp(server) as connection:
        tools = await connection.list_tools()
        assert (await tools["get"].execute({"q": "x"})).structured_content["query"] == {"q": "x"}
