"""A key, in a header, in the URL's query or in a provider's words, is found in nothing that is printed."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Sequence

import anyio
import pytest
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tests.models.http_server import Answer, Received, error_answer, serve, stream_answer
from toolweave.errors import ModelError
from toolweave.models import AnthropicModel, OpenAICompatibleModel, PydanticAIModel, complete
from toolweave.models._base import ModelRequest, ModelSettings
from toolweave.models._messages import UserMessage
from toolweave.models._retry import NO_RETRY

HEADER = "sk-header-0123456789"
QUERY = "AIza-query-0123456789"
HELLO = ModelRequest(messages=[UserMessage.of("hello")], settings=ModelSettings(timeout=0.5))
HALF = b'data: {"choices": [{"delta": {"content": "ha'


def chain(error: BaseException | None) -> list[BaseException]:
    """Return an exception with all that it is linked to, whether a traceback would show it or not."""
    return [] if error is None else [error, *chain(error.__cause__), *chain(error.__context__)]


def printed(error: BaseException) -> str:
    """Return everything that a log or an error reporter writes of an exception."""
    requests = [getattr(one, "_request", None) for one in chain(error)]
    told = [(repr(one), vars(one), one.args) for one in chain(error)]
    sent = [(str(one.url), one.headers.raw) for one in requests if one is not None]
    return "".join(traceback.format_exception(error)) + repr(told) + repr(sent)


def models(url: str) -> Sequence[OpenAICompatibleModel | AnthropicModel]:
    return (
        OpenAICompatibleModel(f"{url}?key={QUERY}", model="m", api_key=HEADER, retry=NO_RETRY),
        OpenAICompatibleModel(f"{url}?key={QUERY}", model="m", api_key=HEADER, api="responses", retry=NO_RETRY),
        AnthropicModel("m", HEADER, f"{url}?api_key={QUERY}", retry=NO_RETRY),
    )


async def failed(model: OpenAICompatibleModel | AnthropicModel | PydanticAIModel) -> ModelError:
    with anyio.fail_after(30), pytest.raises(ModelError) as caught:
        await complete(model, HELLO)
    if not isinstance(model, PydanticAIModel):
        await model.aclose()
    return caught.value


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, {"content-type": "text/event-stream"}, [HALF], "drop"),
        Answer(200, {"content-type": "text/event-stream"}, [HALF], "hang"),
        Answer(200, {"content-type": "text/event-stream"}, [b"data: {not json}\n\n"]),
        Answer(200, {"content-type": "text/html"}, [f"<p>{'x' * 185}{HEADER} {QUERY}".encode()]),
        stream_answer([b"data: " + b"." * 70 + HEADER.encode() + b"\n\n"]),
        error_answer(401, {"error": {"message": f"wrong key {HEADER} {QUERY}"}}),
        error_answer(400, {"error": {"message": f"{'x' * 590}{HEADER}"}}),
        error_answer(400, {"error": {"message": f"{'x' * 590}{QUERY}"}}),
    ],
)
async def test_no_error_leads_to_a_key_whatever_went_wrong(answer: Answer) -> None:
    async def handle(_: Received) -> Answer:
        return answer

    async with serve(handle) as server:
        for model in models(server.url):
            shown = printed(await failed(model))
            assert HEADER[:9] not in shown
            assert QUERY[:8] not in shown


async def test_no_error_leads_to_a_key_where_nobody_listens() -> None:
    async with serve(_refuse) as server:
        url = server.url
    for model in models(url):
        error = await failed(model)
        assert error.kind == "unreachable"
        assert HEADER not in printed(error)
        assert QUERY not in printed(error)


async def _refuse(_: Received) -> Answer:
    return error_answer(500, {"error": {"message": "no"}})


async def test_the_log_of_no_library_shows_a_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    seen: list[str] = []

    async def handle(request: Received) -> Answer:
        seen.append(f"{request.path} {request.headers}")
        return error_answer(500, {"error": {"message": "no"}})

    async with serve(handle) as server:
        for model in models(server.url):
            await failed(model)

    assert len(seen) == 3
    assert all(QUERY in one and HEADER in one for one in seen)
    assert QUERY not in caplog.text
    assert HEADER not in caplog.text


async def test_what_another_library_says_of_a_failed_request_shows_no_key() -> None:
    async def say(_: list[ModelMessage], __: AgentInfo) -> str:
        try:
            raise ConnectionError(f"POST https://host/v1?alt=sse&key={QUERY}: Bearer {HEADER}")
        except ConnectionError as exc:
            raise RuntimeError(f"for url 'https://host/v1?key={QUERY}' with {HEADER}") from exc

    def stream(messages: list[ModelMessage], info: AgentInfo) -> object:
        async def pieces() -> object:
            yield await say(messages, info)

        return pieces()

    error = await failed(PydanticAIModel(FunctionModel(stream_function=stream)))  # type: ignore[arg-type]

    assert "https://host/v1" in error.message
    assert QUERY not in printed(error)
    assert HEADER not in printed(error)


@pytest.mark.parametrize("url", ["http://ho st/v1", "http://host:99999/v1", "http://[::1/v1", "http://xn--/v1"])
async def test_a_url_that_cannot_be_asked_is_an_error_of_ours(url: str) -> None:
    try:
        model = OpenAICompatibleModel(url, model="m", api_key=HEADER, retry=NO_RETRY)
    except ValueError as exc:
        assert "model 'openai:m'" in str(exc)  # noqa: PT017 - either may tell it
        return
    error = await failed(model)
    assert error.kind in ("invalid_request", "unreachable")
