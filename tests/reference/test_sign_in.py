"""`toolweave auth` against a real authorization server, for servers of ours, of the SDK and of FastMCP."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Done, toolweave
from tests.conformance.server_process import serving
from tests.reference.authorization import AuthorizationServer
from tests.reference.person import visit
from tests.reference.servers import INSTALLED

pytestmark = [pytest.mark.reference, pytest.mark.slow]

HERE = Path(__file__).parent
SCRIPT = str(HERE / "protected_servers.py")
PYTHONS = {"ours": sys.executable, "sdk": sys.executable, "fastmcp": str(INSTALLED / "fastmcp" / "bin" / "python")}
SHORT_SECONDS = 3


@pytest.fixture(autouse=True)
def _own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))  # the home has a link to the real one's
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("BROWSER", f"{sys.executable} {HERE / 'person.py'} ada %s")


@pytest.fixture(scope="module")
def authorization() -> Iterator[AuthorizationServer]:
    """An authorization server with tokens that last."""
    with AuthorizationServer() as server:
        yield server


@pytest.fixture(scope="module")
def short() -> Iterator[AuthorizationServer]:
    """An authorization server with access tokens that soon expire."""
    with AuthorizationServer(seconds=SHORT_SECONDS) as server:
        yield server


@pytest.fixture(scope="module")
def briefly(short: AuthorizationServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of ours whose tokens soon expire; its URL."""
    command = (PYTHONS["ours"], SCRIPT, "ours", short.issuer)
    with serving(tmp_path_factory.mktemp("briefly") / "log", command=command) as url:
        yield url


def config_for(url: str, folder: Path) -> Path:
    """Write a config with the server `api`, which is signed in to."""
    path = folder / "signed-in.json"
    path.write_text(json.dumps({"mcpServers": {"api": {"url": url, "auth": "oauth"}}}))
    return path


def whoami(config: Path) -> Done:
    return toolweave("call", "api_whoami", "--config", config)


@pytest.mark.parametrize("kind", PYTHONS)
def test_a_sign_in_by_browser_is_used_listed_and_given_up(
    kind: str, authorization: AuthorizationServer, tmp_path: Path
) -> None:
    with serving(tmp_path / "log", command=(PYTHONS[kind], SCRIPT, kind, authorization.issuer)) as url:
        config = config_for(url, tmp_path)
        refused = whoami(config)
        assert refused.code == 3, refused.err
        assert "toolweave auth login api" in refused.err

        login = toolweave("auth", "login", "api", "--config", config, "--json")
        assert login.code == 0, login.err
        assert {**login.json, "expires_at": 0} == {
            "server": "api",
            "resource": url,
            "issuer": authorization.issuer,
            "client": "",
            "principal": "",
            "scopes": login.json["scopes"],
            "state": "signed in",
            "expires_at": 0,
            "renewable": True,
        }
        assert "mcp:basic" in login.json["scopes"]
        called = whoami(config)
        assert (called.code, called.out.strip()) == (0, "ada"), called.err

        (listed,) = toolweave("auth", "list", "--config", config, "--json").json["sign_ins"]
        assert (listed["servers"], listed["state"]) == (["api"], "signed in")
        status = toolweave("status", "--config", config, "--json").json["servers"]["api"]
        assert status["sign_in"]["state"] == "signed in"
        doctor = toolweave("doctor", "--config", config)
        assert "sign-in   signed in until 20" in doctor.out, doctor.err

        (left,) = toolweave("auth", "logout", "api", "--config", config, "--json").json["signed_out"]
        assert left["resource"] == url
        assert "destroyed" in authorization.said or "revoked" in authorization.said
        assert whoami(config).code == 3
        assert toolweave("auth", "list", "--json").json == {"sign_ins": []}


def test_no_token_is_in_any_output_or_in_a_file_that_others_can_read(
    authorization: AuthorizationServer, tmp_path: Path
) -> None:
    with serving(tmp_path / "log", command=(PYTHONS["ours"], SCRIPT, "ours", authorization.issuer)) as url:
        config = config_for(url, tmp_path)
        done = [toolweave("auth", "login", "api", "--config", config, "-v"), whoami(config)]
        done += [toolweave("auth", "list"), toolweave("doctor", "--config", config, "-v")]
        file = tmp_path / "data" / "toolweave" / "tokens" / "tokens.json"
        (record,) = json.loads(file.read_text())["records"].values()
        done.append(toolweave("auth", "logout", "--all"))

    assert [one.code for one in done] == [0] * 5
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    for secret in (record["access_token"], record["refresh_token"]):
        assert not [one for one in done if secret in one.out + one.err]


