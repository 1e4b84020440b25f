"""Rules that rename, describe, hide and bind tools and their arguments."""

from __future__ import annotations

import asyncio

from toolweave import connect_mcp, create_mcp_server
from toolweave.definitions import ArgumentRule, ShapeRule, shaped
from toolweave.tools import CallContext, as_toolset


def search_issues(q: str, tenant: str, per_page: int = 100) -> str:
    """Search issues."""
    return f"{per_page} issues of {tenant} with {q!r}"


def delete_issue(number: int, tenant: str) -> str:
    """Delete an issue."""
    return f"deleted {number} of {tenant}"


RULES = [
    ShapeRule(
        tools="search_*",
        name="find_issues",
        description="Find issues by words.",
        arguments={
            "q": ArgumentRule(name="words", description="Words that the issue has."),
            "per_page": ArgumentRule(default=5),
        },
    ),
    ShapeRule(arguments={"tenant": ArgumentRule(state="tenant")}),
    ShapeRule(tools="delete_*", hide=True),
]


async def main() -> None:
    tools = shaped(as_toolset([search_issues, delete_issue]), RULES)
    ctx = CallContext(state={"tenant": "acme"})
    for spec in tools.snapshot():
        print(spec.name, sorted(spec.input_schema["properties"]), spec.input_schema["required"])
    print((await tools.execute("find_issues", {"words": "crash"}, ctx)).text)
    print((await tools.execute("find_issues", {"words": "crash", "tenant": "other"}, ctx)).error)

    server = create_mcp_server("tracker", tools=[search_issues, delete_issue])
    rules = [{"tools": "*_issue*", "arguments": {"tenant": {"value": "acme"}}}]
    async with connect_mcp({"server": server, "shape": rules}) as tracker:
        print((await tracker.call_tool("search_issues", {"q": "crash"})).text)


asyncio.run(main())
