"""The pytest plugin: the testing kit as fixtures, and the option `--mcp-record`.

Loaded by pytest in every project that has Toolweave installed, so it imports nothing but pytest and changes nothing
for tests that use no fixture of it; the fixtures are implemented in `fixtures`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from toolweave.testing._clock import FakeClock
    from toolweave.testing._fixtures import CassetteFactory
    from toolweave.testing._memory import MemoryServer

__all__ = ["fake_clock", "faulty_http", "faulty_stdio", "mcp_cassette", "mcp_server", "pytest_addoption"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--mcp-record`."""
    parser.getgroup("toolweave", "MCP servers").addoption(
        "--mcp-record",
        choices=("none", "once", "new"),
        default="none",
        help="what `mcp_cassette` does: 'none' plays cassettes back and reaches no server (default), "
        "'once' records those that do not exist, 'new' records all of them again",
    )


@pytest.fixture
def mcp_server() -> type[MemoryServer]:
    """Make servers in memory, each a target of `connect_mcp`; the class `toolweave.testing.MemoryServer`."""
    from toolweave.testing._memory import MemoryServer

    return MemoryServer


@pytest.fixture
def faulty_stdio() -> Iterator[Callable[..., list[str]]]:
    """Return the command of a server that misbehaves in one way: `connect_mcp(faulty_stdio("dies_mid_call"))`.

    The modes are those of `toolweave.testing.STDIO_FAULTS`. Processes that outlive the test are killed.
    """
    from toolweave.testing._fixtures import stdio_faults

    with stdio_faults() as command:
        yield command


@pytest.fixture
def faulty_http() -> Iterator[Callable[..., str]]:
    """Start an HTTP server that misbehaves in one way: `connect_mcp(faulty_http("status_429"))`.

    The modes are those of `toolweave.testing.HTTP_FAULTS`. The server is stopped after the test.
    """
    from toolweave.testing._fixtures import http_faults

    with http_faults() as url:
        yield url


@pytest.fixture
def fake_clock() -> FakeClock:
    """A clock that stands still until `await fake_clock.advance(seconds)`."""
    from toolweave.testing._clock import FakeClock

    return FakeClock()


@pytest.fixture
def mcp_cassette(request: pytest.FixtureRequest) -> Iterator[CassetteFactory]:
    """Record the sessions of a test once, then play them back: `connect_mcp(mcp_cassette("uvx mcp-server-time"))`.

    The cassettes lie beside the test, in `cassettes/MODULE/TEST.jsonl`; `--mcp-record` says when they are written.
    A request without a recording fails the test.
    """
    from toolweave.testing._fixtures import CassetteFactory

    mode = str(request.config.getoption("mcp_record"))
    cassettes = CassetteFactory(request.path.parent / "cassettes" / request.path.stem, request.node.name, mode)
    yield cassettes
    if cassettes.unrecorded:
        pytest.fail("\n".join(cassettes.unrecorded), pytrace=False)
