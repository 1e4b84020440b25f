from __future__ import annotations

import base64
import html
import json
import shlex
import urllib.parse
from collections.abc import Callable
from typing import Any

import pytest

from toolweave import ServerConfig, load_config
from toolweave.config import Auth, Secret

SECRET = "zz-Secret/9+8"
MEMBERS = {"mode": "fast", "exaApiKey": SECRET}
JSON = json.dumps(MEMBERS)
URL_SAFE = base64.urlsafe_b64encode(JSON.encode()).decode()


def encoded(text: str) -> str:
    """Return a text in base64."""
    return base64.b64encode(text.encode()).decode()


FORMS: list[Callable[[str], str]] = [
    str,
    json.dumps,
    lambda text: json.dumps(json.dumps(text)),
    lambda text: json.dumps(text).replace("/", "\\/").replace("+", "\\u002b"),
    repr,
    shlex.quote,
    html.escape,
    urllib.parse.quote,
    urllib.parse.quote_plus,
    lambda text: urllib.parse.quote(urllib.parse.quote(text, safe=""), safe="").replace("%252F", "%252f"),
    encoded,
    lambda text: encoded(f"user:{text}"),
    lambda text: encoded(f"{{'x': '{text}'}}"),
    lambda text: base64.urlsafe_b64encode(f"me:{text}".encode()).decode().rstrip("="),
    lambda text: text.encode().hex(),
]


def texts_about(config: ServerConfig) -> str:
    """Return every text that is shown of a config."""
    return f"{config!r} {config} {config.endpoint} {json.dumps(config.to_dict())} {config.error(' '.join(config.args))}"


def shows(text: str, secret: str = SECRET) -> bool:
    """Return whether a text has the secret, as it is or in a form that is easily undone."""
    plain = [text, urllib.parse.unquote(urllib.parse.unquote(text)), html.unescape(text), text.replace("\\", "")]
    words = [*text.replace('"', " ").replace("'", " ").split(), *text.replace("=", " ").split()]
    for word in words:
        padded = word.rstrip("=").replace("-", "+").replace("_", "/")
        try:
            plain.append(base64.b64decode(padded + "=" * (-len(padded) % 4)).decode("utf-8", "replace"))
        except ValueError:
            continue
    return any(secret in one for one in plain)


@pytest.mark.parametrize(
    "args",
    [
        ["--config", JSON],
        [f"--config={JSON}"],
        [JSON],
        [json.dumps(MEMBERS, indent=2)],
        [json.dumps([MEMBERS])],
        [json.dumps({"deep": {"er": [{"x": MEMBERS}]}})],
        [json.dumps(JSON)],
        [json.dumps({"config": JSON})],
        [json.dumps({"config": json.dumps({"config": JSON})})],
        [json.dumps({"apiKeys": [SECRET]})],
        [json.dumps({"credentials": {"type": "basic", "data": SECRET}})],
        [json.dumps({"env": [{"name": "API_KEY", "value": SECRET}]})],
        [json.dumps({"headers": {"Authorization": f"Bearer {SECRET}"}})],
        [json.dumps({"headers": [["Authorization", f"Bearer {SECRET}"]]})],
        [json.dumps({"args": ["--token", SECRET]})],
        [json.dumps({"args": [f"--token={SECRET}"]})],
        [json.dumps({"url": f"https://u:{urllib.parse.quote(SECRET, safe='')}@host/"})],
        [json.dumps({"run": f"serve --token {SECRET}"})],
        [JSON.replace("S", "\\u0053")],
        [f'{{"apiKey": "{SECRET}", "apiKey": "{SECRET}2"}}'],
        [str(MEMBERS)],
        [f"{{mode: 'fast', apiKey: '{SECRET}'}}"],
        [f"mode: fast\napiKey: {SECRET}\n"],
        [f'mode = "fast"\napi_key = "{SECRET}"'],
        [urllib.parse.quote(JSON)],
        [urllib.parse.quote(urllib.parse.quote(JSON))],
        [f"--config={urllib.parse.quote(JSON)}"],
        ["--config", base64.b64encode(JSON.encode()).decode()],
        ["--config", URL_SAFE],
        ["--config", URL_SAFE.rstrip("=")],
        [f"--config={URL_SAFE}"],
        ["--basic", base64.b64encode(f"user:{SECRET}".encode()).decode()],
        [f"--basic={base64.b64encode(f'user:{SECRET}'.encode()).decode()}"],
        ["--header", f"X-Any: Basic {base64.b64encode(f'user:{SECRET}'.encode()).decode()}"],
        ["-c", f"serve --token {SECRET} --port 80"],
        ["-c", f"export API_KEY={SECRET}; exec serve"],
        ["-c", f"API_KEY={shlex.quote(SECRET)} serve && echo done"],
        ["-c", f"curl -H 'Authorization: Bearer {SECRET}' https://host | serve"],
        ["-c", f"serve --config {shlex.quote(JSON)}"],
        ["-c", f"""echo it's; serve --token {SECRET}"""],
        [f"https://host/mcp?config={URL_SAFE}"],
        [f"https://host/mcp?config={urllib.parse.quote(JSON)}"],
        [f"https://host/#access_token={urllib.parse.quote(SECRET)}"],
        [f"Server=db;Password={SECRET};Port=1"],
        [f"mode=fast&token={urllib.parse.quote(SECRET)}&x=1"],
    ],
)
def test_a_secret_inside_an_argument_is_masked_in_whatever_form_it_stands_there(args: list[str]) -> None:
    config = ServerConfig(name="s", command="run", args=args)

    assert not shows(texts_about(config)), texts_about(config)
    assert not shows(config.redact(f"the server read {SECRET}"))


