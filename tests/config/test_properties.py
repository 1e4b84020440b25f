"""What holds for any config: round trips, no leaks, and nothing but `ConfigError`."""

from __future__ import annotations

import contextlib
import json
import re
import string
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from toolweave.config import (
    Auth,
    Secret,
    ServerConfig,
    Timeouts,
    load_config,
    merge_config,
    normalize_config,
    parse_server,
)
from toolweave.config._documents import parse_document
from toolweave.config._jsonc import parse_json, strip_comments
from toolweave.errors import ConfigError

pytestmark = pytest.mark.slow

# a busy machine is no failure, and a failure found once is found again
steady = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)

WORD = string.ascii_letters + string.digits + "_-./: @"
plain = st.text(alphabet=WORD, min_size=1, max_size=12).filter(lambda text: text.strip() == text)
names = st.text(alphabet=string.ascii_letters + "_", min_size=1, max_size=8)
seconds = st.floats(min_value=0.1, max_value=900, allow_nan=False)
bounds = st.builds(Timeouts, call=seconds, list=seconds, connect=st.none() | seconds)
common: dict[str, Any] = {
    "name": names,
    "disabled": st.booleans(),
    "timeout": bounds,
    "include": st.lists(plain.filter(lambda text: text != "*"), max_size=3),
    "exclude": st.lists(plain.filter(lambda text: text != "*"), max_size=3),
    "tool_prefix": st.none() | st.just("") | plain,
    "restart": st.sampled_from(["on_failure", "always", "never"]),
    "protocol": st.sampled_from(["auto", "legacy", "2025-06-18"]),
    "max_concurrency": st.none() | st.integers(1, 99),
    "max_message_bytes": st.none() | st.integers(1, 2**40),
    "options": st.dictionaries(names.map(lambda name: f"opt{name}"), st.integers() | plain, max_size=3),
}
headers = st.dictionaries(names, plain, max_size=3)
tokens = plain.map(lambda text: Secret(f"t0-{text}"))  # some words are no tokens
auths = st.none() | st.builds(Auth, type=st.sampled_from(["bearer", "api_key"]), token=tokens)
stdio = st.builds(
    ServerConfig,
    command=plain,
    args=st.lists(plain, max_size=4),
    env=st.dictionaries(names, plain, max_size=3),
    cwd=st.none() | plain,
    **common,
)
remote = st.builds(
    ServerConfig,
    url=names.map(lambda name: f"https://{name.strip('_') or 'h'}.example/mcp?q={name}"),
    transport=st.sampled_from(["http", "sse"]),
    headers=headers,
    auth=auths,
    **common,
)
configs = stdio | remote

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
KEYS = [
    *("command", "args", "env", "cwd", "url", "headers", "auth", "transport", "type", "connection", "timeout"),
    *("disabled", "enabled", "include", "httpUrl", "bearer_token_env_var", "env_http_headers", "env_vars", "server"),
    *("toolPrefix", "max_concurrency", "protocol", "options", "name", "envFile", "tools", "startup_timeout_sec"),
]
WORDS = ["stdio", "http", "sse", "http://h", "ws://h", "${A}", "${A:-b}", "${input:x}", "~", "", "bearer", "x\0", "-1"]
wild = st.sampled_from(WORDS) | json_values
wild_entries = st.dictionaries(st.sampled_from(KEYS), wild | st.dictionaries(st.sampled_from(KEYS), wild, max_size=3))


@pytest.mark.requirement("R8")
@steady
@given(configs)
def test_a_config_written_out_and_read_back_is_the_same(config: ServerConfig) -> None:
    text = json.dumps({"mcpServers": {config.name: config.to_dict(reveal=True)}})

    for path in ("a.json", "a.yaml"):
        document = parse_document(text, path=path)
        loaded = load_config(document.value, env={})
        assert loaded.errors == {}
        if config.disabled:
            assert loaded.disabled == (config.name,)
        else:
            assert loaded.servers == {config.name: config}
    assert parse_server("", config.to_dict(reveal=True), env={}) == config


@pytest.mark.requirement("R6")
@steady
@given(configs)
def test_the_full_form_of_a_config_means_the_same(config: ServerConfig) -> None:
    full = normalize_config(config.name, config)

    assert parse_server("", full, env={}) == config
    assert normalize_config("other", full) == full


