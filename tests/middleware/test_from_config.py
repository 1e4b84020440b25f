"""Middleware of a config file: by name, in order, with errors that name the place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.middleware.company import caller, company, token_of
from toolweave.errors import ConfigError, RequestError
from toolweave.middleware import (
    AccessRules,
    AuditLog,
    CallBudget,
    RateLimit,
    Redaction,
    ResponseCache,
    SizeLimits,
    Timing,
    UserApproval,
    middleware_from_config,
)

Json = dict[str, Any]


async def own(request: Any, call_next: Any) -> Json:
    """Answer tools/list with nothing."""
    return {"tools": []} if request.method == "tools/list" else await call_next(request)


class Own:
    """Middleware with an option."""

    def __init__(self, said: str = "closed") -> None:
        self.said = said

    async def __call__(self, request: Any, call_next: Any) -> Json:
        raise RequestError(self.said, code=-32000)


def test_every_kind_is_made_in_the_order_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    text = f"""[
        {{"name": "audit_log", "path": {json.dumps(str(path))}, "arguments": "none", "extra": {{"site": 1}}}},
        {{"name": "timing", "slow_seconds": 2}},
        {{"name": "access_rules", "default": "deny", "rules": [
            {{"effect": "allow", "annotations": {{"readOnlyHint": true}}, "claims": {{"team": ["blue", "red"]}}}},
            {{"effect": "deny", "names": ["wipe*"], "authenticated": false}}
        ]}},
        {{"name": "rate_limit", "calls": 10, "seconds": 60, "by": ["principal", "tool"]}},
        {{"name": "budget", "calls": 1000, "per": "day", "only": [{{"kinds": ["tools"], "servers": ["git*"]}}]}},
        {{"name": "size_limits", "arguments": 1000, "results": 100000}},
        {{"name": "cache", "tools_seconds": 1.5}},
        {{"name": "approval", "message": "{{tool}}?"}},
        {{"name": "redaction", "patterns": {{"email": ""}}}}
    ]"""

    made = middleware_from_config(json.loads(text), state_keys=["k" * 32])

    assert [type(one) for one in made] == [
        AuditLog,
        Timing,
        AccessRules,
        RateLimit,
        CallBudget,
        SizeLimits,
        ResponseCache,
        UserApproval,
        Redaction,
    ]
    rules: Any = made[2]
    assert rules.rules[0].claims == {"team": ["blue", "red"]}
    assert rules.rules[1].names == ("wipe*",)
    approval: Any = made[7]
    assert approval.state_keys == ("k" * 32,)


async def test_middleware_of_a_file_works_as_that_of_python() -> None:
    entries = [
        {"name": "access_rules", "rules": [{"effect": "allow", "subjects": ["ada"]}]},
        {"name": "rate_limit", "calls": 1, "seconds": 60},
    ]
    server = company(*middleware_from_config(entries))

    await caller(token_of("ada")).call(server, "find")
    with pytest.raises(RequestError, match="too many calls"):
        await caller(token_of("ada")).call(server, "find")
    with pytest.raises(RequestError, match="Unknown tool"):
        await caller(token_of("bob")).call(server, "find")


async def test_a_function_or_a_class_of_ones_own_is_named_by_its_module() -> None:
    here = __name__
    (function,) = middleware_from_config([{"name": f"{here}:own"}])
    (plain, told) = middleware_from_config([{"name": f"{here}:Own"}, {"name": f"{here}:Own", "said": "away"}])

    listed = await company(function).endpoint.answer(caller().request("tools/list"))

    assert function is own
    assert listed["tools"] == []
    for one, said in ((plain, "closed"), (told, "away")):
        with pytest.raises(RequestError, match=said):
            await company(one).endpoint.answer(caller().request("tools/list"))


WRONG: list[tuple[Any, str, str]] = [
    ({}, "gateway.middleware", "must be a list of middleware, not an object"),
    ([7], "gateway.middleware[0]", "must be an object, not a number"),
    ([{}], "gateway.middleware[0]", "needs a 'name', one of access_rules"),
    ([{"name": 7}], "gateway.middleware[0].name", "must be a string"),
    ([{"name": "rate_limits"}], "gateway.middleware[0].name", "did you mean 'rate_limit'?"),
    ([{"name": "xyz"}], "gateway.middleware[0].name", "known: access_rules"),
    (
        [{"name": "timing"}, {"name": "timing", "slow_secs": 1}],
        "gateway.middleware[1]",
        "did you mean 'slow_seconds'?",
    ),
    ([{"name": "timing", "xyz": 1}], "gateway.middleware[0]", "known: slow_seconds"),
    ([{"name": "timing", "report": 1}], "gateway.middleware[0]", "there is no option 'report'"),
    ([{"name": "rate_limit"}], "gateway.middleware[0]", "calls"),
    ([{"name": "rate_limit", "calls": "ten"}], "gateway.middleware[0]", "calls: Expected `float`"),
    (
        [{"name": "rate_limit", "calls": 0}],
        "gateway.middleware[0]",
        "RateLimit.calls is a number, finite and at least 0.001, not 0",
    ),
    (
        [{"name": "rate_limit", "calls": 1, "by": ["user"]}],
        "gateway.middleware[0]",
        "by: Invalid enum value 'user'",
    ),
    ([{"name": "access_rules", "rules": [{}]}], "gateway.middleware[0]", "rules: .*`effect`"),
    (
        [{"name": "access_rules", "rules": [{"effect": "alow"}]}],
        "gateway.middleware[0]",
        "Invalid enum value 'alow'",
    ),
    (
        [{"name": "access_rules", "rules": [{"effect": "allow", "nmaes": []}]}],
        "gateway.middleware[0]",
        r"unknown field `nmaes` - at `\$\[0\]`",
    ),
    (
        [{"name": "access_rules", "rules": [{"effect": "allow", "names": "x"}]}],
        "gateway.middleware[0]",
        "Expected `array`, got `str`",
    ),
    ([{"name": "access_rules", "rules": [{"effect": "deny", "when": "("}]}], "gateway.middleware[0]", "rule 1"),
    ([{"name": "redaction", "patterns": {"x": "("}}], "gateway.middleware[0]", "pattern 'x'"),
    ([{"name": "audit_log"}], "gateway.middleware[0]", "a path or a sink"),
    ([{"name": "no.such.module:name"}], "gateway.middleware[0].name", "ModuleNotFoundError"),
    ([{"name": "json:nothing"}], "gateway.middleware[0].name", "AttributeError"),
    ([{"name": "json:__name__"}], "gateway.middleware[0].name", "cannot be called"),
]


@pytest.mark.parametrize(("entries", "field", "said"), WRONG)
def test_what_is_wrong_is_an_error_that_names_the_place(entries: Any, field: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        middleware_from_config(entries)

    assert caught.value.field == field


def test_the_config_of_the_documentation_is_right() -> None:
    text = (Path(__file__).parents[2] / "docs_src" / "middleware.json").read_text()

    made = middleware_from_config(json.loads(text)["gateway"]["middleware"])

    assert [type(one) for one in made] == [AuditLog, AccessRules, RateLimit, Redaction]
