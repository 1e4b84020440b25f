"""A notebook of docs_src, run by a real kernel, puts out what is kept in its file and shown on its page."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.docs.notebooks import NOTEBOOKS, read, run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_puts_out_what_its_file_has(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    kept = read(path)

    done = run(kept, tmp_path)

    for was, now in zip(kept.cells, done.cells, strict=True):
        assert was == now, f"{path.name}, {was.source}: python -m tests.docs.notebooks writes what it puts out"
