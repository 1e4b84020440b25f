"""A server compared with what clients have of it through a gateway: differences are found, and only those."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from tests.gateway.upstreams import strange
from toolweave import create_mcp_server
from toolweave.config import server_config
from toolweave.gateway import compare_through, create_gateway
from toolweave.testing import MemoryServer


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_nothing_of_a_strange_server_is_lost_for_a_client_of_its_era(era: str) -> None:
    client = "2026-07-28" if era == "modern" else "2025-11-25"
    async with strange(era, "stdio") as entry:
        (found,) = await compare_through(entry, clients=[client])

    assert (found.client, found.server, found.lost) == (client, client, ())
    assert bool(found.limits) is True


async def test_tasks_that_a_client_of_the_other_era_has_as_an_extension_are_not_lost() -> None:
    server = MemoryServer(protocol="legacy")
    named = {"name": "m", "version": "1"}
    capabilities: dict[str, Any] = {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}}
    declared: dict[str, Any] = {
        "protocolVersion": "2025-11-25",
        "capabilities": capabilities,
        "serverInfo": named,
    }
    server.answer("initialize", declared, times=100)
    (found,) = await compare_through(
        server_config({"server": server, "protocol": "legacy"}, name="m"), clients=["2026-07-28"]
    )

    assert found.lost == ()
    assert "tasks of the server cannot ask, and cannot be listed" in found.limits


@pytest.mark.slow
async def test_what_the_revision_of_a_client_has_no_word_for_is_a_limit() -> None:
    with anyio.fail_after(60):
        async with strange("modern", "http") as entry:
            (found,) = await compare_through(entry, clients=["2025-03-26"])

    assert found.lost == ()
    assert "extensions are not shown: vendor.example/y" in found.limits
    assert [text for text in found.limits if text.startswith("forms for the user")]
    assert [text for text in found.limits if text.startswith("pages that the user has to visit")]


async def test_what_a_gateway_leaves_out_and_changes_is_found() -> None:
    def server(*, whole: bool) -> Any:
        made = create_mcp_server(
            name="s", version="1", instructions="Be kind.\nBe quick." if whole else None, logging=whole
        )

        @made.tool(description="Add numbers." if whole else "Subtract numbers.")
        def add(a: int, b: int) -> int:  # pyright: ignore[reportUnusedFunction]
            return a + b

        if whole:

            @made.tool
            def more() -> str:  # pyright: ignore[reportUnusedFunction]
                return ""

            @made.resource("notes://a")
            def note() -> str:  # pyright: ignore[reportUnusedFunction]
                return ""

            @made.prompt
            def ask() -> str:  # pyright: ignore[reportUnusedFunction]
                return ""

        return made

    gateway = create_gateway({"s": {"server": server(whole=False)}})
    found = await compare_through(
        server_config({"server": server(whole=True)}, name="s"), gateway={"server": gateway}, clients=["2025-11-25"]
    )

    (client,) = found
    assert {(one.kind, one.name, one.reason) for one in client.lost} == {
        ("capability", "logging", "is not declared"),
        ("capability", "prompts", "is not declared"),
        ("capability", "resources", "is not declared"),
        ("instructions", "s", "the client is given no instructions"),
        ("tool", "add", "is listed with other description"),
        ("tool", "more", "is not listed"),
        ("resource", "notes://a", "is not listed"),
        ("prompt", "ask", "is not listed"),
    }
