"""How much of the public interface has types that every type checker agrees on, as pyright measures it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.programs import ran

pytestmark = pytest.mark.slow

AT_LEAST = 0.995
"""The part of the exported symbols; what is left are blocking methods, made from the async ones with their types."""


def test_nearly_every_exported_symbol_has_a_type_that_is_written_down(tmp_path: Path) -> None:
    pytest.importorskip("pyright", reason="the type checker comes with the extra `dev`")
    binaries = Path(sys.executable).parent
    # pyright looks for the package beside the Python that PATH finds first, and reads no other configuration there
    environment = {**os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}
    command = [binaries / "pyright", "--verifytypes", "toolweave", "--ignoreexternal", "--outputjson"]
    ended = ran(command, cwd=tmp_path, env=environment)
    report = json.loads(ended.stdout)["typeCompleteness"]
    untyped = [
        (symbol["name"], *(diagnostic["message"] for diagnostic in symbol["diagnostics"]))
        for symbol in report["symbols"]
        if symbol["isExported"] and not symbol["isTypeKnown"]
    ]
    assert report["completenessScore"] >= AT_LEAST, untyped