@pytest.mark.parametrize("config", [{"mode": "fast", "n": 1}, {"nested": {"list": ["a", "b", {"c": None}]}}])
def test_an_argument_that_is_json_without_a_secret_is_shown_as_it_is(config: dict[str, Any]) -> None:
    text = json.dumps(config)

    assert json.dumps(text) in json.dumps(ServerConfig(command="run", args=["--config", text]).to_dict())


def test_only_the_secret_of_an_argument_in_json_is_masked() -> None:
    config = ServerConfig(command="run", args=["--config", JSON])

    assert config.to_dict()["args"] == ["--config", '{"mode": "fast", "exaApiKey": "***"}']


@pytest.mark.parametrize(
    "args",
    [
        ["filesystem", "password", "username", "aGVsbG8gd29ybGQ="],
        ["-c", "mkdir -p build && python -m server"],
        ["--prompt", "Use the keys: one, two; be brief"],
        ["--pattern", "%Y-%m-%d"],
        ["ghcr.io/owner/auth-server:1.2"],
    ],
)
def test_words_that_only_look_encoded_are_shown(args: list[str]) -> None:
    assert ServerConfig(command="run", args=args).to_dict()["args"] == args


@pytest.mark.parametrize(
    "config",
    [
        ServerConfig(name="s", command="run", args=["--token", SECRET]),
        ServerConfig(name="s", command="run", env={"API_KEY": SECRET}),
        ServerConfig(name="s", command="run", env={"SETTINGS": JSON}),
        ServerConfig(name="s", command="run", options={"deep": [{"apiKey": SECRET}], "text": JSON}),
        ServerConfig(name="s", url="https://host", headers={"X-Any": SECRET}),
        ServerConfig(name="s", url="https://host", auth=Auth(token=Secret(SECRET))),
        ServerConfig(name="s", url="https://host", auth=Auth(token=Secret("other"), options={"clientSecret": SECRET})),
        ServerConfig(name="s", url=f"https://host/mcp?config={URL_SAFE}"),
        ServerConfig(name="s", command="run", sensitive=[Secret(SECRET)]),
    ],
)
@pytest.mark.parametrize("form", FORMS)
def test_a_foreign_text_that_repeats_a_secret_in_another_form_is_masked(
    config: ServerConfig, form: Callable[[str], str]
) -> None:
    said = form(SECRET)

    shown = config.redact(f"error: bad value {said}")

    assert said not in shown
    assert "***" in shown
    assert shown.startswith("error: bad value ")
    assert not shows(texts_about(config))


def test_a_secret_that_is_named_in_one_place_is_masked_in_the_others() -> None:
    config = ServerConfig(name="s", command="run", args=["--with", SECRET], env={"API_KEY": SECRET})

    assert not shows(texts_about(config))