def test_a_code_can_be_typed_on_another_device(authorization: AuthorizationServer, tmp_path: Path) -> None:
    with serving(tmp_path / "log", command=(PYTHONS["ours"], SCRIPT, "ours", authorization.issuer)) as url:
        config = config_for(url, tmp_path)
        command = [sys.executable, "-m", "toolweave", "auth", "login", "api", "--device", "--config", str(config)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as login:
            assert login.stderr is not None
            said: list[str] = []
            for line in login.stderr:
                said.append(line)
                if line.strip().startswith(authorization.issuer):
                    visit("bob", line.strip())
                    break
            out, err = login.communicate(timeout=60)
        assert login.returncode == 0, "".join(said) + err
        assert "signed in until" in out
        assert whoami(config).out.strip() == "bob"


def test_two_people_are_signed_in_side_by_side(
    authorization: AuthorizationServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path / "log", command=(PYTHONS["ours"], SCRIPT, "ours", authorization.issuer)) as url:
        for name in ("ann", "bob"):
            monkeypatch.setenv("BROWSER", f"{sys.executable} {HERE / 'person.py'} {name} %s")
            config = config_for(url, tmp_path)
            assert toolweave("auth", "login", "api", "--principal", name, "--config", config).code == 0
        for name in ("ann", "bob"):
            auth = {"type": "oauth", "principal": name}
            config.write_text(json.dumps({"mcpServers": {"api": {"url": url, "auth": auth}}}))
            assert whoami(config).out.strip() == name
        assert toolweave("auth", "logout", "--all", "--principal", "ann").code == 0
        (left,) = toolweave("auth", "list", "--json").json["sign_ins"]
        assert left["principal"] == "bob"


def test_a_token_that_has_expired_is_renewed_without_a_person(
    short: AuthorizationServer, briefly: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_for(briefly, tmp_path)
    assert toolweave("auth", "login", "api", "--config", config).code == 0
    monkeypatch.setenv("BROWSER", "/bin/false %s")
    for _ in range(2):
        time.sleep(SHORT_SECONDS + 0.5)
        called = whoami(config)
        assert (called.code, called.out.strip()) == (0, "ada"), called.err

    assert short.said.count("grant refresh_token") >= 2


def test_processes_that_find_the_token_expired_at_the_same_time_all_go_on(briefly: str, tmp_path: Path) -> None:
    config = config_for(briefly, tmp_path)
    assert toolweave("auth", "login", "api", "--config", config).code == 0
    command = [sys.executable, "-m", "toolweave", "call", "api_whoami", "--config", str(config)]
    for _ in range(2):
        time.sleep(SHORT_SECONDS + 0.5)
        racers = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)
        ]
        said = [racer.communicate(timeout=60) for racer in racers]

        assert [out.strip() for out, _ in said] == ["ada"] * 3, said


def test_an_authorization_server_that_forgot_everything_needs_a_person_again(tmp_path: Path) -> None:
    with (
        AuthorizationServer(seconds=SHORT_SECONDS) as authorization,
        serving(tmp_path / "log", command=(PYTHONS["ours"], SCRIPT, "ours", authorization.issuer)) as url,
    ):
        config = config_for(url, tmp_path)
        assert toolweave("auth", "login", "api", "--config", config).code == 0
        authorization.stop()
        authorization.start()
        time.sleep(SHORT_SECONDS + 0.5)
        refused = whoami(config)
        assert refused.code == 3, refused.out
        assert "toolweave auth login api" in refused.err
        assert "Traceback" not in refused.err

        again = toolweave("auth", "login", "api", "--config", config)
        assert again.code == 0, again.err
        assert whoami(config).out.strip() == "ada"


def test_a_sign_in_that_nobody_answers_ends_in_time(authorization: AuthorizationServer, tmp_path: Path) -> None:
    with serving(tmp_path / "log", command=(PYTHONS["ours"], SCRIPT, "ours", authorization.issuer)) as url:
        login = toolweave("auth", "login", url, "--no-browser", "--timeout", "1")

    assert login.code == 3
    assert f"{authorization.issuer}/auth?" in login.err
    assert "the sign-in was not completed" in login.err
