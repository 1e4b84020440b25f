"""A section `gateway` of a config is applied by what reads it, and refused by what would serve without it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolweave import Hub
from toolweave.compose import hub_server
from toolweave.config import LoadedConfig, load_config, merge_loaded
from toolweave.errors import ConfigError
from toolweave.gateway import GatewayManager, create_gateway, load_gateway_config

SERVERS: dict[str, Any] = {"mcpServers": {"a": {"command": "x"}}}
SECTION = {"auth": {"api_keys": {"ci": "0123456789abcdef0123"}}, "url": "https://tools.example"}
CONTENT = {**SERVERS, "gateway": SECTION}
SAYS = "the section 'gateway' of .* would not be applied; run `toolweave gateway --config FILE`"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps(CONTENT))
    return file


def merged(path: Path) -> LoadedConfig:
    return merge_loaded([load_config(SERVERS), load_config(path)])


SOURCES: dict[str, Callable[[Path], Any]] = {
    "a path": lambda path: path,
    "the text of a path": str,
    "the content": lambda path: CONTENT,
    "a loaded config": load_config,
    "several loaded configs": merged,
    "some servers of it": lambda path: load_config(path).select(["a"]),
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
def test_a_gateway_without_the_section_of_its_config_is_refused(source: Callable[[Path], Any], path: Path) -> None:
    for serve in (
        lambda: create_gateway(source(path)),
        lambda: create_gateway(Hub(source(path))),
        lambda: hub_server(Hub(source(path)), name="everything", version="1"),
    ):
        with pytest.raises(ConfigError, match=SAYS) as caught:
            serve()
        assert caught.value.field == "gateway"


def test_a_loaded_config_whose_section_is_lost_is_no_config_of_a_gateway(path: Path) -> None:
    for read in (load_gateway_config, GatewayManager):
        with pytest.raises(ConfigError, match=SAYS):
            read(load_config(path))


@pytest.mark.parametrize("source", [CONTENT, None], ids=["the content", "a path"])
def test_the_section_is_applied_by_what_reads_it_and_its_servers_can_be_served_without(source: Any, path: Path) -> None:
    read = load_gateway_config(source or path)

    assert read.auth is not None
    assert GatewayManager(source or path).auth is not None
    assert create_gateway(read.servers).auth is None


@pytest.mark.parametrize(
    "source",
    [
        SERVERS,
        {"gateway": {"url": "https://a.example/mcp"}},
        {"mcpServers": {"gateway": {"command": "x"}}},
        "none.json",
    ],
    ids=["no section", "a server of this name", "an entry of this name", "a file that is not there"],
)
def test_a_config_without_the_section_is_served(source: Any) -> None:
    assert create_gateway(source).name == "toolweave"


@pytest.mark.parametrize("name", ["gatway", "Gateway", "gate_way", "gateways"])
def test_a_misspelt_section_is_refused_by_what_would_serve_without_it(name: str, tmp_path: Path) -> None:
    content = {**SERVERS, name: SECTION}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps(content))
    for read in (
        lambda: load_gateway_config(file),
        lambda: load_gateway_config(content),
        lambda: load_config(file),
    ):
        with pytest.raises(ConfigError, match=f"'{name}' is not a known section; did you mean 'gateway'"):
            read()


def test_a_server_may_be_called_almost_like_the_section() -> None:
    assert list(load_config({"mcpServers": {"gatway": {"command": "x"}}}).servers) == ["gatway"]
    assert list(load_config({"gatway": {"command": "x"}}).servers) == ["gatway"]
