"""An application without an OpenAPI document offers its routes."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route

from tests.openapi.documents import document, operation
from toolweave.errors import ConfigError
from toolweave.openapi import openapi_tools


async def pet(request: Request) -> Response:
    """Return a pet.

    With the query that arrived.
    """
    return JSONResponse({"id": request.path_params["id"], "query": dict(request.query_params)})


async def search(request: Request) -> Response:
    """Search pets.
    ---
    parameters:
      - {name: text, in: query, required: true, schema: {type: string}}
    """
    return JSONResponse([request.query_params["text"]])


async def file(request: Request) -> Response:
    return PlainTextResponse(request.path_params["path"])


async def hidden(request: Request) -> Response:
    return PlainTextResponse("hidden")


class Notes(HTTPEndpoint):
    async def get(self, request: Request) -> Response:
        """List notes."""
        return PlainTextResponse(request.path_params["who"])

    async def post(self, request: Request) -> Response:
        """Add a note."""
        return JSONResponse({"who": request.path_params["who"], "got": await request.json()}, 201)


ROUTES = [
    Route("/pets/{id:int}", pet),
    Route("/search", search),
    Route("/files/{path:path}", file),
    Route("/hidden", hidden, include_in_schema=False),
    Mount("/of/{who}", routes=[Route("/notes", Notes)]),
]


async def test_routes_are_tools_with_the_parameters_of_their_paths() -> None:
    async with openapi_tools(Starlette(routes=ROUTES)) as api:
        assert api.problems == ()
        assert set(api.tools.names) == {"pet", "search", "file", "get_Notes", "post_Notes"}
        assert api.tools["pet"].description == "Return a pet.\n\nWith the query that arrived."
        assert api.tools["pet"].input_schema["properties"]["id"] == {"type": "integer"}
        assert api.tools["pet"].annotations == {"readOnlyHint": True}
        assert api.tools["post_Notes"].annotations == {"readOnlyHint": False}
        assert set(api.tools["search"].input_schema["properties"]) == {"text"}


@pytest.mark.parametrize(
    ("name", "arguments", "content"),
    [
        ("pet", {"id": 7}, {"id": 7, "query": {}}),
        ("pet", {"id": 7, "query": {"a": 1, "b": "x y"}}, {"id": 7, "query": {"a": "1", "b": "x y"}}),
        ("search", {"text": "ä&b"}, ["ä&b"]),
        ("file", {"path": "a/b.txt"}, "a/b.txt"),
        ("get_Notes", {"who": "ada"}, "ada"),
        ("post_Notes", {"who": "ada", "body": [1, None]}, {"who": "ada", "got": [1, None]}),
    ],
)
async def test_calls_reach_their_route(name: str, arguments: dict[str, Any], content: Any) -> None:
    async with openapi_tools(Starlette(routes=ROUTES)) as api:
        result = await api.execute(name, arguments)

    assert not result.is_error, result.text
    assert (result.text if isinstance(content, str) else result.structured_content) == content


async def test_an_argument_of_a_path_does_not_lead_to_another_route() -> None:
    async with openapi_tools(Starlette(routes=ROUTES)) as api:
        result = await api.execute("get_Notes", {"who": "ada/notes/../../hidden"})

    assert result.is_error
    assert '"who": must match the pattern' in result.text


@pytest.mark.parametrize("where", ["/openapi.json", "/api/openapi.json", "/schema/openapi.json", "/api/schema/"])
async def test_a_document_that_the_application_publishes_comes_before_its_routes(where: str) -> None:
    async def published(request: Request) -> Response:
        return JSONResponse(document({"/pets/{id}": {"get": operation(operationId="documented")}}))

    async def page(request: Request) -> Response:
        return Response("<html>openapi: 3</html>", media_type="text/html")

    routes = [Route(where, published), Route("/{path:path}", page)]
    async with openapi_tools(Starlette(routes=routes)) as api:
        assert api.tools.names == ("documented",)


async def test_a_base_url_is_the_host_that_an_application_sees() -> None:
    async def host(request: Request) -> Response:
        return PlainTextResponse(f"{request.url.scheme}://{request.headers['host']}{request.url.path}")

    app = Starlette(routes=[Mount("/v1", routes=[Route("/host", host)])])
    async with openapi_tools(app, base_url="https://shop.example") as api:
        assert (await api.execute("host")).text == "https://shop.example/v1/host"


async def test_an_application_of_an_unknown_framework_without_a_document_is_named_with_what_was_tried() -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    with pytest.raises(ConfigError, match=r"publishes no OpenAPI document at /openapi.json, .*give its document"):
        async with openapi_tools(application):
            pass


def test_an_application_of_wsgi_is_refused_with_the_way_out() -> None:
    def application(environ: Any, start_response: Any) -> list[bytes]:
        return []

    with pytest.raises(ConfigError, match=r"WSGI application, .* give the URL of its OpenAPI document"):
        openapi_tools(application)  # pyright: ignore[reportArgumentType]


async def test_background_work_of_an_application_is_finished_after_its_answer() -> None:
    released, done = anyio.Event(), anyio.Event()
    life: list[str] = []

    async def work() -> None:
        await released.wait()
        life.append("worked")
        done.set()

    async def order(request: Request) -> Response:
        return JSONResponse({"ordered": True}, background=BackgroundTask(work))

    with anyio.fail_after(20):
        async with openapi_tools(Starlette(routes=[Route("/order", order, methods=["POST"])])) as api:
            assert (await api.execute("order")).structured_content == {"ordered": True}
            life.append("answered")
            released.set()
        await done.wait()

    assert life == ["answered", "worked"]
