"""`toolweave serve` with what people have: applications, server objects, plain functions, OpenAPI documents.

Each is a real process, and the client is the one of the official SDK.
"""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.cli.command import toolweave
from tests.cli.served import serve_entry, serving
from toolweave import connect_mcp

TEST_SECONDS = 60

pytestmark = pytest.mark.slow


FASTAPI = """
    from contextlib import asynccontextmanager
    from fastapi import FastAPI

    @asynccontextmanager
    async def lifespan(app):
        app.state.stock = {"tea": 3}
        yield

    app = FastAPI(title="Stock", lifespan=lifespan)

    @app.get("/stock/{item}", operation_id="in_stock")
    async def in_stock(item: str) -> dict[str, int]:
        "Say how many there are."
        return {"count": app.state.stock[item]}

    def create() -> FastAPI:
        return app

    def helper() -> None: ...
"""
STARLETTE = """
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def in_stock(request):
        "Say how many there are."
        return JSONResponse({"count": 3})

    web = Starlette(routes=[Route("/stock/{item}", in_stock)])
"""
SDK = """
    from mcp.server.mcpserver import MCPServer

    shop = MCPServer("shop", instructions="Ask first.", version="1.4")

    @shop.tool()
    def in_stock(item: str) -> dict[str, int]:
        "Say how many there are."
        return {"count": 3}
"""
LOW_LEVEL = """
    import mcp_types as types
    from mcp.server.lowlevel import Server

    async def tools(ctx, params):
        return types.ListToolsResult(tools=[types.Tool(name="in_stock", input_schema={"type": "object"})])

    async def call(ctx, params):
        return types.CallToolResult(content=[types.TextContent(type="text", text='{"count": 3}')])

    low = Server("low", on_list_tools=tools, on_call_tool=call)
"""
FUNCTIONS = """
    import json
    from pathlib import Path

    def in_stock(item: str) -> dict[str, int]:
        "Say how many there are."
        return {"count": 3}

    def _internal() -> None: ...

    class Kept: ...

    def main() -> None:
        raise SystemExit("this is the program")

    if __name__ == "__main__":
        main()
"""

DJANGO = {
    "__init__.py": "",
    "settings.py": """
        SECRET_KEY = "only for this test"
        ALLOWED_HOSTS = [".shop.example"]
        ROOT_URLCONF = "mysite.urls"
        INSTALLED_APPS = ["django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes",
                          "django.contrib.messages", "django.contrib.sessions"]
        MIDDLEWARE = ["django.middleware.common.CommonMiddleware", "django.middleware.csrf.CsrfViewMiddleware"]
    """,
    "urls.py": """
        import json
        from django.contrib import admin
        from django.http import JsonResponse
        from django.urls import include, path, re_path
        from django.views import View
        from django.views.decorators.csrf import csrf_exempt
        from django.views.decorators.http import require_POST

        def in_stock(request, item):
            "Say how many there are."
            return JsonResponse({"count": 3, "host": request.get_host(), "query": request.GET.dict()})

        @csrf_exempt
        @require_POST
        def order(request, shelf, item):
            return JsonResponse({"shelf": shelf, "item": item, "body": json.loads(request.body)})

        @require_POST
        def form(request):
            return JsonResponse({})

        class Year(View):
            async def get(self, request, year):
                "Return a year."
                return JsonResponse({"year": year})

        urlpatterns = [
            path("admin/", admin.site.urls),
            path("stock/<slug:item>/", in_stock, name="in_stock"),
            path("shelves/<int:shelf>/", include([path("<item>/order", order, name="order")])),
            re_path(r"^years/(?P<year>[0-9]{4})/$", Year.as_view(), name="year"),
            path("form", form),
        ]
    """,
    "asgi.py": """
        import os
        from django.core.asgi import get_asgi_application

        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mysite.settings")
        application = get_asgi_application()
    """,
    "wsgi.py": """
        import os
        from django.core.wsgi import get_wsgi_application

        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mysite.settings")
        application = get_wsgi_application()
    """,
}


