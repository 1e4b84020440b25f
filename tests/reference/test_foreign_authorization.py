"""`toolweave auth login` at authorization servers of others, up to a call and a renewal of the token."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import toolweave
from tests.conformance.server_process import serving
from tests.reference.authorization import AuthorizationServer
from tests.reference.servers import INSTALLED

pytestmark = [pytest.mark.reference, pytest.mark.slow, pytest.mark.requirement("R27")]

HERE = Path(__file__).parent
ITSELF = HERE.parent / "oauth" / "foreign_servers.py"
BEHIND_A_PROVIDER = HERE / "protected_servers.py"
PYTHONS = {
    "sdk": sys.executable,
    "sdk-1": str(INSTALLED / "python-sdk-1" / "bin" / "python"),
    "fastmcp": str(INSTALLED / "fastmcp" / "bin" / "python"),
    "fastmcp-proxy": str(INSTALLED / "fastmcp" / "bin" / "python"),
    "ours": sys.executable,
}
CALLS = {"add": (("a=2", "b=3"), "5"), "whoami": ((), "ada")}


@pytest.fixture(scope="module")
def provider() -> Iterator[AuthorizationServer]:
    """The provider of people, for those that need one."""
    with AuthorizationServer() as server:
        yield server


@pytest.mark.parametrize("kind", PYTHONS)
def test_a_server_is_signed_in_to_called_and_called_again_with_a_renewed_token(
    kind: str, provider: AuthorizationServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("BROWSER", f"{sys.executable} {HERE / 'person.py'} ada %s")
    tool = "whoami" if kind == "ours" else "add"
    arguments, expected = CALLS[tool]
    script = BEHIND_A_PROVIDER if kind == "ours" else ITSELF
    with serving(tmp_path / "log", command=(PYTHONS[kind], str(script), kind, provider.issuer)) as url:
        config = tmp_path / "signed-in.json"
        config.write_text(json.dumps({"mcpServers": {"api": {"url": url, "auth": "oauth"}}}))
        call = ("call", f"api_{tool}", *arguments, "--config", config)

        login = toolweave("auth", "login", "api", "--config", config)
        assert login.code == 0, login.err + (tmp_path / "log").read_text()[-2000:]
        called = toolweave(*call)
        assert (called.code, called.out.strip()) == (0, expected), called.err

        monkeypatch.setenv("BROWSER", "/bin/false %s")
        before = _spoilt(tmp_path / "data" / "toolweave" / "tokens" / "tokens.json")
        again = toolweave(*call)
        assert (again.code, again.out.strip()) == (0, expected), again.err
        after = _record(tmp_path / "data" / "toolweave" / "tokens" / "tokens.json")
        assert after["access_token"] not in (before["access_token"], _SPOILT)

        assert toolweave("auth", "logout", "api", "--config", config).code == 0
        assert toolweave(*call).code == 3


_SPOILT = "not-a-token-of-this-server"


def _record(file: Path) -> dict[str, str]:
    (record,) = json.loads(file.read_text())["records"].values()
    return record


def _spoilt(file: Path) -> dict[str, str]:
    """Replace the access token in the file by one that no server accepts; return the record before."""
    kept = json.loads(file.read_text())
    ((name, record),) = kept["records"].items()
    kept["records"][name] = {**record, "access_token": _SPOILT}
    file.write_text(json.dumps(kept))
    return record
