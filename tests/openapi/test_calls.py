"""Calls over real HTTP: the request that the document describes, and an answer for each kind of response."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from email.parser import BytesParser
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

import anyio
import anyio.abc
import pytest

from tests.openapi.documents import PETS, document, operation
from tests.openapi.mock_api import MockApi, MockResponse, Received, serving
from toolweave.config import Auth, Secret
from toolweave.errors import ConfigError, ErrorKind
from toolweave.openapi import NEXT_PAGE_META, OpenApiOptions, openapi_tools
from toolweave.tools import CallContext, Progress, ToolResult, ToolsChanged, as_toolset

Serve = Callable[[dict[str, Any]], tuple[MockApi, str]]
Json = dict[str, Any]
TEXT = {"type": "string"}


def posting(schema: Any, media_type: str, **members: Any) -> dict[str, Any]:
    body = {"required": True, "content": {media_type: {"schema": schema} | members}}
    return document({"/up": {"post": operation(operationId="up", requestBody=body)}})


async def called(api: Serve, source: dict[str, Any], name: str, arguments: dict[str, Any], **options: Any) -> Received:
    """Call a tool of a served document, and return the request that came."""
    mock, url = api(source)
    async with openapi_tools(source, base_url=url, **options) as toolset:
        result = await toolset.execute(name, arguments)
    assert not result.is_error, result.text
    return mock.last


async def answered(api: Serve, answer: MockResponse, **options: Any) -> ToolResult:
    """Return the result of a GET that is answered so."""
    page = {"name": "page", "in": "query", "schema": {"type": "integer"}}
    source = document({"/a": {"get": operation(operationId="get", parameters=[page])}})
    mock, url = api(source)
    mock.answers["GET /a"] = answer
    async with openapi_tools(source, base_url=url, **options) as toolset:
        return await toolset.execute("get")


async def test_a_call_is_the_request_that_the_document_describes(api: Serve) -> None:
    mock, url = api(PETS)
    mock.answers["POST /pets"] = MockResponse({"id": 1, "name": "Ada"}, 201)
    mock.answers["GET /pets"] = MockResponse([{"id": 1, "name": "Ada"}])
    mock.answers["DELETE /pets/{id}"] = MockResponse(status=204)
    async with openapi_tools(PETS, base_url=url) as pets:
        made = await pets.execute("createPet", {"name": "Ada", "secret": "s", "parent": {"name": "B", "secret": "t"}})
        assert made.structured_content == {"id": 1, "name": "Ada"}
        assert mock.last.json == {"name": "Ada", "secret": "s", "parent": {"name": "B", "secret": "t"}}
        listed = await pets.execute("listPets", {"limit": 5, "tags": ["a b", "c&d"]})
        assert listed.structured_content == [{"id": 1, "name": "Ada"}]
        assert mock.last.query == [("limit", "5"), ("tags", "a b"), ("tags", "c&d")]
        gone = await pets.execute("deletePet", {"id": "a/../b c"})
        assert mock.last.operation == "DELETE /pets/{id}"
        assert mock.last.target == "/pets/a%2F..%2Fb%20c"
        assert (gone.text, gone.structured_content) == ("204 No Content", None)
        await pets.execute("replacePet", {"id": "1", "name": "x", "secret": "y"})
        assert (mock.last.method, mock.last.json) == ("PUT", {"name": "x", "secret": "y"})


async def test_the_tools_of_a_document_at_a_url_are_there_once_it_is_entered(api: Serve) -> None:
    mock, url = api(PETS | {"servers": [{"url": "/"}]})
    mock.answers["/openapi.json"] = MockResponse(mock.document)
    toolset = openapi_tools(f"{url}/openapi.json")
    changes: list[ToolsChanged] = []
    toolset.subscribe(changes.append)

    assert not toolset.tools
    async with toolset, toolset:
        assert toolset.base_url == f"{url}/"
        assert [one.added for one in changes] == [("listPets", "createPet", "pets_get", "replacePet", "deletePet")]
        assert (await toolset.execute("deletePet", {"id": "1"})).structured_content == {
            "operation": "DELETE /pets/{id}"
        }
    assert not (await toolset.execute("deletePet", {"id": "2"})).is_error, "a call enters it for itself"
    assert mock.last.target == "/pets/2"


@pytest.mark.parametrize(
    "arguments", [{"limit": "5"}, {"limit": 5, "tags": '["a"]'}, {"limit": "5", "tags": None}], ids=str
)
async def test_arguments_that_nearly_fit_are_made_to_fit_unless_the_option_is_off(
    api: Serve, arguments: dict[str, Any]
) -> None:
    mock, url = api(PETS)
    mock.answers["GET /pets"] = MockResponse([])
    async with openapi_tools(PETS, base_url=url, options=OpenApiOptions(repair_arguments=False)) as strict:
        refused = await strict.execute("listPets", arguments)
    assert refused.require_error().kind is ErrorKind.INVALID_INPUT
    assert not mock.received

    async with openapi_tools(PETS, base_url=url) as pets:
        assert not (await pets.execute("listPets", arguments)).is_error
    assert ("limit", "5") in mock.last.query


async def test_arguments_that_do_not_fit_are_not_sent(api: Serve) -> None:
    mock, url = api(PETS)
    async with openapi_tools(PETS, base_url=url) as pets:
        for arguments in ({"limit": "many"}, {"limits": 1}, {"limit": 101}):
            assert (await pets.execute("listPets", arguments)).require_error().kind is ErrorKind.INVALID_INPUT
        for text in ("", ".", ".."):
            assert (await pets.execute("deletePet", {"id": text})).require_error().kind is ErrorKind.INVALID_INPUT
        assert (await pets.execute("none")).require_error().kind is ErrorKind.NOT_FOUND
    assert not mock.received


async def test_headers_and_cookies_are_sent_in_their_places(api: Serve) -> None:
    parameters = [
        {"name": "X-Trace", "in": "header", "schema": {"type": "array", "items": TEXT}},
        {"name": "session", "in": "cookie", "schema": TEXT},
        {"name": "filter", "in": "query", "content": {"application/json": {"schema": {"type": "object"}}}},
    ]
    source = document({"/a": {"get": operation(operationId="get", parameters=parameters)}})

    arguments = {"X-Trace": ["a", "b"], "session": "x;y", "filter": {"a": [1]}}
    received = await called(api, source, "get", arguments, headers={"X-Version": Secret("7")})

    assert received.headers["x-trace"] == "a,b"
    assert received.headers["cookie"] == "session=x%3By"
    assert received.headers["x-version"] == "7"
    assert received.query == [("filter", '{"a":[1]}')]


async def test_a_header_of_two_lines_is_refused(api: Serve) -> None:
    parameters = [{"name": "X-A", "in": "header", "schema": TEXT}]
    source = document({"/a": {"get": operation(operationId="get", parameters=parameters)}})
    mock, url = api(source)
    async with openapi_tools(source, base_url=url) as toolset:
        assert "one line" in (await toolset.execute("get", {"X-A": "a\r\nX-Evil: 1"})).text
    assert not mock.received


async def test_a_form_is_sent_as_its_encoding_says(api: Serve) -> None:
    schema: Json = {"type": "object", "properties": {name: {} for name in ("text", "list", "object", "joined")}}
    encoding = {"joined": {"style": "form", "explode": False}}
    source = posting(schema, "application/x-www-form-urlencoded", encoding=encoding)

    values = {"text": "a b&c", "list": [1, True], "object": {"x": 1}, "joined": ["a", "b"]}
    received = await called(api, source, "up", values)

    assert received.headers["content-type"] == "application/x-www-form-urlencoded"
    assert parse_qs(received.body.decode()) == {
        "text": ["a b&c"], "list": ["1", "true"], "object": ['{"x":1}'], "joined": ["a,b"]
    }  # fmt: skip


async def test_files_are_uploaded_in_a_multipart_body(api: Serve) -> None:
    binary = {"type": "string", "format": "binary"}
    schema = {
        "type": "object",
        "required": ["file"],
        "properties": {
            "file": binary,
            "more": {"type": "array", "items": {"type": "string", "contentMediaType": "application/octet-stream"}},
            "note": TEXT,
            "meta": {"type": "object"},
        },
    }
    arguments = {
        "file": {"base64": base64.b64encode(b"\0\xff\r\n").decode(), "filename": 'a".png', "media_type": "image/png"},
        "more": [{"text": "é"}, {"text": "two", "filename": "b.txt"}],
        "note": "hello",
        "meta": {"a": 1},
    }

    received = await called(api, posting(schema, "multipart/form-data"), "up", arguments)

    head = f"content-type: {received.headers['content-type']}\r\n\r\n".encode()
    parts = [
        (
            part.get_param("name", header="content-disposition"),
            part.get_filename(),
            part.get_content_type(),
            part.get_payload(decode=True),
        )
        for part in BytesParser().parsebytes(head + received.body).walk()
        if not part.is_multipart()
    ]
    assert parts == [
        ("file", "a%22.png", "image/png", b"\0\xff\r\n"),
        ("more", "file", "application/octet-stream", "é".encode()),
        ("more", "b.txt", "text/plain", b"two"),
        ("note", None, "text/plain", b"hello"),
        ("meta", None, "application/json", b'{"a":1}'),
    ]


async def test_an_upload_that_may_be_left_out_needs_its_file_with_any_other_field(api: Serve) -> None:
    schema = {
        "type": "object",
        "required": ["file"],
        "properties": {"file": {"type": "string", "format": "binary"}, "note": TEXT},
    }
    source = document(
        {
            "/up": {
                "post": operation(
                    operationId="up", requestBody={"content": {"multipart/form-data": {"schema": schema}}}
                )
            }
        }
    )
    mock, url = api(source)

    async with openapi_tools(source, base_url=url) as tools:
        problems = tools.problems
        without = await tools.execute("up", {})
        bare = mock.last
        noted = await tools.execute("up", {"note": "hello"})
        whole = await tools.execute("up", {"file": {"text": "é"}, "note": "hello"})

    assert problems == ()
    assert (without.is_error, bare.body, "content-type" in bare.headers) == (False, b"", False)
    assert (noted.require_error().kind, "file" in noted.text) == (ErrorKind.INVALID_INPUT, True)
    assert (whole.is_error, len(mock.received)) == (False, 2)
    assert b'name="file"; filename="file"' in mock.last.body


async def test_files_are_read_from_the_folder_of_uploads_alone(api: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "uploads"
    folder.mkdir()
    (folder / "a.txt").write_text("inside")
    (tmp_path / "secret").write_text("outside")
    (folder / "link").symlink_to(tmp_path / "secret")
    source = posting({"type": "string", "format": "binary"}, "application/octet-stream")
    mock, url = api(source)

    async with openapi_tools(source, base_url=url) as closed:
        refused = await closed.execute("up", {"body": {"path": "a.txt"}})
        assert refused.require_error().kind is ErrorKind.INVALID_INPUT
        assert (await closed.execute("up", {"body": {}})).is_error
        assert "not valid base64" in (await closed.execute("up", {"body": {"base64": "!"}})).text
        assert not (await closed.execute("up", {"body": {"text": "given"}})).is_error
        assert (mock.last.body, mock.last.headers["content-type"]) == (b"given", "application/octet-stream")
    async with openapi_tools(source, base_url=url, options=OpenApiOptions(uploads=folder)) as open_for_files:
        assert not (await open_for_files.execute("up", {"body": {"path": "a.txt"}})).is_error
        assert (mock.last.body, mock.last.headers["content-type"]) == (b"inside", "text/plain")
        for path in ("link", "../secret", str(tmp_path / "secret"), ".", "none", "a\0"):
            assert (await open_for_files.execute("up", {"body": {"path": path}})).is_error
    assert len(mock.received) == 2


async def test_a_form_that_is_more_than_its_members_is_one_argument(api: Serve) -> None:
    schema = {"type": "object", "properties": {"a": TEXT}, "additionalProperties": True}
    source = posting(schema, "application/x-www-form-urlencoded")

    received = await called(api, source, "up", {"body": {"a": "1", "b": [2, 3]}})

    assert received.body == b"a=1&b=2&b=3"


async def test_a_whole_query_is_a_form_or_a_text(api: Serve) -> None:
    def querystring(kind: str) -> dict[str, Any]:
        parameter: Json = {"name": "all", "in": "querystring", "content": {kind: {"schema": {}}}}
        return document({"/a": {"get": operation(operationId="get", parameters=[parameter])}})

    form = await called(api, querystring("application/x-www-form-urlencoded"), "get", {"all": {"a": "1", "b": "x y"}})
    text = await called(api, querystring("application/json"), "get", {"all": {"a": 1}})

    assert form.query == [("a", "1"), ("b", "x y")]
    assert unquote(text.target) == '/a?{"a":1}'


async def test_a_callable_may_return_headers(api: Serve) -> None:
    for auth in (lambda: {"X-Signed": "s"}, Auth(type="custom", provider=lambda: {"X-Signed": Secret("s")})):
        assert (await called(api, secured({"key": []}), "get", {}, auth=auth)).headers["x-signed"] == "s"
    token = Auth(type="custom", provider=lambda: "T")
    assert (await called(api, secured({"key": []}), "get", {}, auth=token)).headers["authorization"] == "Bearer T"


async def test_an_answer_without_a_media_type_is_text_if_it_can_be(api: Serve) -> None:
    assert (await answered(api, MockResponse(b"plain", headers={"content-type": ""}))).text == "plain"
    assert (await answered(api, MockResponse(b"\xff\xfe", headers={"content-type": ""}))).content[0].type == "resource"


async def test_text_and_other_bodies_are_sent_as_they_are(api: Serve) -> None:
    assert (await called(api, posting(TEXT, "text/plain"), "up", {"body": "hé"})).body == "hé".encode()
    received = await called(api, posting({}, "application/xml"), "up", {"body": "<a/>"})
    assert (received.body, received.headers["content-type"]) == (b"<a/>", "application/xml")
    assert (await called(api, posting({"type": "array"}, "application/vnd.x+json"), "up", {"body": [1]})).json == [1]


async def test_an_error_status_is_an_error_that_says_it(api: Serve) -> None:
    result = await answered(api, MockResponse({"detail": "no such page"}, 404))

    error = result.require_error()
    assert (error.code, error.kind, error.data) == (
        404, ErrorKind.EXECUTION_FAILED, {"status": 404, "body": {"detail": "no such page"}}
    )  # fmt: skip
    assert result.text == 'HTTP 404 Not Found: {"detail": "no such page"}'
    assert (await answered(api, MockResponse({}, 401))).require_error().kind is ErrorKind.AUTH_REQUIRED
    limited = await answered(api, MockResponse({}, 429, {"retry-after": "3"}))
    assert (limited.require_error().retryable, limited.require_error().data["retry_after"]) == (True, "3")
    assert len((await answered(api, MockResponse(b"x" * 100_000, 500))).text) < 5_000


async def test_answers_of_other_kinds_are_text_and_blocks(api: Serve) -> None:
    plain = await answered(
        api, MockResponse("gr\xfc\xdfe".encode("latin-1"), headers={"content-type": "text/plain; charset=latin-1"})
    )
    assert plain.text == "grüße"
    image = await answered(api, MockResponse(b"\x89PNG\r\n\x1a\n", headers={"content-type": "image/png"}))
    assert image.content[0].type == "image"
    blob = await answered(api, MockResponse(b"\0\1", headers={"content-type": "application/zip"}))
    assert blob.content[0].type == "resource"
    assert (await answered(api, MockResponse(b"{"))).text == "{"  # the call has succeeded
    unknown = await answered(api, MockResponse(b"x", headers={"content-encoding": "br2"}))
    assert "not requested" in unknown.text


async def test_an_answer_that_is_too_large_is_refused(api: Serve) -> None:
    result = await answered(api, MockResponse(b"x" * 2_000), options=OpenApiOptions(max_bytes=1_000))

    assert result.require_error().kind is ErrorKind.TOO_LARGE


async def test_a_stream_of_events_is_read_to_its_end(api: Serve) -> None:
    events = b'event: token\ndata: {"text": "a"}\n\ndata: done\n\n'
    source = document({"/a": {"get": operation(operationId="get")}})
    mock, url = api(source)
    mock.answers["GET /a"] = MockResponse(events, headers={"content-type": "text/event-stream"})
    seen: list[Progress] = []
    async with openapi_tools(source, base_url=url) as toolset:
        result = await toolset.execute("get", {}, CallContext(on_progress=seen.append))

    assert result.structured_content == {
        "events": [{"event": "token", "data": {"text": "a"}}, {"event": "message", "data": "done"}],
        "complete": True,
    }
    assert [one.progress for one in seen] == [1, 2]


@pytest.mark.parametrize(
    ("answer", "arguments"),
    [
        (MockResponse([], headers={"link": '</a?page=1>; rel="prev", </a?page=3&x=1>; rel="next"'}), {"page": 3}),
        (MockResponse({"next": "/a?page=4"}), {"page": 4}),
        (MockResponse({"links": {"next": {"href": "/a?page=5"}}}), {"page": 5}),
        (MockResponse({"meta": {"next_page": 6}}), {"page": 6}),
        (MockResponse({"next": 7}), {"page": 7}),
    ],
)
async def test_the_arguments_of_the_next_page_are_told(api: Serve, answer: MockResponse, arguments: Any) -> None:
    result = await answered(api, answer)

    assert result.meta[NEXT_PAGE_META]["arguments"] == arguments
    assert result.text.endswith(f"There is a next page: {json.dumps(arguments).replace(' ', '')}")


@pytest.mark.parametrize("body", [{"next": None}, {"next": ""}, {"nextOfKin": "x"}, {"next_token": "unknown"}, [], 1])
async def test_without_a_next_page_nothing_is_told(api: Serve, body: Any) -> None:
    assert not (await answered(api, MockResponse(body))).meta


SCHEMES: Json = {
    "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
    "query": {"type": "apiKey", "in": "query", "name": "api_key"},
    "cookie": {"type": "apiKey", "in": "cookie", "name": "sid"},
    "basic": {"type": "http", "scheme": "basic"},
    "bearer": {"type": "http", "scheme": "bearer"},
    "oauth": {"type": "oauth2", "flows": {}},
}


def secured(*security: dict[str, list[str]]) -> dict[str, Any]:
    parameters = [{"name": "X-Key", "in": "header", "schema": TEXT}]
    get = operation(operationId="get", security=list(security), parameters=parameters)
    return document({"/a": {"get": get}}, components={"securitySchemes": SCHEMES})


PLACES: list[tuple[list[Json], Any, tuple[str, str]]] = [
    ([{"key": []}], "T", ("x-key", "T")),
    ([{"cookie": []}], "T", ("cookie", "sid=T")),
    ([{"basic": []}], ("ada", Secret("pw")), ("authorization", "Basic YWRhOnB3")),
    ([{"bearer": []}], Secret("T"), ("authorization", "Bearer T")),
    ([{"oauth": ["read"]}], lambda: "T", ("authorization", "Bearer T")),
    ([{"key": []}, {"bearer": []}], {"bearer": "T"}, ("authorization", "Bearer T")),
    ([{"key": [], "bearer": []}], {"bearer": "T", "key": "K"}, ("x-key", "K")),
    ([{}, {"key": []}], {"key": "K"}, ("x-key", "K")),
    ([{"key": []}], {"type": "custom", "headers": {"X-Other": "O"}}, ("x-other", "O")),
    ([{"key": []}], Auth(type="api_key", token=Secret("K"), header="X-Mine"), ("x-mine", "K")),
]


@pytest.mark.parametrize(
    ("security", "auth", "expected"),
    PLACES,
)
async def test_credentials_are_placed_as_the_security_scheme_says(
    api: Serve, security: list[dict[str, list[str]]], auth: Any, expected: tuple[str, str]
) -> None:
    received = await called(api, secured(*security), "get", {}, auth=auth)

    assert received.headers[expected[0]] == expected[1]


async def test_credentials_in_the_query_and_none_where_none_are_wanted(api: Serve) -> None:
    async def token() -> str:
        return "a&b"

    assert (await called(api, secured({"query": []}), "get", {}, auth=token)).query == [("api_key", "a&b")]
    for source in (secured(), secured({"key": [], "bearer": []})):
        received = await called(api, source, "get", {}, auth="T")
        assert not {"authorization", "x-key", "cookie"} & received.headers.keys()
    undeclared = document({"/a": {"get": operation(operationId="get")}})
    assert (await called(api, undeclared, "get", {}, auth="T")).headers["authorization"] == "Bearer T"


def test_a_parameter_that_carries_the_credentials_is_no_argument() -> None:
    with_auth = openapi_tools(secured({"key": []}), base_url="https://a.example", auth="T")
    without = openapi_tools(secured({"key": []}), base_url="https://a.example")

    assert "X-Key" not in with_auth.tools["get"].input_schema["properties"]
    assert "X-Key" in without.tools["get"].input_schema["properties"]


@pytest.mark.parametrize("auth", [{"other": "T"}, "oauth", object(), {"type": "oauth"}])
def test_auth_that_cannot_be_right_is_refused(auth: Any) -> None:
    with pytest.raises(ConfigError, match="auth"):
        openapi_tools(secured({"key": []}), base_url="https://a.example", auth=auth)


async def test_a_token_that_a_server_echoes_is_not_in_the_error(api: Serve) -> None:
    source = secured({"bearer": []})
    mock, url = api(source)
    mock.answers["GET /a"] = lambda got: MockResponse({"you sent": got.headers["authorization"]}, 400)
    async with openapi_tools(source, base_url=url, auth="sesame-open") as toolset:
        result = await toolset.execute("get")

    assert "sesame-open" not in result.text + repr(result.error and result.error.to_dict())


async def test_headers_that_are_no_secret_are_left_in_errors(api: Serve) -> None:
    result = await answered(
        api, MockResponse({"needs": "version 2024-04"}, 404), headers={"X-Version": "2024-04", "X-N": "4"}
    )

    assert result.text == 'HTTP 404 Not Found: {"needs": "version 2024-04"}'


async def test_a_path_with_a_query_or_a_fragment_of_its_own_keeps_the_query(api: Serve) -> None:
    get = operation(parameters=[{"name": "q", "in": "query", "schema": TEXT}])
    source = document(
        {"/a?kind=x": {"get": get | {"operationId": "one"}}, "/a#two": {"get": get | {"operationId": "two"}}}
    )
    mock, url = api(source)
    mock.answers["/a"] = MockResponse({})
    async with openapi_tools(source, base_url=url) as toolset:
        await toolset.execute("one", {"q": "1"})
        assert mock.last.target == "/a?kind=x&q=1"
        await toolset.execute("two", {"q": "1"})
        assert mock.last.target == "/a?q=1"


async def test_redirects_within_the_origin_are_followed_and_others_without_credentials(api: Serve) -> None:
    source = secured({"bearer": []})
    source["paths"]["/b"] = {"post": operation(operationId="post", security=[{"bearer": []}])}
    source["paths"]["/a"]["get"]["parameters"].append({"name": "X-Note", "in": "header", "schema": TEXT})
    other, elsewhere = api(document({"/file": {"get": operation()}, "/b": {"post": operation()}}))
    mock, url = api(source)
    async with openapi_tools(source, base_url=url, auth="T", headers={"X-Mine": "1"}) as toolset:
        mock.answers["GET /a"] = MockResponse({}, 302, {"location": f"{elsewhere}/file"})
        assert (await toolset.execute("get", {"X-Note": "n"})).structured_content == {"operation": "GET /file"}
        assert mock.last.headers["x-note"] == "n"
        assert not {"authorization", "x-mine", "x-note"} & other.last.headers.keys()

        mock.answers["POST /b"] = MockResponse({}, 307, {"location": f"{elsewhere}/b"})
        assert "where it is not sent" in (await toolset.execute("post")).text
        mock.answers["POST /b"] = MockResponse({}, 303, {"location": "/after"})
        mock.answers["/after"] = MockResponse({"after": True})
        assert (await toolset.execute("post")).structured_content == {"after": True}
        assert (mock.last.method, mock.last.headers["authorization"]) == ("GET", "Bearer T")
        mock.answers["GET /a"] = MockResponse({}, 302, {"location": "/a"})
        assert "more than 5 times" in (await toolset.execute("get")).text
    assert len(other.received) == 1


async def test_a_document_does_not_name_private_addresses_unless_it_is_there_itself(api: Serve) -> None:
    mock, url = api(PETS)
    of_file = PETS | {"servers": [{"url": url}]}
    async with openapi_tools(of_file) as pets:
        refused = await pets.execute("deletePet", {"id": "1"})
        assert refused.require_error().kind is ErrorKind.NOT_SENT
        assert f"If you trust the document, set base_url (--base-url) to {url}" in refused.text
    own_server = {"get": operation(operationId="get", servers=[{"url": "https://169.254.169.254/latest"}])}
    host, there = api(document({}))
    host.answers["/openapi.json"] = MockResponse(document({"/a": own_server}, servers=[{"url": url}]))
    async with openapi_tools(f"{there}/openapi.json", auth="T") as toolset:
        assert "link-local" in (await toolset.execute("get")).text
    assert not mock.received


async def test_the_document_itself_has_to_come(api: Serve) -> None:
    mock, url = api(document({}))
    mock.answers["/slow"] = MockResponse({}, 500)
    for path, reason in (("/none", "HTTP 404"), ("/slow", "HTTP 500")):
        with pytest.raises(ConfigError, match=reason):
            async with openapi_tools(f"{url}{path}"):
                pass
    with pytest.raises(ConfigError, match="not sent"):
        async with openapi_tools("http://127.0.0.1:9/openapi.json"):
            pass
    assert "HTTP 404" in (await openapi_tools(f"{url}/none").execute("x")).text


async def test_a_server_that_is_silent_or_gone_is_an_error_in_time(api: Serve) -> None:
    source = document({"/a": {"get": operation(operationId="get"), "post": operation(operationId="post")}})
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as silent:
        port = silent.extra(anyio.abc.SocketAttribute.local_port)
        async with openapi_tools(source, base_url=f"http://127.0.0.1:{port}") as toolset:
            result = await toolset.execute("get", {}, CallContext(timeout=0.05))
            assert result.require_error().kind is ErrorKind.TIMEOUT
    async with openapi_tools(source, base_url=f"http://127.0.0.1:{port}") as toolset:
        assert (await toolset.execute("post")).require_error().kind is ErrorKind.NOT_SENT


async def test_head_is_answered_by_its_headers(api: Serve) -> None:
    source = document({"/a": {"head": operation(operationId="head")}})
    mock, url = api(source)
    mock.answers["HEAD /a"] = MockResponse({"ignored": 1}, headers={"x-total": "5"})
    async with openapi_tools(source, base_url=url) as toolset:
        result = await toolset.execute("head")

    assert result.structured_content["status"] == 200
    assert result.structured_content["headers"]["x-total"] == "5"


async def test_it_is_a_toolset_like_any_other() -> None:
    def local(a: int) -> int:
        return a

    mock = MockApi(PETS)
    with serving(mock) as url:
        async with as_toolset([openapi_tools(PETS, base_url=url).prefixed("zoo"), local]) as both:
            assert "zoo_listPets" in both.snapshot().by_name
            pets = openapi_tools(PETS, base_url=url)
            assert repr(pets) == "<OpenApiToolset 'Test': 5 tools>"