def test_a_secret_in_the_constant_of_a_rule_and_in_the_command_is_masked() -> None:
    loaded = load_config(
        {
            "s": {
                "command": f"/bin/serve-ghp_{'a1' * 12}",
                "shape": [{"tools": ["*"], "arguments": {"api_key": {"value": SECRET}}}],
            }
        }
    )

    text = texts_about(loaded.servers["s"]) + repr(loaded)

    assert not shows(text)
    assert "a1a1" not in text


def test_the_error_of_a_config_that_is_not_valid_shows_no_secret() -> None:
    with pytest.raises(ValueError, match="server 's'") as caught:
        ServerConfig(name="s", command="run", args=["--config", JSON], cwd=f"{SECRET}\0")

    assert not shows(str(caught.value))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "secret", ["DOMAIN\\user'9", '{\\"pw\\":\\"s3cret\\"}', "\\\\host\\c$ x", "line\nbreak&\\", 'ä\U0001f511\\"z']
)
def test_a_secret_with_backslashes_is_masked_in_whatever_form_it_is_repeated(
    secret: str, form: Callable[[str], str]
) -> None:
    config = ServerConfig(command="x", env={"TOKEN": secret})

    shown = str(config.error(f"it said <{form(secret)}> at the end"))

    assert form(secret) not in shown
    assert "***" in shown


@pytest.mark.parametrize(
    "text",
    [
        "{"
        + ",".join(f'{chr(92) * 40}"pw{chr(92) * 40}":{chr(92) * 40}"s3cret{chr(92) * 40}"' for _ in range(8))
        + "!",
        "s3cret" + "\\" * 100_000,
        "s3cret" + "%2525" * 20_000,
        "s3cret" + "&amp;" * 20_000,
        "s3cret" + "&#0" + "0" * 100_000,
    ],
)
def test_no_foreign_text_makes_masking_slow(text: str) -> None:
    """A pattern that can match one text in two ways would take hours here, and hit the timeout of the tests."""
    secret = '{\\"pw\\":\\"s3cret\\",\\"pw\\":\\"s3cret\\"} % & \\\\ \\n'
    config = ServerConfig(command="x", env={"TOKEN": secret, "OTHER": "\\\\\\s3cret\\\\"})

    assert "s3cret" in str(config.error(text))


@pytest.mark.parametrize(
    "token", ["-Xk3vQ9_pL2m", "--4f2a9c1e7b", "-9f8e7d6c5b4a", "-Zm9v YmFyMTIz", "--a1b2c3d4e5f6a1b2"]
)
@pytest.mark.parametrize("flag", ["--token", "--api-key", "-password"])
def test_the_value_of_a_secret_flag_is_masked_even_if_it_begins_with_a_dash(flag: str, token: str) -> None:
    config = ServerConfig(name="a", command="x", args=[flag, token, "--port", "8080"])

    assert config.endpoint == f"x {flag} *** --port 8080"
    assert token not in config.redact(f"got {token} of you")


@pytest.mark.parametrize("option", ["--port", "-v", "--log-level=info", "--http2", "-Dmode.fast=x", "--no_cache"])
def test_an_option_behind_a_flag_without_a_value_is_shown(option: str) -> None:
    config = ServerConfig(name="a", command="x", args=["--use-token", option, "8080"])

    assert config.endpoint == f"x --use-token {option} 8080"


@pytest.mark.parametrize(
    "secret", ["s3cr3t/Key+with=odd&chars", "first=second", "first;token=second", "abc://user:second@host"]
)
@pytest.mark.parametrize("around", ["{}", '{{"k": "{}"}}', "run --conf {}", "k={}"])
def test_a_secret_that_reads_like_an_assignment_or_a_url_is_masked_whole(secret: str, around: str) -> None:
    config = ServerConfig(command="run", args=["--conf", around.format(secret)], env={"API_KEY": secret})

    for shown in (repr(config), config.endpoint, json.dumps(config.to_dict())):
        assert "s3cr3t" not in shown
        assert "first" not in shown
        assert "second" not in shown
        assert "user" not in shown
