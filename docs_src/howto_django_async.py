"""An asynchronous view of Django below an ASGI lifespan, which opens and closes the connections; a server beside it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.handlers.asgi import ASGIRequest
from django.http import JsonResponse
from django.urls import path
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from toolweave import Hub, connect_mcp_servers

SERVERS = {"numbers": {"command": "python", "args": ["-m", "toolweave.cli.demo.numbers"]}}


async def total(request: ASGIRequest) -> JsonResponse:
    hub: Hub = request.scope["state"]["hub"]
    values = [float(value) for value in request.GET.getlist("value")]
    result = await hub.execute("numbers_add", {"values": values})
    return JsonResponse(result.structured_content, status=502 if result.is_error else 200)


urlpatterns = [path("total", total)]
settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["testserver"], SECRET_KEY="only for this example")


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncGenerator[dict[str, Any]]:
    async with connect_mcp_servers(SERVERS) as hub:
        yield {"hub": hub}


# asgi.py of a project: Django knows no lifespan, so the application around it has one
application = Starlette(routes=[Mount("/", app=get_asgi_application())], lifespan=lifespan)

with TestClient(application) as client:
    print(client.get("/total?value=1&value=41").json())
