"""An option of a protection that is of another type is refused where it is given, by name and without its value."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from toolweave import (
    Agent,
    Backend,
    Callbacks,
    CallContext,
    ConfigError,
    Hub,
    McpConnection,
    ServerConfig,
    ToolCall,
    ToolRegistry,
    connect_mcp,
    create_mcp_server,
    tool,
)
from toolweave.agent import Durable, RunStatuses
from toolweave.compose import UserData
from toolweave.config import ShapeRule
from toolweave.definitions import ArgumentRule
from toolweave.gateway import GatewayOptions, Replicas, create_gateway
from toolweave.jobs import Lease
from toolweave.middleware import (
    AccessRule,
    AuditLog,
    CallBudget,
    RateLimit,
    Redaction,
    ResponseCache,
    StoreLimits,
    Timing,
)
from toolweave.models import SamplingModel, ScriptedModel
from toolweave.oauth import SharedTokenStore
from toolweave.serve import (
    ApiKey,
    ApiKeyAuth,
    BearerAuth,
    ClientRules,
    Dpop,
    HttpLimits,
    IntrospectionAuth,
    JwtAuth,
    MemoryEventStore,
    OAuthClient,
    OAuthServer,
    ScopeRules,
    SessionRules,
    TaskRule,
    Upstream,
    directory,
)
from toolweave.state import MemoryStore, RedisStore, SqliteStore, open_store
from toolweave.tools import combined, filtered

SECRET = "hunter2-hunter2-hunter2"
ISSUER = "https://login.example"
AUDIENCE = "https://api.example/mcp"
Make = Callable[..., object]


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def everyone(_: object) -> bool:
    return True


class Asked:
    """A predicate that hands on what an async function returns."""

    def __call__(self, spec: object) -> Any:
        return everyone(spec)


def key_auth(**options: Any) -> object:
    return ApiKeyAuth([ApiKey(name="ann", key=SECRET)], **options)


def jwt(**options: Any) -> object:
    return JwtAuth(issuer=ISSUER, audience=AUDIENCE, **options)


def introspection(**options: Any) -> object:
    given: dict[str, Any] = {"client_id": "c", "client_secret": "s", **options}
    return IntrospectionAuth(issuer=ISSUER, audience=AUDIENCE, **given)


def oauth_server(**options: Any) -> object:
    upstream = Upstream.oidc(ISSUER, "client", "secret")
    given: dict[str, Any] = {"upstream": upstream, "store": MemoryStore(), "secret": "s" * 32, **options}
    return OAuthServer(url=AUDIENCE, **given)


def server(**options: Any) -> object:
    return create_mcp_server("s", tools=[add], **options)


def app(**options: Any) -> object:
    return create_mcp_server("s", tools=[add]).asgi_app(**options)


def gateway(**options: Any) -> object:
    return create_gateway({"mcpServers": {}}, **options)


def key(**options: Any) -> object:
    given: dict[str, Any] = {"key": SECRET, **options}
    return ApiKey(name="ann", **given)


def config(**options: Any) -> object:
    return ServerConfig(command="server", **options)


def deny(**options: Any) -> object:
    return AccessRule(effect="deny", **options)


def hide(**options: Any) -> object:
    return ShapeRule(hide=True, **options)


def keep(**options: Any) -> object:
    return filtered(ToolRegistry([add]), **options)


def keep_of_hub(**options: Any) -> object:
    return Hub({}).filtered(**options)


def alias(**options: Any) -> object:
    return ToolRegistry([add]).alias("plus", "add", **options)


def connection(**options: Any) -> object:
    return McpConnection(ServerConfig(command="server", name="s"), **options)


def replicas(**options: Any) -> object:
    given: dict[str, Any] = {"store": MemoryStore(), "keys": ["k" * 40], **options}
    return Replicas(**given)


def user_data(**options: Any) -> object:
    given: dict[str, Any] = {"store": MemoryStore(), "principal": "ann", **options}
    return UserData(**given)


def lease(**options: Any) -> object:
    given: dict[str, Any] = {"store": MemoryStore(), "collection": "c", "key": "k", **options}
    return Lease(**given)


def agent(**options: Any) -> object:
    return Agent(ScriptedModel(["hi"]), **options)


WRONG: list[tuple[Make, Mapping[str, object], str]] = [
    (key_auth, {"scopes": {"tools": {}}}, "ApiKeyAuth.scopes is ScopeRules(...), or None, not dict"),
    (key_auth, {"dpop": True}, "ApiKeyAuth.dpop is Dpop(...), or None, not bool"),
    (key_auth, {"required_scopes": 5}, "ApiKeyAuth.required_scopes is a list of scopes, not int"),
    (key_auth, {"resource": 5}, "ApiKeyAuth.resource is a string, or None, not int"),
    (jwt, {"api_keys": [SECRET]}, "each of the keys is an ApiKey(...), not str"),
    (BearerAuth, {"verify": SECRET}, "BearerAuth.verify is a function of the token, not str"),
    (BearerAuth, {"tokens": [SECRET.encode()]}, "each of tokens is a string, not bytes"),
    (BearerAuth, {"tokens": {SECRET: 5}}, "the client id of each token is a string that is not empty, not int"),
    (BearerAuth, {"tokens": 5}, "tokens is a mapping or a list of tokens, not int"),
    (key, {"key": 5}, "ApiKey.key is a string or a Secret, or None, not int"),
    (key, {"claims": [SECRET]}, "ApiKey.claims is a mapping, not list"),
    (key, {"expires_at": datetime(2030, 1, 1, tzinfo=UTC)}, "ApiKey.expires_at is a number, not datetime"),
    (key, {"expires_at": "2030-01-01"}, "ApiKey.expires_at is a number, not str"),
    (jwt, {"leeway_seconds": "30"}, "JwtAuth.leeway_seconds is a number, not str"),
    (jwt, {"leeway_seconds": None}, "JwtAuth.leeway_seconds is a number, not NoneType"),
    (jwt, {"key": SECRET.encode()}, "JwtAuth.key is a string, or a mapping of issuers to strings, or None, not bytes"),
    (jwt, {"jwks_url": {ISSUER: 5}}, f"jwks_url of {ISSUER!r} is a string, not int"),
    (jwt, {"algorithms": [256]}, "each of JwtAuth.algorithms is a string, not int"),
    (introspection, {"cache_seconds": "30"}, "IntrospectionAuth.cache_seconds is a number, not str"),
    (introspection, {"client_secret": 5}, "IntrospectionAuth.client_secret is a string or a Secret, not int"),
    (introspection, {"client_id": None}, "IntrospectionAuth.client_id is a string, not NoneType"),
    (oauth_server, {"upstream": ISSUER}, "OAuthServer.upstream is Upstream.oidc(...), or another provider, not str"),
    (
        oauth_server,
        {"store": SECRET},
        "OAuthServer.store is a store, such as SqliteStore(path) or open_store(url), not",
    ),
    (oauth_server, {"clients": {}}, "OAuthServer.clients is ClientRules(...), or None, not dict"),
    (oauth_server, {"allow": ["ann"]}, "OAuthServer.allow is a function, or None, not list"),
    (ClientRules, {"registration": "false"}, "ClientRules.registration is True or False, not str"),
    (ClientRules, {"documents": 0}, "ClientRules.documents is True or False, not int"),
    (ClientRules, {"clients": ["cursor"]}, "ClientRules.clients is a list of OAuthClient(...), not list"),
    (ClientRules, {"schemes": "cursor"}, "ClientRules.schemes is a list of strings, not str"),
    (ClientRules, {"redirect_allowed": "https"}, "ClientRules.redirect_allowed is a function, not str"),
    (ClientRules, {"redirect_allowed": everyone}, "ClientRules.redirect_allowed is not awaited; give a plain function"),
    (ClientRules, {"per_day": "9"}, "ClientRules.per_day is a whole number, not str"),
    (
        OAuthClient,
        {"client_id": "c", "redirect_uris": "https://a.example"},
        "OAuthClient.redirect_uris is a list of strings, not str",
    ),
    (ScopeRules, {"hide": "no"}, "ScopeRules.hide is True or False, not str"),
    (ScopeRules, {"tools": ["add"]}, "ScopeRules.tools is a mapping, not list"),
    (ScopeRules, {"tools": {"add": 5}}, "ScopeRules for 'add' is a list of scopes, not int"),
    (ScopeRules, {"includes": everyone}, "ScopeRules.includes is not awaited; give a plain function"),
    (Dpop, {"required": "no"}, "Dpop.required is True or False, not str"),
    (Dpop, {"nonce_keys": [SECRET * 2]}, "Dpop.nonce_keys is a list of bytes, not list"),
    (Dpop, {"store": SECRET}, "Dpop.store is a store, such as SqliteStore(path) or open_store(url), or None, not str"),
    (Dpop, {"window_seconds": "60"}, "Dpop.window_seconds is a number, not str"),
    (HttpLimits, {"body_bytes": None}, "HttpLimits.body_bytes is a whole number, not NoneType"),
    (HttpLimits, {"sessions": "9"}, "HttpLimits.sessions is a whole number, not str"),
    (HttpLimits, {"header_seconds": True}, "HttpLimits.header_seconds is a number, not bool"),
    (SessionRules, {"ttl_seconds": "60"}, "SessionRules.ttl_seconds is a number, not str"),
    (TaskRule, {"support": "optional", "ask_first": "no"}, "TaskRule.ask_first is True or False, not str"),
    (server, {"auth": SECRET}, "auth is an authorization, such as ApiKeyAuth(...)"),
    (server, {"auth": False}, "auth is an authorization, such as ApiKeyAuth(...)"),
    (server, {"request_state_keys": SECRET * 2}, "request_state_keys is a list of secrets, or None, not str"),
    (server, {"sessions": {"ttl_seconds": 5}}, "sessions is SessionRules(...), not dict"),
    (app, {"auth": ApiKey(name="ann", key=SECRET)}, "auth is an authorization, such as ApiKeyAuth(...)"),
    (app, {"allowed_hosts": "api.example"}, "allowed_hosts is a list of strings, not str"),
    (app, {"trusted_proxies": "10.0.0.0/8"}, "trusted_proxies is a list of strings, not str"),
    (app, {"stateless": "no"}, "stateless is True or False, not str"),
    (app, {"rest": "no"}, "rest is True or False, not str"),
    (app, {"limits": {"sessions": 5}}, "limits is HttpLimits(...), not dict"),
    (app, {"middleware": [SECRET]}, "middleware is a list of functions that wrap an app, not list"),
    (gateway, {"auth": SECRET}, "auth is an authorization, such as ApiKeyAuth(...)"),
    (gateway, {"state_keys": SECRET * 2}, "state_keys is a list of secrets, or None, not str"),
    (gateway, {"tools": [add]}, "tools is a toolset, such as hub.filtered([...]), or None, not list"),
    (gateway, {"patience": "60"}, "patience is a number, not str"),
    (gateway, {"token_store": SECRET}, "token_store is a token store, such as FileTokenStore(path), or None, not str"),
    (
        gateway,
        {"task_store": SECRET},
        "task_store is a store, such as SqliteStore(path) or open_store(url), or None, not",
    ),
    (gateway, {"replicas": SECRET}, "replicas is Replicas(...), or None, not str"),
    (gateway, {"slow_call_seconds": "5"}, "slow_call_seconds is a number, not str"),
    (GatewayOptions, {"names": "a"}, "GatewayOptions.names is a list of strings, not str"),
    (GatewayOptions, {"auth": SECRET}, "auth is an authorization, such as ApiKeyAuth(...)"),
    (GatewayOptions, {"ui": "no"}, "GatewayOptions.ui is True or False, or None, not str"),
    (GatewayOptions, {"middleware": everyone}, "middleware= takes a sequence of middleware"),
    (app, {"event_store": "memory"}, "event_store is an event store, such as MemoryEventStore(), or None, not str"),
    (
        app,
        {"event_store": MemoryEventStore},
        "event_store is an event store, such as MemoryEventStore(), or None, not the",
    ),
    (
        app,
        {"event_store": MemoryStore()},
        "event_store is an event store, such as MemoryEventStore(), or None, not Mem",
    ),
    (MemoryEventStore, {"size": "100"}, "MemoryEventStore.size is a number, not str"),
    (server, {"sampling": "openai:gpt-5"}, "sampling is SamplingModel(model), or None, not str"),
    (server, {"sampling": ScriptedModel(["hi"])}, "sampling is SamplingModel(model), or None, not ScriptedModel"),
    (server, {"sampling": SamplingModel}, "sampling is SamplingModel(model), or None, not the class SamplingModel"),
    (Callbacks, {"sampling": "openai:gpt-5"}, "sampling must be callable or None, not str"),
    (connection, {"callbacks": {"sampling": everyone}}, "callbacks is Callbacks(...), not dict"),
    (lambda: McpConnection({"command": "x"}), {}, "config is a ServerConfig; connect_mcp takes an entry"),  # pyright: ignore[reportArgumentType]
    (replicas, {"group": 5}, "Replicas.group is a string, not int"),
    (replicas, {"keys": SECRET}, "Replicas.keys is a list of secrets, not str"),
    *[
        (make, {"store": store}, f"{owner}store is a store, such as SqliteStore(path) or open_store(url), {shown}")
        for make, owner in (
            (replicas, "Replicas."),
            (StoreLimits, "StoreLimits."),
            (SharedTokenStore, "SharedTokenStore."),
            (RunStatuses, "RunStatuses."),
            (Durable, "Durable."),
            (Backend, "Backend."),
            (user_data, "UserData."),
            (lease, "Lease."),
            (agent, ""),
        )
        for store, shown in ((f"redis://:{SECRET}@host", "not str"), (MemoryStore, "not the class MemoryStore"))
    ],
    (agent, {"backend": f"redis://:{SECRET}@host"}, "backend is a backend, such as Backend(url), or None, not str"),
    (user_data, {"token_stores": [MemoryStore()]}, "UserData.token_stores is a list of token stores, not list"),
    (user_data, {"audit_logs": "audit.jsonl"}, "UserData.audit_logs is a list of paths, not str"),
    (SqliteStore, {"path": 5}, "SqliteStore.path is a path, or None, not int"),
    (SqliteStore, {"path": "x.db", "clock": 5}, "SqliteStore.clock is a function that returns the time in seconds"),
    (SqliteStore, {"path": "x.db", "busy_seconds": "5"}, "SqliteStore.busy_seconds is a number of seconds, not str"),
    (MemoryStore, {"max_bytes": "5"}, "MemoryStore.max_bytes is a number of bytes, not str"),
    (RedisStore, {"url": 5}, "RedisStore.url is a string, not int"),
    (RedisStore, {"url": "redis://host", "prefix": 5}, "RedisStore.prefix is a string, not int"),
    (open_store, {"text": 5}, "open_store takes a path or a URL as a text, not int"),
    (Callbacks, {"sampling_tools": "no"}, "sampling_tools is True or False, not str"),
    (Callbacks, {"roots": 5}, "roots must be a sequence of roots, a callable or None, not int"),
    (Callbacks, {"roots": "/srv"}, "roots must be a sequence of roots, a callable or None; put the one root in a list"),
    (Callbacks, {"roots": iter(["/srv"])}, "roots must be a sequence of roots, a callable or None, not an iterator"),
    (Callbacks, {"roots": [5]}, "each of roots must be a path, a file URI or a Root, not int"),
    (tool, {"scopes": 5}, "tool.scopes is a list of strings, not int"),
    (tool, {"annotations": ["readOnlyHint"]}, "tool.annotations is a mapping, or None, not list"),
    (tool, {"threads": "4"}, "tool.threads is a whole number, or None, not str"),
    (tool, {"description": 5}, "tool.description is a string, or None, not int"),
    (server, {"exclude_tags": [5]}, "exclude_tags is a list of strings, not list"),
    (server, {"exclude": 5}, "exclude is a list of strings, not int"),
    (server, {"versions": 5}, "versions is a string, or None, not int"),
    (deny, {"authenticated": "no"}, "AccessRule.authenticated is True or False, or None, not str"),
    (deny, {"names": [5]}, "AccessRule.names is a list of strings, not tuple of int"),
    (deny, {"claims": ["role"]}, "AccessRule.claims is a mapping of names to strings, whole numbers, flags or lists"),
    (deny, {"when": 5}, "AccessRule.when is a string, or None, not int"),
    (AuditLog, {"path": "audit.jsonl", "required": "yes"}, "AuditLog.required is True or False, not str"),
    (AuditLog, {"sink": SECRET}, "AuditLog.sink is a function, or None, not str"),
    (Redaction, {"patterns": {"email": ""}, "arguments": "yes"}, "Redaction.arguments is True or False, not str"),
    (RateLimit, {"calls": 3, "store": SECRET}, "RateLimit.store is a MemoryLimits() or StoreLimits(...), not str"),
    (CallBudget, {"calls": 3, "store": None}, "CallBudget.store is a MemoryLimits() or StoreLimits(...), not NoneType"),
    (ResponseCache, {"tools": ["add"]}, "ResponseCache.tools is a list of OfferSelection(...), not tuple of str"),
    (Timing, {"report": SECRET}, "Timing.report is a function, not str"),
    (directory, {"path": ".", "hidden": "no"}, "directory.hidden is True or False, not str"),
    (alias, {"sunset": "2030-01-01"}, "sunset is a date, not str"),
    (alias, {"deprecated": 5}, "deprecated is a text, True, False or None, not int"),
    (keep, {"predicate": "add"}, "predicate is a function, not str"),
    (
        keep_of_hub,
        {"predicate": everyone},
        "predicate is not awaited; give a plain function",
    ),
]


@pytest.mark.parametrize(("make", "options", "message"), WRONG, ids=[f"{i}-{m[2][:40]}" for i, m in enumerate(WRONG)])
def test_a_wrong_type_is_refused_by_name_and_without_its_value(
    make: Make, options: Mapping[str, object], message: str
) -> None:
    with pytest.raises(TypeError) as error:
        make(**options)
    assert str(error.value).startswith(message)
    assert SECRET not in str(error.value)


REFUSED: list[tuple[Make, Mapping[str, object], str]] = [
    # Every comparison with such a number is false, so no token would ever be too old.
    (jwt, {"leeway_seconds": math.nan}, "JwtAuth.leeway_seconds is a number, finite and at least 0, not nan"),
    (jwt, {"leeway_seconds": math.inf}, "JwtAuth.leeway_seconds is a number, finite and at least 0, not inf"),
    (jwt, {"leeway_seconds": -1}, "JwtAuth.leeway_seconds is a number, finite and at least 0, not -1"),
    (introspection, {"cache_seconds": math.inf}, "IntrospectionAuth.cache_seconds is a number, finite"),
    (key, {"expires_at": math.nan}, "ApiKey.expires_at is a number, finite"),
    (Dpop, {"window_seconds": math.inf}, "Dpop.window_seconds is a number, finite"),
    (ClientRules, {"unused_days": math.nan}, "ClientRules.unused_days is a number, finite"),
    (SessionRules, {"ttl_seconds": math.inf}, "SessionRules.ttl_seconds is a number, finite"),
    (gateway, {"idle_seconds": math.nan}, "idle_seconds is a number, finite"),
    # With such a bound nothing is ever dropped.
    (MemoryEventStore, {"size": math.nan}, "MemoryEventStore.size is a number, finite and at least 0, not nan"),
    (MemoryEventStore, {"max_bytes": math.inf}, "MemoryEventStore.max_bytes is a number, finite and at least 0"),
    (app, {"event_store": MemoryEventStore(), "retry_interval": -1}, "retry_interval is a number, finite and"),
    (MemoryStore, {"max_documents": math.nan}, "MemoryStore.max_documents is a number of documents, finite and"),
    (SqliteStore, {"path": "x.db", "busy_seconds": math.nan}, "SqliteStore.busy_seconds is a number of seconds, fin"),
    (RedisStore, {"url": "redis://host", "wait_seconds": math.inf}, "RedisStore.wait_seconds is a number of seconds"),
    (Backend, {"redelivery_seconds": math.nan}, "Backend.redelivery_seconds is a number of seconds, finite"),
    (lease, {"seconds": math.nan}, "Lease.seconds is a number of seconds, finite"),
    (key_auth, {"authorization_servers": [5], "resource": AUDIENCE}, "authorization_servers is a text or a list"),
    (gateway, {"disclosure": "serach"}, "disclosure must be one of"),
    (config, {"sensitive": SECRET}, "'sensitive' must be a list of strings, not a string"),
    (config, {"sensitive": [5]}, "'sensitive[0]' must be a string, not a number"),
    (config, {"source": "mcp.json"}, "'source' must be a Source(path=...), not a string"),
    (config, {"auth": {"type": "custom", "provider": SECRET}}, "'auth.provider' must be a function"),
    (Callbacks, {"log_level": "wanring"}, "no log level 'wanring'"),
    (hide, {"annotations": {"destructive": True}}, "'annotations' is 'destructive'; known: readOnlyHint"),
    (hide, {"annotations": {"destructiveHint": "yes"}}, "'annotations.destructiveHint' must be true or false"),
    (hide, {"tools": 5}, "'tools' must be a list of strings, not a number"),
    (hide, {"predicate": "delete"}, "'predicate' must be a function, not a string"),
    (ShapeRule, {"hide": "no"}, "'hide' must be true or false, not a string"),
    (ShapeRule, {"arguments": {"a": {"hide": True}}}, "'arguments.a' must be an ArgumentRule(...), not an object"),
    (ArgumentRule, {"from_": "princpal"}, "'from' is 'princpal'; known: principal"),
    (deny, {"scopes": "read write"}, "'read write' is not a valid scope"),
    (lambda: ToolRegistry([add], on_conflict="eror"), {}, "on_conflict is 'error', 'skip', 'rename' or 'replace'"),  # pyright: ignore[reportArgumentType]
    (lambda: combined(on_conflict="eror"), {}, "on_conflict is 'rename', 'skip' or 'error', not 'eror'"),  # pyright: ignore[reportArgumentType]
    (
        lambda: Upstream.oidc(ISSUER, "c", method="client_secret_bsic"),
        {},
        "Upstream.method is 'client_secret_basic' or 'client_secret_post'",
    ),
]


@pytest.mark.parametrize(
    ("make", "options", "message"), REFUSED, ids=[f"{i}-{m[2][:40]}" for i, m in enumerate(REFUSED)]
)
def test_a_value_that_would_protect_nothing_is_refused_by_name(
    make: Make, options: Mapping[str, object], message: str
) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011  # the table has the texts
        make(**options)
    assert message in str(error.value)
    assert SECRET not in str(error.value)


def test_a_misspelt_option_of_a_server_over_http_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(TypeError, match="has no option 'allowed_host'; did you mean 'allowed_hosts'"):
        app(allowed_host=["api.example"])


async def test_a_predicate_that_returns_a_coroutine_keeps_no_tool_in_silence() -> None:
    kept = filtered(ToolRegistry([add]), predicate=Asked())
    with pytest.raises(TypeError, match="predicate is not awaited; give a plain function"):
        kept.snapshot()


async def test_a_rule_whose_predicate_returns_a_coroutine_offers_no_tool() -> None:
    rule = ShapeRule(predicate=Asked(), title="Sum")
    async with connect_mcp({"server": create_mcp_server("s", tools=[add]), "shape": [rule]}, name="s") as connection:
        assert not connection.snapshot().by_name
        assert "the predicate of rule shape[0] raised TypeError" in " ".join(connection.problems)


def test_a_shape_rule_with_an_async_predicate_is_refused() -> None:
    with pytest.raises(ConfigError, match="'predicate' must be a plain function, not an async one"):
        hide(predicate=everyone)


def test_a_single_scope_of_a_rule_is_one_scope_and_not_its_letters() -> None:
    rules = ScopeRules(tools={"add": "math:add"})  # pyright: ignore[reportArgumentType]
    assert rules.required("tools", "add", ()) == ("math:add",)


def test_a_single_authorization_server_is_one_and_not_its_letters() -> None:
    auth = BearerAuth(tokens=[SECRET], resource=AUDIENCE, authorization_servers=ISSUER)
    assert auth.authorization_servers == (ISSUER,)


def test_claims_of_a_rule_may_be_a_set() -> None:
    rule = AccessRule(effect="deny", claims={"role": {"guest"}})  # pyright: ignore[reportArgumentType]
    assert list(rule.claims["role"]) == ["guest"]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("aware", [True, False])
async def test_the_time_of_a_sunset_counts_as_its_day(aware: bool) -> None:
    now = datetime.now(UTC)
    given = now if aware else now.replace(tzinfo=None)
    registry = ToolRegistry([add])
    registry.alias("plus", "add", sunset=given - timedelta(days=2))
    registry.alias("sum", "add", sunset=given + timedelta(days=2))
    assert type(registry.aliases["plus"].sunset) is date
    over = await registry.call(ToolCall(name="plus", arguments={"a": 1, "b": 2}), CallContext())
    fine = await registry.call(ToolCall(name="sum", arguments={"a": 1, "b": 2}), CallContext())
    assert over.is_error
    assert "plus" in over.text
    assert fine.data == 3


@pytest.mark.parametrize("make", [server, gateway])
def test_no_authorization_where_it_is_served_leaves_that_of_the_server(make: Make) -> None:
    made: Any = make(auth=key_auth())
    assert made.asgi_app(auth=None).authorizes
    assert made.asgi_app().authorizes


def test_an_authorization_of_the_config_stays_when_a_gateway_is_served_without_one() -> None:
    from toolweave.gateway import GatewayManager

    manager = GatewayManager({"mcpServers": {}, "gateway": {"auth": {"api_keys": {"ann": SECRET}}}})
    assert manager.asgi_app(auth=None).authorizes
