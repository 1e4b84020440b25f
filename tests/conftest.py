"""What every test gets: its own home, one async backend, and a check that no process outlives it."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.leftovers import Watch
from tests.redis_server import redis_server, redis_url

__all__ = ["redis_server", "redis_url"]  # fixtures

CHECKOUT = Path(__file__).resolve().parent.parent
IN_CI = os.environ.get("CI") == "true"
SHARED = Path(os.environ.get("TOOLWEAVE_SHARED") or CHECKOUT.parent / "shared").resolve()
REAL_HOME = Path.home()
CACHES = (".npm", ".cache", ".local", ".pyenv")
"""What npx, uvx and pyenv keep under the user's home and would fetch again for every test."""
_numbers = itertools.count(1)


def pytest_configure() -> None:
    """Take signals as they come: what a shell starts in the background, or `nohup` anywhere, has some of them ignored.

    The commands that the tests start would inherit that, and respect it.
    """
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio, the only backend the package supports."""
    return "asyncio"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with servers.json and the real tool definitions; a test that needs it is marked `data`."""
    folder = SHARED / "data"
    if not folder.is_dir():
        pytest.skip(f"{folder} does not exist; set TOOLWEAVE_SHARED to the folder that holds data/")
    return folder


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder under which every test's home lies; a child process is ours if its HOME does."""
    return tmp_path_factory.mktemp("homes")


@pytest.fixture(scope="session", autouse=True)
def _session_home(homes: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        _move_home(patch, homes / "session")
        watch = Watch(homes)
        yield
        watch.fail_on_leftovers("the session")


@pytest.fixture(autouse=True)
def home(_session_home: None, homes: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """An empty home of the test's own, so that no editor's config of the user is read."""
    folder = homes / str(next(_numbers))
    with pytest.MonkeyPatch.context() as patch:
        _move_home(patch, folder)
        if {"real", "reference"} & {marker.name for marker in request.node.iter_markers()}:
            _link_caches(folder)
        yield folder


@pytest.fixture(autouse=True)
def _no_leftover_process(home: Path, homes: Path) -> Iterator[None]:
    watch = Watch(homes)
    yield
    watch.fail_on_leftovers("the test")


OTHERS = {"APPDATA", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "COLUMNS", "LINES"}  # the last two are set by pytest-xdist


def _move_home(patch: pytest.MonkeyPatch, folder: Path) -> None:
    folder.mkdir()
    for name in list(os.environ):
        ours = name.startswith(("TOOLWEAVE_", "XDG_")) or name in OTHERS
        if ours and name != "TOOLWEAVE_SHARED":
            patch.delenv(name)
    patch.setenv("HOME", str(folder))
    patch.setenv("USERPROFILE", str(folder))


def _link_caches(folder: Path) -> None:
    for name in CACHES:
        if (REAL_HOME / name).exists():
            (folder / name).symlink_to(REAL_HOME / name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a skip is a failure: nothing may go untested for a missing tool.

    A reason that starts with `platform:` is let through: the test is about another system.
    """
    report = yield
    if IN_CI and report.skipped and not hasattr(report, "wasxfail") and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if not reason.startswith("platform:"):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} was skipped in CI: {reason}"
    return report
