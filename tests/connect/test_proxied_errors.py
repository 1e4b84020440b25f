"""Errors of requests that went through the proxy of the environment: they name it."""

from __future__ import annotations

import pytest

from tests.connect.proxying import proxying
from tests.models.fake_openai import KEY
from tests.openapi.documents import document, operation
from toolweave import ConnectError, connect_mcp
from toolweave.errors import ConfigError, ModelError
from toolweave.models import ModelRequest, OpenAICompatibleModel, UserMessage, complete
from toolweave.openapi import openapi_tools

PAGE = b"<html><title>502 Bad Gateway</title></html>"


def answer(status: str, body: bytes = PAGE) -> bytes:
    return b"HTTP/1.1 %s\r\ncontent-type: text/html\r\ncontent-length: %d\r\n\r\n%s" % (
        status.encode(),
        len(body),
        body,
    )


@pytest.mark.parametrize("status", ["502 Bad Gateway", "503 Service Unavailable", "403 Forbidden", "200 OK"])
@pytest.mark.parametrize("transport", ["http", "sse"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
async def test_an_answer_through_a_proxy_names_the_proxy_and_how_to_do_without_it(
    monkeypatch: pytest.MonkeyPatch, status: str, transport: str, host: str
) -> None:
    async with proxying(answer=answer(status)) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        with pytest.raises(ConnectError) as refused:
            await connect_mcp({"transport": transport, "url": f"http://{host}:9/mcp"}, timeout={"connect": 10})
    assert f"came through the proxy {proxy.url} of the environment" in str(refused.value)
    assert f"add {host.strip('[]')} to NO_PROXY" in str(refused.value)


async def test_the_error_of_a_server_elsewhere_names_the_proxy_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with proxying(answer=answer("502 Bad Gateway")) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        with pytest.raises(ConnectError) as refused:
            await connect_mcp({"url": "http://mcp.example/mcp"}, timeout={"connect": 10})
    assert proxy.url in str(refused.value)
    assert "NO_PROXY" not in str(refused.value)


@pytest.mark.parametrize("status", ["502 Bad Gateway", "403 Forbidden"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
async def test_a_call_of_an_api_behind_a_proxy_names_the_proxy(
    monkeypatch: pytest.MonkeyPatch, status: str, host: str
) -> None:
    source = document({"/a": {"get": operation(operationId="get")}})
    async with proxying(answer=answer(status)) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        async with openapi_tools(source, base_url=f"http://{host}:9") as api:
            result = await api.execute("get")
    assert result.is_error
    assert f"came through the proxy {proxy.url} of the environment" in result.text
    assert f"add {host.strip('[]')} to NO_PROXY" in result.text


async def test_a_document_of_an_api_behind_a_proxy_names_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with proxying(answer=answer("502 Bad Gateway")) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        with pytest.raises(ConfigError) as refused:
            async with openapi_tools("http://localhost:9/openapi.json"):
                pass
    assert f"came through the proxy {proxy.url}" in str(refused.value)
    assert "add localhost to NO_PROXY" in str(refused.value)


async def test_an_error_in_the_form_of_an_api_does_not_name_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    source = document({"/a": {"get": operation(operationId="get")}})
    refusal = answer("404 Not Found", b'{"detail": "gone"}').replace(b"text/html", b"application/json")
    async with proxying(answer=refusal) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        async with openapi_tools(source, base_url="http://localhost:9") as api:
            result = await api.execute("get")
    assert result.is_error
    assert "proxy" not in result.text


async def test_a_model_behind_a_proxy_names_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with proxying(answer=answer("502 Bad Gateway")) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        async with OpenAICompatibleModel("http://localhost:9/v1", model="m", api_key=KEY) as model:
            with pytest.raises(ModelError) as refused:
                await complete(model, ModelRequest(messages=[UserMessage.of("hello")]))
    assert f"came through the proxy {proxy.url}" in str(refused.value)
    assert "add localhost to NO_PROXY" in str(refused.value)


async def test_a_proxy_that_is_away_is_named_for_a_model_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    async with proxying() as proxy:
        pass
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    async with OpenAICompatibleModel("http://127.0.0.1:9/v1", model="m", api_key=KEY) as model:
        with pytest.raises(ModelError) as refused:
            await complete(model, ModelRequest(messages=[UserMessage.of("hello")]))
    assert f"through the proxy {proxy.url}" in str(refused.value)
    assert "add 127.0.0.1 to NO_PROXY" in str(refused.value)
