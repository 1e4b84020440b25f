"""A view of Django that calls tools of MCP servers, run by Django's test client. A whole project in one file."""

from __future__ import annotations

from functools import cache
from threading import Lock

import django
from django.conf import settings
from django.http import HttpRequest, JsonResponse
from django.test import Client
from django.urls import path

from toolweave.sync import SyncHub, connect_mcp_servers

SERVERS = {"numbers": {"command": "python", "args": ["-m", "toolweave.cli.demo.numbers"]}}
_lock = Lock()


@cache
def _connected() -> SyncHub:
    return connect_mcp_servers(SERVERS)


def servers() -> SyncHub:
    """Return the connections of this process, which its first call opens."""
    with _lock:
        return _connected()


def quotient(request: HttpRequest) -> JsonResponse:
    arguments = {name: float(request.GET[name]) for name in ("value", "by")}
    result = servers().execute("numbers_divide", arguments)
    if result.is_error:
        return JsonResponse({"error": result.text}, status=502)
    return JsonResponse(result.structured_content)


urlpatterns = [path("quotient", quotient)]
settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["testserver"], SECRET_KEY="only for this example")
django.setup()

client = Client()
for query in ({"value": 42, "by": 6}, {"value": 42, "by": 0}):
    answer = client.get("/quotient", query)
    print(answer.status_code, answer.json())
