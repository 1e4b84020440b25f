"""Rules per caller: what it may not use it does not see, and whatever it asks for is then unknown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest

from tests.middleware.company import Json, caller, company, joined, token_of
from tests.serve.carriers import EACH_ERA, connected
from tests.serve.lines import Peer
from toolweave import ProtocolError, tool
from toolweave.errors import ConfigError, RequestError
from toolweave.middleware import AccessRule, AccessRules
from toolweave.serve import McpServer, create_mcp_server

ADA = token_of("ada", "read", team="blue", realm={"roles": ["admin", "user"]}, level=3)
BOB = token_of("bob", "read", "write", team="red")


def allow(**conditions: Any) -> AccessRule:
    return AccessRule(effect="allow", **conditions)


def deny(**conditions: Any) -> AccessRule:
    return AccessRule(effect="deny", **conditions)


async def tools_of(server: McpServer, peer: Peer) -> list[str]:
    listed = await server.endpoint.answer(peer.request("tools/list"))
    return [one["name"] for one in listed["tools"]]


async def refusal(server: McpServer, peer: Peer, method: str, **params: Any) -> tuple[int, str]:
    with pytest.raises(RequestError) as caught:
        await server.endpoint.answer(peer.request(method, **params))
    return caught.value.code, caught.value.message


@pytest.mark.parametrize(
    ("rules", "listed"),
    [
        ((), []),
        ((allow(),), ["find", "change", "wipe"]),
        ((allow(kinds=("prompts",)),), []),
        ((allow(names=("f*", "w?pe")),), ["find", "wipe"]),
        ((allow(names=["find"]),), ["find"]),
        ((allow(annotations={"readOnlyHint": True}),), ["find"]),
        ((allow(), deny(annotations={"destructiveHint": True})), ["find"]),  # what does not say is destructive
        ((deny(names=("wipe",)), allow()), ["find", "change"]),
        ((allow(servers=("github",)),), []),
        ((allow(), deny(servers=("*",))), ["find", "change", "wipe"]),  # its own tools are of no server
        ((allow(subjects=("ada",)),), ["find", "change", "wipe"]),
        ((allow(subjects=("bob",)),), []),
        ((allow(clients=("app",), issuers=("https://issuer.*",)),), ["find", "change", "wipe"]),
        ((allow(scopes=("read",)),), ["find", "change", "wipe"]),
        ((allow(scopes=("read", "write")),), []),
        ((allow(claims={"team": "blue"}),), ["find", "change", "wipe"]),
        ((allow(claims={"team": ["red", "green"]}),), []),
        ((allow(claims={"realm.roles": "admin", "level": (2, 3)}),), ["find", "change", "wipe"]),
        ((allow(claims={"level": True}),), []),
        ((allow(claims={"realm.nothing.there": "admin"}),), []),
        ((allow(authenticated=False),), []),
        ((allow(authenticated=True), deny(authenticated=True, names=("find",))), ["change", "wipe"]),
    ],
)
async def test_a_caller_sees_what_the_rules_allow_it(rules: tuple[AccessRule, ...], listed: list[str]) -> None:
    server = company(AccessRules(rules=rules))

    assert await tools_of(server, caller(ADA)) == listed
    for name in ("find", "change", "wipe"):
        if name in listed:
            assert "isError" not in await caller(ADA).call(server, name)
        else:
            assert await refusal(server, caller(ADA), "tools/call", name=name) == (-32602, f"Unknown tool: {name}")


async def test_exceptions_alone_are_denied_where_the_default_allows() -> None:
    server = company(AccessRules(rules=[deny(names=["wipe"])], default="allow"))

    assert await tools_of(server, caller()) == ["find", "change"]


async def test_an_alias_leads_around_no_rule() -> None:
    server = company(AccessRules(rules=[deny(names=["wipe"])], default="allow"))

    assert await refusal(server, caller(), "tools/call", name="erase") == (-32602, "Unknown tool: erase")


async def test_rules_differ_by_caller_on_one_server() -> None:
    server = company(AccessRules(rules=[allow(annotations={"readOnlyHint": True}), allow(scopes=["write"])]))

    assert await tools_of(server, caller(ADA)) == ["find"]
    assert await tools_of(server, caller(BOB)) == ["find", "change", "wipe"]
    assert await tools_of(server, caller()) == ["find"]


@EACH_ERA
async def test_rules_hold_over_http(era: str) -> None:
    server = company(AccessRules(rules=[allow(names=["find", "greet", "notes://open/*"])]))
    async with joined(server, ADA, era) as connection:
        listed = [one.name for one in await connection.list_tools()]
        prompts = [one.name for one in await connection.list_prompts()]
        resources = await connection.list_resources()
        templates = [one.uri_template for one in await connection.list_resource_templates()]
        found = await connection.call_tool("find", {"text": "it"})
        read = await connection.read_resource("notes://open/a")
        with pytest.raises(ProtocolError, match="not found"):
            await connection.read_resource("notes://diary")
        with pytest.raises(ProtocolError, match="Unknown prompt"):
            await connection.get_prompt("confess")

    assert (listed, prompts, [*resources], templates) == (["find"], ["greet"], [], ["notes://open/{name}"])
    assert found.text == "found it"
    assert read


@EACH_ERA
async def test_what_is_hidden_is_unknown_by_every_method(era: str) -> None:
    server = company(AccessRules(rules=[allow(), deny(names=["wipe", "confess", "notes://diary", "notes://secret/*"])]))
    other = company()
    peer = caller(version=era)

    async def same(method: str, hidden: Json, unknown: Json, *names: str) -> None:
        code, said = await refusal(server, peer, method, **hidden)
        unknown_code, expected = await refusal(other, peer, method, **unknown)
        assert (code, said) == (unknown_code, expected.replace(names[1], names[0]))

    await same("tools/call", {"name": "wipe"}, {"name": "nothing"}, "wipe", "nothing")
    await same("prompts/get", {"name": "confess"}, {"name": "nothing"}, "confess", "nothing")
    await same("resources/read", {"uri": "notes://diary"}, {"uri": "notes://no"}, "notes://diary", "notes://no")
    await same("resources/read", {"uri": "notes://secret/a"}, {"uri": "notes://no"}, "notes://secret/a", "notes://no")
    argument = {"name": "name", "value": ""}
    await same(
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "confess"}, "argument": argument},
        {"ref": {"type": "ref/prompt", "name": "nothing"}, "argument": argument},
        *("confess", "nothing"),
    )
    await same(
        "completion/complete",
        {"ref": {"type": "ref/resource", "uri": "notes://secret/{name}"}, "argument": argument},
        {"ref": {"type": "ref/resource", "uri": "notes://no/{name}"}, "argument": argument},
        *("notes://secret/{name}", "notes://no/{name}"),
    )


@pytest.mark.parametrize(
    "uri",
    ["notes://DIARY", "NOTES://diary", "notes://%64iary", "notes://open/../diary", "notes://open/%2e%2e/diary"],
)
async def test_no_spelling_of_a_uri_leads_around_a_rule(uri: str) -> None:
    server = company(AccessRules(rules=[allow(), deny(names=["notes://diary"])]))

    code, said = await refusal(server, caller(), "resources/read", uri=uri)

    assert (code, said) == (-32602, f"Resource not found: {uri}")


async def test_a_template_that_is_allowed_can_be_read_and_a_denied_one_cannot() -> None:
    server = company(AccessRules(rules=[allow(names=["notes://open/{name}"])]))

    read = await server.endpoint.answer(caller().request("resources/read", uri="notes://open/a"))

    assert read["contents"][0]["text"] == "a"
    await refusal(server, caller(), "resources/read", uri="notes://secret/a")


async def test_subscriptions_to_what_is_hidden_are_not_honoured() -> None:
    server = company(AccessRules(rules=[allow(), deny(names=["notes://diary"])]))
    hidden, shown = "notes://diary", "notes://open/a"

    assert await refusal(server, caller(version="2025-11-25"), "resources/subscribe", uri=hidden) == (
        -32002,
        f"Resource not found: {hidden}",
    )
    peer = caller()
    request = peer.request("subscriptions/listen", notifications={"resourceSubscriptions": [hidden, shown]})
    async with connected(server):
        with anyio.move_on_after(0.2):
            await server.endpoint.answer(request)

    assert peer.notifications[0][1]["notifications"] == {"resourceSubscriptions": [shown]}


async def test_pages_and_cursors_tell_nothing_of_what_is_hidden() -> None:
    tools = [tool(name=f"t{n:02}")(lambda: "x") for n in range(20)]
    even = AccessRules(rules=[allow(names=["*[02468]"])])
    server = create_mcp_server("many", tools=tools, page_size=3, middleware=[even])
    plain = create_mcp_server(
        "many",
        tools=[one for one in tools if int(one.name[1:]) % 2 == 0],
        page_size=3,
        middleware=[AccessRules(default="allow")],
    )

    async def pages(one: McpServer) -> list[Any]:
        found: list[Any] = []
        params: Json = {}
        while True:
            listed = await one.endpoint.answer(caller(ADA).request("tools/list", **params))
            found.append(([spec["name"] for spec in listed["tools"]], listed.get("nextCursor")))
            if "nextCursor" not in listed:
                return found
            params = {"cursor": listed["nextCursor"]}

    assert await pages(server) == await pages(plain)


async def test_a_list_of_a_caller_is_private_although_the_server_is_public() -> None:
    server = company(AccessRules(rules=[allow()]), cache_scope="public", ttl_ms=1000)

    for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
        listed = await server.endpoint.answer(caller(ADA).request(method))
        assert listed["cacheScope"] == "private"
    read = await server.endpoint.answer(caller(ADA).request("resources/read", uri="notes://diary"))
    assert read["cacheScope"] == "private"


async def test_a_changed_definition_is_decided_anew() -> None:
    server = company(AccessRules(rules=[allow(annotations={"readOnlyHint": True})]))
    assert await tools_of(server, caller()) == ["find"]

    server.remove_tool("find")

    @server.tool
    def find() -> str:
        """Find, and keep what was found."""
        return "kept"

    assert await tools_of(server, caller()) == []
    await refusal(server, caller(), "tools/call", name="find")


async def test_scopes_and_rules_both_have_to_allow() -> None:
    server = company(AccessRules(rules=[allow(names=["find", "change"])]))
    peer = caller()

    def by_scopes(kind: Any, name: str, scopes: Any = (), upstream: str | None = None, /) -> bool:
        return name != "find"

    peer.client = replace(peer.client, may=by_scopes)

    assert await tools_of(server, peer) == ["change"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: AccessRule(effect="denny"),  # type: ignore[arg-type]
        lambda: AccessRules(default="yes"),  # type: ignore[arg-type]
        lambda: AccessRule(effect="deny", kinds=("tool",)),  # type: ignore[arg-type]
        lambda: AccessRule(effect="deny", names=7),  # type: ignore[arg-type]
    ],
)
def test_a_slip_in_a_rule_is_an_error_and_opens_nothing(make: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"names is a list, not int|is 'allow'|kinds are"):
        make()


async def test_malformed_requests_get_the_answer_of_the_server() -> None:
    server = company(AccessRules(rules=[allow()]))

    assert (await refusal(server, caller(), "tools/call", name=7))[1].startswith("tools/call needs")
    assert (await refusal(server, caller(), "resources/read"))[1].startswith("resources/read needs")
    assert (await refusal(server, caller(), "completion/complete", ref=1))[0] == -32602
    assert (await refusal(server, caller(), "subscriptions/listen", notifications=3))[0] == -32602


class TestExpressions:
    """Rules with CEL."""

    @pytest.mark.parametrize(
        ("when", "listed"),
        [
            ("name == 'find'", ["find"]),
            ("kind == 'tools' && name.startsWith('c')", ["change"]),
            ("tool.annotations.readOnlyHint", ["find"]),  # missing elsewhere: an error, which allows nothing
            ("has(tool.annotations.readOnlyHint) && tool.annotations.readOnlyHint", ["find"]),
            ("caller.subject == 'ada'", ["find", "change", "wipe"]),
            ("'write' in caller.scopes", []),
            ("'admin' in caller.claims.realm.roles", ["find", "change", "wipe"]),
            ("caller.claims.nothing == 'x'", []),
            ("caller.subject", []),  # a text is not true
            ("1 / 0 == 1", []),
            ("tool.description.matches('^Wipe')", ["wipe"]),
        ],
    )
    async def test_an_expression_allows_what_it_is_true_for(self, when: str, listed: list[str]) -> None:
        server = company(AccessRules(rules=[allow(when=when)]))

        assert await tools_of(server, caller(ADA)) == listed

    async def test_a_rule_by_a_claim_of_one_token_judges_each_token_beside_an_expression(self) -> None:
        server = company(AccessRules(rules=[allow(claims={"jti": "first"}), deny(when="name == 'wipe'")]))
        first = token_of("ada", jti="first")
        second = token_of("ada", jti="second")

        assert await tools_of(server, caller(first)) == ["find", "change"]
        assert await tools_of(server, caller(second)) == []

    @pytest.mark.parametrize("when", ["caller.claims.nothing == 'x'", "1 / 0 == 1", "caller.subject"])
    async def test_an_expression_that_fails_denies_in_a_rule_that_denies(self, when: str) -> None:
        server = company(AccessRules(rules=[deny(when=when)], default="allow"))

        assert await tools_of(server, caller(ADA)) == []

    async def test_a_rule_that_reads_arguments_is_decided_at_the_call(self) -> None:
        server = company(AccessRules(rules=[allow(names=["change"], when="args.amount < 10")]))

        assert await tools_of(server, caller(ADA)) == ["change"]
        few = await caller(ADA).call(server, "change", {"amount": 9})
        many = await caller(ADA).call(server, "change", {"amount": 10})
        none = await caller(ADA).call(server, "change", {})
        # arguments are made to fit before the rule reads them, so that it judges what the function gets
        few_as_text = await caller(ADA).call(server, "change", {"amount": "9"})
        many_as_text = await caller(ADA).call(server, "change", {"amount": "10"})
        odd = await caller(ADA).call(server, "change", {"amount": "nine"})

        assert ["isError" in one for one in (few, few_as_text)] == [False] * 2
        assert [one["isError"] for one in (many, none, many_as_text, odd)] == [True] * 4
        assert "not allowed" in many["content"][0]["text"]

    async def test_a_rule_that_denies_by_arguments_leaves_the_rest(self) -> None:
        rules = [allow(), deny(names=["change"], when="args.text.contains('secret')")]
        server = company(AccessRules(rules=rules))

        fine = await caller().call(server, "change", {"text": "open"})
        denied = await caller().call(server, "change", {"text": "a secret"})
        missing = await caller().call(server, "change", {})

        assert "isError" not in fine
        assert denied["isError"]
        assert missing["isError"]  # the expression failed
        assert await tools_of(server, caller()) == ["find", "change", "wipe"]

    async def test_arguments_beyond_a_size_are_not_read(self) -> None:
        server = company(AccessRules(rules=[allow(when="size(args.text) > 0")]))

        assert "isError" not in await caller().call(server, "find", {"text": "x" * 1000})
        assert (await caller().call(server, "find", {"text": "x" * 300_000}))["isError"]

    async def test_prompts_are_decided_by_their_arguments_too(self) -> None:
        server = company(AccessRules(rules=[allow(when="args.name != 'Eve'")]))

        got = await server.endpoint.answer(caller().request("prompts/get", name="greet", arguments={"name": "Ada"}))
        code, said = await refusal(server, caller(), "prompts/get", name="greet", arguments={"name": "Eve"})

        assert got["messages"]
        assert (code, "not allowed" in said) == (-32602, True)

    @pytest.mark.parametrize("when", ["name ==", "nmae == 'find'", "args.a.b.(", "", "name", "7"])
    def test_an_expression_that_does_not_compile_is_an_error_of_the_config(self, when: str) -> None:
        with pytest.raises(ConfigError, match="rule 2"):
            AccessRules(rules=[allow(), allow(when=when)])
