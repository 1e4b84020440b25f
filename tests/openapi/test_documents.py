"""A document becomes tools, as the specification has it; a part that cannot be used costs itself alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.openapi.documents import PETS, document, operation
from toolweave.errors import ConfigError
from toolweave.openapi import OPERATION_META, OpenApiOptions, OpenApiToolset, openapi_tools
from toolweave.tools import Tool

BASE = "https://api.example.com/v1"


def tools(source: Any, **options: Any) -> OpenApiToolset:
    return openapi_tools(source, base_url=BASE, **options)


def only(source: Any, **options: Any) -> Tool:
    (tool,) = tools(source, **options).tools
    return tool


def with_parameters(*parameters: dict[str, Any], path: str = "/a", **members: Any) -> dict[str, Any]:
    return document({path: {"post": operation(parameters=list(parameters), **members)}})


def body_of(schema: Any, media_type: str = "application/json", **members: Any) -> dict[str, Any]:
    return {"required": True, "content": {media_type: {"schema": schema}}} | members


def test_names_are_the_operation_ids_made_legal() -> None:
    api = tools(PETS)

    assert api.tools.names == ("listPets", "createPet", "pets_get", "replacePet", "deletePet")
    assert api.tools["pets_get"].original_name == "pets/get"
    assert api.problems == ()
    assert api.tools["listPets"].title == "List pets"


def test_an_operation_without_an_id_of_its_own_is_named_by_its_method_and_path() -> None:
    twice = operation(operationId="same")
    api = tools(document({"/a/{b}": {"get": with_id(operation())}, "/x": {"get": twice, "post": twice}}))

    assert api.tools.names == ("get_a_b", "get_x", "post_x")
    assert [one.original_name for one in api.tools] == ["GET /a/{b}", "GET /x", "POST /x"]


def with_id(made: dict[str, Any]) -> dict[str, Any]:
    return made | {"parameters": [{"name": "b", "in": "path", "required": True, "schema": {"type": "string"}}]}


def test_an_operation_that_fastapi_has_named_has_the_name_of_its_function() -> None:
    source = document(
        {
            "/": {"get": operation(operationId="root__get")},
            "/items": {"get": operation(operationId="get_items_items_get")},
            "/items/{item-id}": {
                "get": operation(operationId="get_item_items__item_id__get"),
                "put": operation(operationId="replace"),
            },
        }
    )
    api = tools(source)

    assert api.tools.names == ("root", "get_items", "get_item", "replace")
    assert api.tools["get_item"].original_name == "get_item_items__item_id__get"
    for pattern in ("get_item", "get_item_items__item_id__get"):
        assert tools(source, include=pattern).tools.names == ("get_item",)


def test_functions_of_one_name_and_ids_that_only_look_alike_keep_their_ids() -> None:
    paths = {
        "/users": {"get": operation(operationId="read_users_get")},
        "/items": {"get": operation(operationId="read_items_get"), "post": operation(operationId="_items_post")},
        "/a": {"get": operation(operationId="list_a_get"), "put": operation(operationId="list")},
        "/b": {"get": operation(operationId="get_c_b_get")},
        "/c": {"get": operation()},
        "/d": {"get": operation(operationId="read_d_post"), "post": operation(operationId="read_d")},
    }

    assert tools(document(paths)).tools.names == (
        "read_users_get", "read_items_get", "_items_post", "list_a_get", "list", "get_c_b_get", "get_c", "read_d_post",
        "read_d",
    )  # fmt: skip


def test_names_stay_when_other_operations_come() -> None:
    before = document({"/a": {"get": operation(operationId="x" * 80)}})
    after = document({"/0": {"get": operation(operationId="y" * 80)}, **before["paths"]})

    assert only(before).name in tools(after).tools.names
    assert all(len(name) <= 64 for name in tools(after).tools.names)


def test_hints_follow_the_method() -> None:
    hints = {one.name: dict(one.annotations or {}) for one in tools(PETS).tools}

    assert hints["listPets"] == {"readOnlyHint": True}
    assert hints["createPet"] == {"readOnlyHint": False}
    assert hints["replacePet"] == {"readOnlyHint": False, "idempotentHint": True}
    assert hints["deletePet"] == {"readOnlyHint": False, "idempotentHint": True, "destructiveHint": True}


def test_parameters_and_the_members_of_a_body_are_arguments_of_one_object() -> None:
    schema = tools(PETS).tools["replacePet"].input_schema

    assert list(schema["properties"]) == ["id", "name", "secret", "parent"]
    assert schema["required"] == ["id", "name", "secret"]
    assert schema["additionalProperties"] is False


def test_what_is_read_only_is_no_argument_and_what_is_write_only_is_in_no_answer() -> None:
    create = tools(PETS).tools["createPet"]
    pet = create.input_schema["$defs"]["Pet"]
    answer = create.output_schema
    assert isinstance(answer, dict)

    assert list(create.input_schema["properties"]) == ["name", "secret", "parent"] == list(pet["properties"])
    assert pet["required"] == ["name", "secret"]
    assert list(answer["properties"]) == ["id", "name", "parent"]
    assert answer["required"] == ["id", "name"]


def test_a_schema_that_refers_to_itself_goes_on_doing_so() -> None:
    schema = tools(PETS).tools["createPet"].input_schema

    assert schema["properties"]["parent"] == {"$ref": "#/$defs/Pet"}
    assert schema["$defs"]["Pet"]["properties"]["parent"] == {"$ref": "#/$defs/Pet"}


def test_one_name_in_two_places_is_two_arguments() -> None:
    same = [{"name": "id", "in": place, "required": True, "schema": {"type": "string"}} for place in ("query", "path")]
    tool = only(
        with_parameters(
            *same,
            {"name": "X-Id", "in": "header", "schema": {"type": "string"}},
            path="/a/{id}",
            requestBody=body_of({"type": "object", "properties": {"id": {"type": "integer"}}}),
        )
    )

    assert list(tool.input_schema["properties"]) == ["id", "X-Id", "id_query", "id_body"]


def test_names_of_arguments_are_legal_for_models() -> None:
    tool = only(with_parameters(*({"name": name, "in": "query"} for name in ("filter[name]", "$top", "x" * 80, "名"))))

    assert list(tool.input_schema["properties"]) == ["filter_name", "top", "x" * 64, "query"]


WHOLE_BODIES: list[dict[str, Any]] = [
    {"type": "array", "items": {"type": "string"}},
    {"allOf": [{"type": "object", "properties": {"a": {}}}]},
    {"type": "object", "properties": {"a": {}}, "additionalProperties": True},
    {"type": "string"},
]


@pytest.mark.parametrize(
    "schema",
    WHOLE_BODIES,
)
def test_a_body_that_is_more_than_its_members_is_one_argument(schema: dict[str, Any]) -> None:
    tool = only(with_parameters(requestBody=body_of(schema)))

    assert tool.input_schema["properties"] == {"body": schema}
    assert tool.input_schema["required"] == ["body"]


def test_a_body_that_may_be_left_out_makes_nothing_required() -> None:
    schema = {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}
    tool = only(with_parameters(requestBody=body_of(schema, required=False)))

    assert list(tool.input_schema["properties"]) == ["body"]
    assert "required" not in tool.input_schema


SCHEMAS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
    ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
    ({"enum": ["a"], "type": "string", "nullable": True}, {"enum": ["a", None], "type": ["string", "null"]}),
    ({"allOf": [{}], "nullable": True}, {"anyOf": [{"allOf": [{}]}, {"type": "null"}]}),
    ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, {"type": "integer", "exclusiveMinimum": 1}),
    ({"type": "string", "example": "x", "x-own": 1, "xml": {}}, {"type": "string"}),
]


@pytest.mark.parametrize(
    ("schema", "expected"),
    SCHEMAS,
)  # fmt: skip
def test_schemas_of_3_0_and_of_3_1_become_json_schema(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    tool = only(with_parameters({"name": "q", "in": "query", "schema": schema}))

    assert tool.input_schema["properties"]["q"] == expected


def test_headers_that_are_no_parameters_are_left_out() -> None:
    names = ("Accept", "content-type", "AUTHORIZATION", "Host", "Content-Length", "X-Own")
    tool = only(with_parameters(*({"name": name, "in": "header"} for name in names)))

    assert list(tool.input_schema["properties"]) == ["X-Own"]


def test_an_operation_overrides_the_parameters_of_its_path() -> None:
    path = {
        "parameters": [{"name": "q", "in": "query", "schema": {"type": "string"}}],
        "get": operation(parameters=[{"name": "q", "in": "query", "required": True, "schema": {"type": "integer"}}]),
    }

    assert only(document({"/a": path})).input_schema["properties"] == {"q": {"type": "integer"}}


@pytest.mark.parametrize(
    ("broken", "pointer", "reason"),
    [
        (operation(parameters=[{"$ref": "#/components/parameters/none"}]), "/paths/~1bad/get/parameters/0", "nowhere"),
        (operation(parameters=[{"$ref": "other.yaml#/p"}]), "/paths/~1bad/get/parameters/0", "never fetched"),
        (
            operation(parameters=[{"name": "q", "in": "query", "schema": {"$ref": "https://evil.example/s.json"}}]),
            "/paths/~1bad/get/parameters/0/schema", "never fetched",
        ),
        (operation(parameters=[{"name": "q", "in": "body"}]), "/paths/~1bad/get/parameters/0", "is in one of"),
        (operation(parameters=[{"name": "q", "in": "query", "schema": None}]),
         "/paths/~1bad/get/parameters/0/schema", "a schema is expected"),
        (operation(requestBody={"$ref": "#/paths/~1bad/get/requestBody"}), "/paths/~1bad/get/requestBody", "circle"),
        (operation(parameters=3), "/paths/~1bad/get", "malformed"),
        (None, "/paths/~1bad/get", "an object is expected"),
    ],
)  # fmt: skip
def test_a_bad_operation_is_left_out_with_its_place_and_reason(broken: Any, pointer: str, reason: str) -> None:
    api = tools(document({"/bad": {"get": broken}, "/good": {"get": operation(operationId="good")}}))

    assert api.tools.names == ("good",)
    (problem,) = api.problems
    assert (problem.operation, problem.pointer, problem.skipped) == ("GET /bad", pointer, "operation")
    assert reason in problem.reason


def test_a_bad_answer_costs_the_output_schema_alone() -> None:
    answer = {"200": {"description": "", "content": {"application/json": {"schema": {"$ref": "#/none"}}}}}
    api = tools(document({"/a": {"get": {"operationId": "a", "responses": answer}}}))

    assert api.tools["a"].output_schema is None
    assert [one.skipped for one in api.problems] == ["output schema"]


def test_an_output_schema_that_is_too_large_is_left_out() -> None:
    large = {"type": "object", "properties": {f"member_{number}": {"type": "string"} for number in range(3_000)}}
    answer = {"200": {"description": "", "content": {"application/json": {"schema": large}}}}
    api = tools(document({"/a": {"get": {"responses": answer}}}))

    assert api.tools["get_a"].output_schema is None
    assert "larger than 64 kB" in api.problems[0].reason


def test_two_schemas_of_one_name_stay_apart() -> None:
    members = {"one": {"$ref": "#/components/schemas/X"}, "two": {"$ref": "#/components/x-own/X"}}
    own = {"schemas": {"X": {"type": "string"}}, "x-own": {"X": {"type": "integer"}}}
    tool = only(with_parameters(requestBody=body_of({"type": "object", "properties": members})) | {"components": own})

    assert tool.input_schema["$defs"] == {"X": {"type": "string"}, "X_2": {"type": "integer"}}


def test_a_schema_nested_too_deeply_is_left_out() -> None:
    deep: dict[str, Any] = {}
    for _ in range(3_000):
        deep = {"items": deep}
    source = document({"/a": {"get": operation(parameters=[{"name": "q", "in": "query", "schema": deep}])}})

    with pytest.raises(ConfigError, match="nested too deeply"):
        tools(source)


def test_answers_of_several_forms_are_alternatives() -> None:
    def answer(schema: dict[str, Any]) -> dict[str, Any]:
        return {"description": "", "content": {"application/json": {"schema": schema}}}

    both = {"200": answer({"type": "object"}), "202": answer({"type": "array"}), "400": answer({"type": "null"})}
    with_empty = {"200": answer({"type": "object"}), "204": {"description": "nothing"}}
    api = tools(document({"/a": {"get": {"responses": both}}, "/b": {"get": {"responses": with_empty}}}))

    assert api.tools["get_a"].output_schema == {"anyOf": [{"type": "object"}, {"type": "array"}]}
    assert api.tools["get_b"].output_schema is None
    assert tools(PETS, options=OpenApiOptions(output_schemas=False)).tools["listPets"].output_schema is None


PATTERNS: list[tuple[Any, Any, set[str]]] = [
    ("GET *", (), {"listPets", "pets_get"}),
    (("tag:pets",), ("createPet",), {"listPets"}),
    ((), ("* /pets/{id}",), {"listPets", "createPet"}),
    (("pets/*",), (), {"pets_get"}),
    (("tag:none",), (), set()),
]


@pytest.mark.parametrize(
    ("include", "exclude", "names"),
    PATTERNS,
)
def test_operations_are_chosen_by_patterns(include: Any, exclude: Any, names: set[str]) -> None:
    assert set(tools(PETS, include=include, exclude=exclude).tools.names) == names


def test_a_definition_says_its_operation_and_its_pages() -> None:
    source = document({"/a": {"get": operation(tags=["t"], parameters=[{"name": "page_token", "in": "query"}])}})
    spec = only(source).spec

    assert spec.meta[OPERATION_META] == {"method": "GET", "path": "/a", "tags": ["t"], "paging": ["page_token"]}
    assert "Answers come in pages, by `page_token`." in spec.description


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"swagger": "1.2", "apis": []}, "'swagger' is '1.2'; OpenAPI 3.x and Swagger 2.0 are read"),
        ({"openapi": "4.0.0"}, "'openapi' is '4.0.0'; OpenAPI 3.x and Swagger 2.0 are read"),
        ({"mcpServers": {}}, "neither 'openapi' nor 'swagger', but 'mcpServers'"),
        ({"openapi": "3.1.0", "paths": []}, "'paths' is not an object"),
    ],
)
def test_what_is_no_document_is_refused(value: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        openapi_tools(value)


def test_a_document_of_3_2_is_read_as_far_as_it_is_known() -> None:
    querystring: dict[str, Any] = {
        "name": "filter",
        "in": "querystring",
        "content": {"application/json": {"schema": {}}},
    }
    source = document({"/a": {"get": operation(parameters=[querystring]), "query": operation()}}) | {"openapi": "3.2.0"}

    assert tools(source).tools.names == ("get_a", "query_a")


def test_yaml_is_read_as_json_has_it(tmp_path: Path) -> None:
    file = tmp_path / "api.yaml"
    file.write_text(
        "openapi: 3.0.3\ninfo: {title: T, version: '1'}\npaths:\n  /a:\n    get:\n      parameters:\n"
        "        - {name: on, in: query, schema: {type: string, enum: [on, off, no, 2020-01-02], default: yes}}\n"
        "      responses:\n        200: {description: ok, content: {application/json: {schema: {type: object}}}}\n"
    )
    tool = only(file)

    assert tool.input_schema["properties"] == {
        "on": {"type": "string", "enum": ["on", "off", "no", "2020-01-02"], "default": "yes"}
    }
    assert tool.output_schema == {"type": "object"}
    assert only(str(file)).name == tool.name


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not valid JSON"),
        ("a: [", "neither JSON nor YAML"),
        ("a: &a [*a]", "contains itself"),
        ("a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
            f"{chr(98 + i)}: &{chr(98 + i)} [{','.join([f'*{chr(97 + i)}'] * 10)}]\n" for i in range(8)
        ), "stands for more than"),
        ("just words", "is not an OpenAPI document"),
    ],
)  # fmt: skip
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "api.yaml"
    file.write_text(text)

    with pytest.raises(ConfigError, match=reason):
        openapi_tools(file)


def test_a_missing_file_and_a_document_without_a_server_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        openapi_tools(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="has no server URL; set base_url"):
        openapi_tools(PETS)
    with pytest.raises(ConfigError, match="base_url"):
        openapi_tools(PETS, base_url="ftp://x")
    with pytest.raises(ConfigError, match="is expected, not int"):
        openapi_tools(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("chosen", "url"),
    [({}, "https://eu.example.com/v2"), ({"region": "us"}, "https://us.example.com/v2")],
)
def test_variables_of_a_server_have_their_defaults_or_what_is_given(chosen: dict[str, str], url: str) -> None:
    server = {
        "url": "https://{region}.example.com/{version}",
        "variables": {"region": {"default": "eu", "enum": ["eu", "us"]}, "version": {"default": "v2"}},
    }

    api = openapi_tools(PETS | {"servers": [server]}, options=OpenApiOptions(server_variables=chosen))

    assert api.base_url == url
    with pytest.raises(ConfigError, match=r"'region' has no usable value.*eu, us"):
        openapi_tools(PETS | {"servers": [server]}, options=OpenApiOptions(server_variables={"region": "evil"}))


@pytest.mark.parametrize("field", ["include", "exclude"])
def test_a_pattern_that_fits_no_operation_is_logged(field: str, caplog: pytest.LogCaptureFixture) -> None:
    assert tools(PETS, **{field: ["GET /pets*", "DELTE *"]})

    assert [message for message in caplog.messages if "fits no operation" in message] == [
        message for message in caplog.messages if f"'DELTE *' in '{field}' fits no operation" in message
    ]
    assert "'DELTE *'" in caplog.text
