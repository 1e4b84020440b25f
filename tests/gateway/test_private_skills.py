"""Skills of the connections that callers have of their own: listed, found and read by their caller alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.plain_callers import plain
from tests.gateway.relayed import MODERN, Json, gateway_to
from tests.gateway.test_perspectives import CALLERS_OF_EACH_ERA, HANDSHAKE, growing, three_callers
from tests.gateway.test_private_tasks import Voice, key_of
from tests.serve.serving import served_http
from tests.serve.talking import Talk, talking
from toolweave.errors import RequestError
from toolweave.gateway import Gateway
from toolweave.serve import ApiKey, ApiKeyAuth

TEST_SECONDS = 60

pytestmark = pytest.mark.slow

ABLE: Json = {"elicitation": {}}
SKILL = "skill://more/SKILL.md"


def skilled(mode: str, **options: Any) -> Gateway:
    """Return a gateway before a server whose skills grow in its own process."""
    entry = growing(mode)
    return gateway_to({**entry, "args": [*entry["args"], "skills"]}, **options)


async def skills_of(talk: Talk) -> dict[str, str]:
    """Return the descriptions of the skills that a caller is listed, by URI."""
    found = (await talk.ask("skills/list"))["skills"]
    return {one["uri"]: one["frontmatter"]["description"] for one in found}


async def grown(talk: Talk, name: str = "more") -> str:
    """Have the server of a caller offer more; return the id of its process."""
    made = await talk.ask("tools/call", {"name": "grow", "arguments": {"name": name}})
    return made["content"][0]["text"].removeprefix("grown in ")


@CALLERS_OF_EACH_ERA
async def test_a_caller_finds_and_reads_the_skills_of_the_connection_that_it_reaches(
    mode: str, able: Json, level: str | None
) -> None:
    async with talking(skilled(mode), HANDSHAKE, able) as talk:
        if level is not None:
            await talk.ask("logging/setLevel", {"level": level})
        assert await skills_of(talk) == {}
        where = await grown(talk)
        listed = await skills_of(talk)
        skill = (await talk.ask("skills/get", {"uri": SKILL}))["skill"]
        folder = (await talk.ask("resources/directory/read", {"uri": "skill://more"}))["resources"]
        read = (await talk.ask("resources/read", {"uri": SKILL}))["contents"][0]["text"]

    assert listed == {SKILL: f"of {where}"}
    assert skill["frontmatter"]["description"] == f"of {where}"
    assert folder == [{"uri": SKILL, "name": f"in {where}"}]
    assert read.endswith(f"in {where}")


@pytest.mark.parametrize("mode", ["legacy", "both"])
async def test_skills_of_one_caller_are_not_those_of_others(mode: str) -> None:
    gateway = skilled(mode)
    async with three_callers(gateway) as (one, other, third):
        first, second = await grown(one), await grown(other)
        assert await skills_of(one) == {SKILL: f"of {first}"}
        assert await skills_of(other) == {SKILL: f"of {second}"}
        assert await skills_of(third) == {}
        for method, uri in (("skills/get", SKILL), ("resources/directory/read", "skill://more")):
            with pytest.raises(RequestError) as unknown:
                await third.ask(method, {"uri": uri})
            assert unknown.value.code == -32602

    assert first != second


async def test_requests_of_a_modern_principal_find_the_skills_of_its_process() -> None:
    gateway = skilled("legacy")
    keys = ApiKeyAuth([ApiKey(name=name, key=key_of(name)) for name in ("ann", "bob")])
    async with (
        gateway.running(),
        served_http(gateway, auth=keys) as url,
        plain(url, MODERN, token=key_of("ann")) as one,
        plain(url, MODERN, token=key_of("bob")) as other,
    ):
        ann, bob = Voice(one), Voice(other)
        where = (await ann.grown("more")).removeprefix("in ")
        await bob.grown("less")
        listed = (await ann.ask("skills/list"))["skills"]
        skill = (await ann.ask("skills/get", uri=SKILL))["skill"]
        refused = await bob.answer("skills/get", uri=SKILL)

    assert [one["uri"] for one in listed] == [SKILL]
    assert skill["frontmatter"]["description"] == f"of {where}"
    assert refused["error"]["code"] == -32602
