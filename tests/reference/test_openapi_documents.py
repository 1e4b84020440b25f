"""Documents that ship in packages: each becomes a toolset, and every call reaches its operation at a mock of it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml

from tests.openapi.mock_api import MockApi, serving
from tests.openapi.sampling import sample
from tests.reference.servers import INSTALLED
from toolweave.errors import ErrorKind
from toolweave.openapi import OpenApiOptions, openapi_tools

pytestmark = pytest.mark.reference

README = "@readme/oas-examples"
DOCUMENTS: dict[str, tuple[int, int]] = {  # tools, and operations that are left out
    "rclone-openapi/openapi.json": (101, 0),
    "@figma/rest-api-spec/openapi/openapi.yaml": (54, 0),
    "@blockfrost/openapi/openapi.yaml": (129, 0),
    "@directus/specs/dist/openapi.json": (135, 1),
    "@digdir/dialogporten-schema/swagger.verified.json": (29, 0),
    "@ideal-postcodes/openapi/dist/openapi.json": (31, 0),
    "@scalar/galaxy/dist/3.1.json": (9, 0),
    f"{README}/3.0/json/parameters-style.json": (25, 0),
    f"{README}/3.0/json/star-trek.json": (120, 0),
    f"{README}/3.0/json/schema-circular.json": (3, 0),
    f"{README}/3.0/json/security.json": (15, 0),
    f"{README}/3.0/json/server-variables.json": (4, 0),
    f"{README}/3.0/json/discriminators.json": (10, 0),
    f"{README}/3.1/json/train-travel.json": (7, 0),
    f"{README}/3.1/json/readme.json": (54, 0),
    f"{README}/3.1/json/schema-types.json": (23, 0),
}


UNFILLED = {
    f"{README}/3.0/json/discriminators.json": 8,
    f"{README}/3.1/json/readme.json": 2,
    f"{README}/3.1/json/schema-types.json": 3,
}
"""Operations for whose schemas, of patterns or of alternatives that are alike, the sampler finds no arguments."""


def path_of(name: str) -> Path:
    return INSTALLED / "npm" / "node_modules" / name


@cache
def document(name: str) -> dict[str, Any]:
    text = path_of(name).read_text(encoding="utf-8-sig")
    return json.loads(text) if name.endswith(".json") else yaml.load(text, Loader=yaml.CSafeLoader)


@pytest.mark.parametrize("name", DOCUMENTS)
async def test_every_operation_of_a_real_document_is_called_where_it_is(name: str) -> None:
    mock = MockApi(document(name))
    with serving(mock) as url, anyio.fail_after(120):
        options = OpenApiOptions(output_schemas=False)
        async with openapi_tools(path_of(name), base_url=url, options=options) as toolset:
            left_out = [one for one in toolset.problems if one.skipped == "operation"]
            assert (len(toolset.tools), len(left_out)) == DOCUMENTS[name]
            unfilled = 0
            for tool in toolset.tools:
                operation = tool.spec.meta["io.toolweave/operation"]
                wanted = f"{operation['method']} {operation['path']}"
                arguments = sample(tool.input_schema)

                result = await tool.execute(arguments)

                if result.error is not None and result.error.kind is ErrorKind.INVALID_INPUT:
                    unfilled += 1
                    continue
                assert not result.is_error, (wanted, arguments, result.text)
                # of two paths of one form, such as /a/{b} and /a/{c}, the mock takes one; no fragment is ever sent
                assert mock.last.operation in {wanted, *mock.forms(wanted.partition("#")[0])}, (wanted, mock.last)
            assert unfilled == UNFILLED.get(name, 0)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_answers_of_a_real_document_have_schemas_that_compile(name: str) -> None:
    toolset = openapi_tools(path_of(name), base_url="https://api.example.com")

    for one in toolset.problems:
        assert one.skipped == "operation" or "larger than" in one.reason, one
