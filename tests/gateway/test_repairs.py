"""Results of upstreams that are nearly right: passed on as they came, or errors if the owner wants no repairs."""

from __future__ import annotations

import pytest

from tests.gateway import strange_server
from tests.gateway.plain_callers import Ways, plain
from tests.gateway.relayed import MODERN
from tests.gateway.upstreams import strange
from tests.serve.serving import served_http
from toolweave.gateway import create_gateway

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("version", [MODERN, "2025-11-25"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_result_that_needs_repair_is_an_error_if_the_owner_of_its_upstream_wants_no_repairs(
    era: str, transport: str, version: str
) -> None:
    errors: dict[str, str] = {}
    async with strange(era, transport) as config:
        gateway = create_gateway({"up": {**config, "validate_output": "error", "repair_messages": False}})
        async with served_http(gateway) as url, plain(url, version) as client:
            for tool in strange_server.ODD_RESULTS:
                _, _, answer = await client.ask(*client.call(tool, {}))
                errors[tool] = answer["error"]["message"]
            _, _, proper = await client.ask(*client.call("blocks", {}))

    assert [tool for tool, message in errors.items() if f"tool {tool!r}: its result " not in message] == []
    assert [tool for tool, message in errors.items() if "'repair_messages': true" not in message] == []
    assert proper["result"]["content"][0]["type"] == "text"


@pytest.mark.parametrize("version", [MODERN, "2025-11-25"])
async def test_a_result_that_needs_repair_is_passed_on_at_once_as_it_came(version: str) -> None:
    ways = Ways()
    async with strange("modern", "stdio") as config:
        gateway = create_gateway({"up": config}, middleware=[ways])
        async with served_http(gateway) as url, plain(url, version) as client:
            _, _, answer = await client.ask(*client.call("word", {}))

    assert ways.fast == ["word"]
    assert answer["result"]["content"] == "made"


@pytest.mark.parametrize("version", [MODERN, "2025-11-25"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("tool", ["flagged", "snake"])
async def test_an_error_in_another_spelling_is_an_error_for_every_client(
    era: str, transport: str, version: str, tool: str
) -> None:
    async with strange(era, transport) as config:
        gateway = create_gateway({"up": config})
        async with served_http(gateway) as url, plain(url, version) as client:
            _, _, answer = await client.ask(*client.call(tool, {}))
            found = gateway.hub.clients["up"].problems

    assert answer["result"]["isError"] is True
    assert "is_error" not in answer["result"]
    assert [one for one in found if one.startswith(f"tool {tool!r}: its result has ")]