def written(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(dedent(text))
    return file


@pytest.fixture
def site(folder: Path) -> Path:
    """A Django project."""
    for name, text in DJANGO.items():
        written(folder, f"mysite/{name}", text)
    (folder / "manage.py").write_text("")
    return folder


def client_of(*words: object, cwd: Path | None = None) -> Client:
    """The official SDK's client of `toolweave serve` over stdio."""
    entry = serve_entry(*words)
    return Client(stdio_client(StdioServerParameters(command=entry["command"], args=entry["args"], cwd=cwd)))


def text_of(result: Any) -> Any:
    return json.loads(result.content[0].text)


@pytest.mark.parametrize(
    ("text", "target", "name"),
    [
        (FASTAPI, "", "shop"),
        (FASTAPI, ":app", "shop"),
        (FASTAPI, ":create", "create"),
        (STARLETTE, "", "shop"),
        (STARLETTE, ":web", "web"),
        (SDK, "", "shop"),
        (SDK, ":shop", "shop"),
        (LOW_LEVEL, "", "low"),
        (FUNCTIONS, "", "shop"),
        (FUNCTIONS, ":in_stock", "in_stock"),
    ],
    ids=lambda value: value if len(value) < 12 else value.split()[1],
)
async def test_a_foreign_client_uses_whatever_a_file_has(folder: Path, text: str, target: str, name: str) -> None:
    file = written(folder, "shop.py", text)
    async with client_of(f"{file}{target}") as client:
        tools = (await client.list_tools()).tools
        result = await client.call_tool("in_stock", {"item": "tea"})
        about = client.server_info

    assert [tool.name for tool in tools] == ["in_stock"]
    assert text_of(result) == {"count": 3}
    assert about is not None
    assert about.name == name


async def test_a_server_object_of_the_sdk_keeps_its_own_name_version_and_instructions(folder: Path) -> None:
    file = written(folder, "shop.py", SDK)
    with serving(file) as (said, _):
        assert (said["name"], said["tools"]) == ("shop", 1)
        for revision in ("2025-06-18", "2026-07-28"):
            async with connect_mcp({"url": said["url"], "protocol": revision}, name="s") as connection:
                assert connection.server_info["version"] == "1.4"
                assert connection.instructions == "Ask first."
                assert (await connection.call_tool("in_stock", {"item": "tea"})).structured_content == {"count": 3}


@pytest.mark.parametrize("target", ["mysite.asgi", "mysite/asgi.py", "mysite.asgi:application", "mysite/wsgi.py"])
async def test_a_django_project_offers_its_views(site: Path, target: str) -> None:
    async with client_of(target, cwd=site) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        stock = await client.call_tool("in_stock", {"item": "green-tea", "query": {"a": "b"}})
        order = await client.call_tool("order", {"shelf": 7, "item": "tea", "body": {"count": 2}})
        year = await client.call_tool("year", {"year": "2024"})
        wrong = await client.call_tool("in_stock", {"item": "../admin"})

    assert tools.keys() == {"in_stock", "order", "year"}
    assert tools["in_stock"].description == "Say how many there are."
    assert text_of(stock) == {"count": 3, "host": "shop.example", "query": {"a": "b"}}
    assert text_of(order) == {"shelf": 7, "item": "tea", "body": {"count": 2}}
    assert text_of(year) == {"year": "2024"}
    assert wrong.is_error


async def test_a_view_that_wants_a_csrf_token_is_left_out_with_the_reason(site: Path) -> None:
    async with connect_mcp(serve_entry("mysite.asgi", cwd=str(site)), name="s") as connection:
        await connection.list_tools()
        (one,) = connection.skipped_by_server

    assert "POST /form: its view requires a CSRF token" in one.reason
    assert "@csrf_exempt" in one.reason


async def test_a_folder_of_plain_functions_is_served_and_what_a_framework_holds_is_not(folder: Path) -> None:
    shop = folder / "shop"
    written(shop, "stock.py", FUNCTIONS)
    written(shop, "sums.py", "def add(a: int, b: int) -> int:\n    return a + b\n")
    written(shop, "web.py", STARLETTE)
    async with client_of(shop) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == {"in_stock", "add"}


async def test_functions_of_a_folder_that_marks_some_stay_hidden(folder: Path) -> None:
    shop = folder / "shop"
    written(shop, "stock.py", FUNCTIONS)
    written(shop, "sums.py", "from toolweave import tool\n\n@tool\ndef add(a: int) -> int:\n    return a\n")
    async with client_of(shop) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["add"]


def test_functions_that_are_served_without_a_mark_are_named(folder: Path) -> None:
    text = "def add(a: int) -> int:\n    return a\n\ndef odd(*values: int) -> int:\n    return 1\n"
    done = toolweave("serve", written(folder, "sums.py", text), stdin="")

    assert "no function is marked with @tool, so its public functions are served: add" in done.err
    assert "function 'odd' is left out" in done.err


async def test_names_in_all_are_the_only_functions_of_a_module(folder: Path) -> None:
    text = "__all__ = ['add']\n\ndef add(a: int) -> int:\n    return a\n\ndef drop(a: int) -> int:\n    return a\n"
    async with client_of(written(folder, "sums.py", text)) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["add"]


DOCUMENTS = {
    "pets.yaml": 'swagger: "2.0"\nhost: pets.example\npaths: {/pets: {get: {operationId: listPets, responses: {}}}}\n',
    "pets.yml": "openapi: 3.1.0\nservers: [{url: https://pets.example}]\n"
    "paths: {/pets: {get: {operationId: listPets, responses: {}}}}\n",
    "pets.json": '{"paths":{"/pets":{"get":{"operationId":"listPets","responses":{}}}},"openapi":"3.0.0",'
    '"servers":[{"url":"https://pets.example"}]}',
}


@pytest.mark.parametrize("name", DOCUMENTS)
async def test_an_openapi_document_is_served_by_its_file(folder: Path, name: str) -> None:
    file = written(folder, name, DOCUMENTS[name])
    async with client_of(file) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["listPets"]


async def test_a_module_of_a_package_imports_the_others_by_the_package(folder: Path) -> None:
    written(folder, "shop/__init__.py", "")
    written(folder, "shop/other.py", "COUNT = 3\n")
    text = "from shop.other import COUNT\nfrom .other import COUNT as same\n\ndef count() -> int:\n    return COUNT\n"
    file = written(folder, "shop/main.py", text)
    async with client_of(file, cwd=Path("/")) as client:
        assert text_of(await client.call_tool("count", {})) == 3


WRONG = [
    ("x = 5\n", "", "nothing in it can be served", "it has x (int); a server, an application of FastAPI"),
    ("", "", "nothing in it can be served", "it has no public names"),
    ("x = 5\n", ":x", "'x' cannot be served: an object of type int offers no tools", "it has x (int)"),
    ("class App: ...\napp = App\n", "", "'app' is the class App", "App (a class)"),
    (
        "class Flask:\n    def __call__(self, environ, start_response): ...\napp = Flask()\n",
        "",
        "'app' cannot be served: the Flask of 'shop' is a WSGI application",
        "give the URL of its OpenAPI document",
    ),
    (
        "from toolweave import create_mcp_server\nasgi = create_mcp_server('a').asgi_app()\n",
        "",
        "'asgi' is the application of an MCP server",
        "name the server itself, or run the application: uvicorn shop:asgi",
    ),
    (
        "from starlette.applications import Starlette\none, two = Starlette(), Starlette()\n",
        "",
        "it has several objects that can be served",
        ":one or :two",
    ),
    ("def odd(*values: int) -> int:\n    return 1\n", "", "function 'odd' is left out", "it has odd (a function)"),
]


@pytest.mark.parametrize(("text", "target", "what", "way_out"), WRONG)
def test_what_cannot_be_served_is_named_with_what_the_file_has_and_what_would_work(
    folder: Path, text: str, target: str, what: str, way_out: str
) -> None:
    file = written(folder, "shop.py", text)

    done = toolweave("serve", f"{file}{target}", stdin="")

    assert (done.code, done.out) == (2, "")
    assert what in done.err
    assert way_out in done.err
    assert "Traceback" not in done.err


def test_a_django_project_given_by_its_folder_names_its_application(site: Path) -> None:
    done = toolweave("serve", ".", cwd=site)

    assert done.code == 2
    assert "is a Django project" in done.err
    assert "toolweave serve mysite.asgi" in done.err


def test_a_url_that_is_no_document_is_named_with_what_is_read(folder: Path) -> None:
    with serving(written(folder, "shop.py", FUNCTIONS)) as (said, _):
        done = toolweave("serve", said["url"], stdin="")

    assert done.code != 0
    assert said["url"] in done.err
