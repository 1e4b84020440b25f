"""The command in this process, an empty directory to run it in, and a registry that a module shares."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.command import Done
from tests.install.served import ServedRegistry, serve_registry
from toolweave.cli.main import main

Cli = Callable[..., Done]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], folder: Path) -> Cli:
    """Run the command in this process, in the test's own directory."""

    def run(*args: object) -> Done:
        code = main([str(arg) for arg in args])
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def running_registry() -> Iterator[ServedRegistry]:
    """A registry on the loopback."""
    with serve_registry() as registry:
        yield registry


@pytest.fixture
def registry(running_registry: ServedRegistry, monkeypatch: pytest.MonkeyPatch) -> ServedRegistry:
    """The registry, as the one that is asked."""
    running_registry.reset()
    monkeypatch.setenv("TOOLWEAVE_REGISTRY", running_registry.url)
    return running_registry