@steady
@given(
    st.text(alphabet=string.ascii_letters + string.digits, min_size=6, max_size=30).map(lambda text: f"S3{text}"),
    st.sampled_from(["API_KEY", "GITHUB_TOKEN", "DB_PASSWORD", "CLIENT_SECRET"]),
    st.sampled_from(["${%s}", "prefix-${%s}", "${env:%s}", "${NOPE:-${%s}}"]),
    st.booleans(),
)
def test_an_expanded_secret_never_shows(secret: str, variable: str, form: str, broken: bool) -> None:
    text = form % variable
    entries: dict[str, dict[str, Any]] = {
        "args": {"command": "x", "args": ["--flag", text]},
        "command": {"command": text},
        "env": {"command": "x", "env": {"A": text}},
        "url": {"url": f"{'ftp' if broken else 'https'}://h/{text}"},
        "headers": {"url": "https://h", "headers": {"A": f"{text}\n" if broken else text}},
        "auth": {"url": "https://h", "auth": {"type": "nope" if broken else "bearer", "token": text}},
        "options": {"command": "x", "flavour": text},
    }

    loaded = load_config(entries, env={variable: secret})

    shown = f"{loaded!r} {dict(loaded.errors)} {loaded.warnings}"
    for name, config in loaded.servers.items():
        shown += f"{config!r} {config.endpoint} {json.dumps(config.to_dict())} {config.error('x')}"
        shown += config.redact(f"{name} said {secret}")
    assert secret not in shown


@steady
@given(st.dictionaries(st.text(max_size=8), json_values, max_size=4), st.randoms(use_true_random=False))
def test_comments_and_trailing_commas_change_neither_values_nor_lines(value: dict[str, Any], random: Any) -> None:
    strict = json.dumps(value, indent=1, ensure_ascii=random.random() < 0.5)
    strings = re.compile(r'"(?:[^"\\]|\\.)*"')
    pieces: list[str] = []
    end = 0
    for match in strings.finditer(strict):
        pieces += (loosened(strict[end : match.start()], random), match[0])
        end = match.end()
    loose = "".join([*pieces, loosened(strict[end:], random)])

    clean = strip_comments(loose)

    assert parse_json(loose) == json.loads(clean) == value
    assert len(clean) == len(loose)
    assert [at for at, char in enumerate(clean) if char == "\n"] == [at for at, c in enumerate(loose) if c == "\n"]
    assert strings.findall(clean) == strings.findall(strict)


def loosened(between: str, random: Any) -> str:
    def some() -> str:
        return random.choice(["", " ", "\n", '// a " [ ,\n', '/* b " , ] \n */', " /**/ ", "\t// x,}\n"])

    def more(match: re.Match[str]) -> str:
        return match[0] + some() if match[0].strip() else random.choice([match[0], f"{some()},{some()}"])

    return re.sub(r"[\[{,:]|(?<=[\w}\]])\s*(?=[}\]])", more, between)


@steady
@given(st.text(max_size=200))
@example('"\\')
@example("/*/")
@example('{"a": "\\ud800"}')
def test_stripping_comments_keeps_every_line_of_any_text(text: str) -> None:
    clean = strip_comments(text)

    assert len(clean) == len(text)
    assert clean.count("\n") == text.count("\n")


@steady
@given(
    st.text(max_size=60) | json_values.map(json.dumps) | json_values.map(yaml.safe_dump),
    st.sampled_from(["a.json", "a.yaml", "a.toml", "a"]),
)
@example("? {a: b}\n: c", "a.yaml")
@example("!!timestamp x", "a.yaml")
@example("!!int x", "a.yaml")
@example("!!binary \xff", "a.yaml")
@example("[a]\n[a]", "a.toml")
@example("<<: 5", "a.yaml")
@example("=", "a.yaml")
def test_any_text_is_a_document_or_a_config_error(text: str, path: str) -> None:
    with contextlib.suppress(ConfigError):
        load_config(parse_document(text, path=path).value, env={})


@steady
@given(st.binary(max_size=60), st.sampled_from(["json", "yaml", "toml", "txt"]))
def test_any_bytes_are_a_config_or_a_config_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, suffix: str
) -> None:
    path = Path(tmp_path_factory.getbasetemp()) / f"any.{suffix}"
    path.write_bytes(data)

    with contextlib.suppress(ConfigError):
        load_config(path, env={})


@settings(steady, max_examples=300)
@given(wild_entries)
def test_any_entry_is_a_server_or_an_error_of_that_server(entry: dict[str, Any]) -> None:
    loaded = load_config({"mcpServers": {"good": {"command": "x"}, "wild": entry}}, env={"A": "a"})

    assert "good" in loaded.servers
    assert [*loaded.servers, *loaded.errors, *loaded.disabled].count("wild") == 1
    if "wild" in loaded.errors:
        assert loaded.errors["wild"].server == "wild"


@steady
@given(wild_entries, wild_entries)
def test_any_two_entries_merge_or_are_a_config_error(base: dict[str, Any], runtime: dict[str, Any]) -> None:
    for below in (base, ServerConfig(name="a", command="x")):
        with contextlib.suppress(ConfigError):
            merge_config(below, runtime)
    with contextlib.suppress(ConfigError):
        normalize_config("a", base)


@steady
@given(json_values)
def test_any_value_is_a_config_or_a_config_error(value: Any) -> None:
    with contextlib.suppress(ConfigError):
        load_config(value, env={})
    with contextlib.suppress(ConfigError):
        normalize_config("a", value)
