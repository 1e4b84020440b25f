"""What every test gets: its own home, one async backend, and a check that no process outlives it."""

from __future__ import annotations

import functools
import gc
import gzip
import inspect
import itertools
import json
import logging
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import anyio
import hypothesis
import pytest

from tests.leftovers import Watch
from tests.raw_store import raw_place
from tests.redis_server import redis_server, redis_url

__all__ = ["raw_place", "redis_server", "redis_url"]  # fixtures

TESTS = Path(__file__).resolve().parent
OUR_DATA = TESTS / "data"
CHECKOUT = TESTS.parent
IN_CI = os.environ.get("CI") == "true"
SHARED = Path(os.environ.get("TOOLWEAVE_SHARED") or CHECKOUT.parent / "shared").resolve()
REAL_HOME = Path.home()
CACHES = (".npm", ".cache", ".local", ".pyenv")
"""What npx, uvx and pyenv keep under the user's home and would fetch again for every test."""
_numbers = itertools.count(1)

# how long an example may take is no property of ours: it depends on what else the machine does
hypothesis.settings.register_profile(
    "toolweave", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("toolweave")


def pytest_configure() -> None:
    """Take signals as they come: what a shell starts in the background, or `nohup` anywhere, has some of them ignored.

    The commands that the tests start would inherit that, and respect it.
    """
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
    logging.getLogger("asyncio").addFilter(_is_about_behaviour)


def _is_about_behaviour(record: logging.LogRecord) -> bool:
    """Leave out what asyncio logs in development mode about the time of a step: it depends on what else runs."""
    return not str(record.msg).startswith("Executing %s took")


FLEETS = TESTS / "gateway" / "scale"
"""The tests of several processes, of which even a quick one waits for each to start."""
QUICK_SECONDS = 30
SLOW_SECONDS = 240
"""Seconds until an async test is cancelled: before the bound of pyproject.toml, which cannot close what is open. A file
of tests that need others has them in `TEST_SECONDS`."""

LONG = {"real": 3600, "reference": 900, "conformance": 1800}
"""Seconds that tests of foreign programs may take, by their marker; others have the bound of pyproject.toml."""


MEASURED = {"cli", "console", "gateway", "serve"}
"""Folders with slow tests that run what no quick one does, and with processes that do what no test does itself."""
MEASURES_PROCESSES = pytest.StashKey[bool]()
"""Whether the processes that a test starts are measured; absent if they are not."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without looking for cycles, and exclude the tests from every later search for them.

    All modules and tests stay until the end: each search would visit millions of objects that cannot be freed.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before -m looks at the markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests that install or drive foreign programs a longer bound, and say whose coverage need not be measured.

    Measuring adds a tenth of a second to the start of a process, and slow tests start processes. Of most folders they
    repeat, with kills, faults and many cases, what quick tests have run. The cases of one test run the same code in
    the processes that they start, so only those of the first are measured; but those of the command do not: each case
    is another command.
    """
    started = set[str]()
    for item in items:
        markers = {marker.name for marker in item.iter_markers()}
        folder = folder_of(item.path)
        measured = folder in MEASURED
        if "slow" in markers and not measured:
            item.add_marker(pytest.mark.unmeasured)
        function = item.nodeid.partition("[")[0]
        is_first = folder == "cli" or function not in started
        if measured and "unmeasured" not in markers and is_first:
            started.add(function)
            item.stash[MEASURES_PROCESSES] = True
        seconds = max((LONG.get(name, 0) for name in markers), default=0)
        if seconds and "timeout" not in markers:
            item.add_marker(pytest.mark.timeout(seconds))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Cancel an async test that hangs, so that none has to bound its own steps by a time that only says: too long.

    A test bounds a step by itself if the time is what it asserts. Tests with a bound of pytest's own have that alone.
    """
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test) or pyfuncitem.get_closest_marker("timeout") is not None:
        return (yield)
    is_slow = pyfuncitem.get_closest_marker("slow") is not None or pyfuncitem.path.parent == FLEETS
    default = SLOW_SECONDS if is_slow else QUICK_SECONDS
    seconds: float = getattr(pyfuncitem.module, "TEST_SECONDS", default)

    @functools.wraps(test)
    async def bounded(**arguments: object) -> None:
        with anyio.fail_after(seconds):
            await test(**arguments)

    pyfuncitem.obj = bounded
    try:
        return (yield)
    finally:
        pyfuncitem.obj = test


def folder_of(path: Path) -> str:
    """Return the folder of the tests in which a test file is."""
    return path.relative_to(TESTS).parts[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Measure no coverage during a test that is marked so; `home` sees to the processes that it starts."""
    coverage = sys.modules.get("coverage")
    measured = None if coverage is None else coverage.Coverage.current()
    if measured is None or item.get_closest_marker("unmeasured") is None:
        return (yield)
    measured.stop()
    try:
        return (yield)
    finally:
        measured.start()


def pytest_sessionfinish() -> None:
    """Write what was measured of coverage: pytest-xdist kills a process of its own that takes ten seconds to exit."""
    coverage = sys.modules.get("coverage")
    measured = None if coverage is None else coverage.Coverage.current()
    if measured is not None:
        measured.save()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio, the only backend the package supports."""
    return "asyncio"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with servers.json and the real tool definitions; a test that needs it is marked `data`."""
    folder = SHARED / "data"
    if not folder.is_dir():
        pytest.skip(f"data: {folder} does not exist; set TOOLWEAVE_SHARED to the folder that holds data/")
    return folder


OURS_AND_SHARED = (
    pytest.param(OUR_DATA, id="ours"),
    pytest.param(None, id="shared", marks=[pytest.mark.data, pytest.mark.slow]),  # thousands of definitions
)


@pytest.fixture(scope="session", params=OURS_AND_SHARED)
def definitions(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """Tool definitions as servers list them: a few dozen of our own, and the thousands of the shared data."""
    if request.param is not None:
        lines = (OUR_DATA / "definitions.jsonl").read_text(encoding="utf-8")
    else:
        folder: Path = request.getfixturevalue("shared_data")
        lines = gzip.decompress((folder / "tools-dev.jsonl.gz").read_bytes()).decode()
    return [json.loads(line) for line in lines.splitlines()]


@pytest.fixture(params=OURS_AND_SHARED)
def server_collection(request: pytest.FixtureRequest) -> Path:
    """A config file with many servers: one of our own, and that of the shared data."""
    folder: Path = request.param or request.getfixturevalue("shared_data")
    return folder / "servers.json"


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
        if MEASURES_PROCESSES not in request.node.stash:
            patch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
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
    patch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")  # never that of whoever runs the tests


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

    A reason that starts with `platform:` or `data:` is let through: the test is about another system, or about
    definitions that are not part of the repository and that ours stand in for.
    """
    report = yield
    if IN_CI and report.skipped and not hasattr(report, "wasxfail") and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if not reason.startswith(("platform:", "data:")):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} was skipped in CI: {reason}"
    return report
