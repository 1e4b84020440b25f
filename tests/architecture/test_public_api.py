"""No public name or signature changes without its line in the file that `scripts/api` writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture.public_api import RENEW, WRITTEN, current_lines, difference, lines_of, written_lines

ROOM = """
from pkg._inside import Base, Limits, add
__all__ = ["Limits", "add"]
"""
INSIDE = """
from dataclasses import dataclass

class Base:
    def close(self, *, wait: float = 1.0) -> None: ...
    def _hidden(self) -> None: ...

@dataclass(frozen=True)
class Limits(Base):
    calls: int = 4
    @property
    def left(self) -> int: ...

async def add(a: int, /, b: int = 2) -> int: ...
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with a package of one room."""
    (tmp_path / "pkg" / "room").mkdir(parents=True)
    (tmp_path / "pkg" / "__init__.py").write_text("from pkg._inside import add\n__all__ = ['add']\n", encoding="utf-8")
    (tmp_path / "pkg" / "room" / "__init__.py").write_text(ROOM, encoding="utf-8")
    (tmp_path / "pkg" / "_inside.py").write_text(INSIDE, encoding="utf-8")
    return tmp_path


NAMES = {"pkg": ["add"], "pkg.room": ["Limits", "add"]}


@pytest.mark.slow
def test_no_public_name_or_signature_differs_from_the_file() -> None:
    changed = difference(written_lines(), current_lines())

    if changed:
        pytest.fail(
            f"the public interface changed; if that is meant, run {RENEW} and commit {WRITTEN.name}, and write in "
            f"CHANGELOG.md what a user has to change:\n{changed}",
            pytrace=False,
        )


def test_the_lines_name_parameters_fields_and_members_of_private_bases(package: Path) -> None:
    assert lines_of(package, "pkg", NAMES) == [
        "pkg.add is pkg.room.add",
        "pkg.room.Limits.__init__: def __init__(calls: int = 4) -> None",
        "pkg.room.Limits.calls: int = 4",
        "pkg.room.Limits.close: def close(*, wait: float = 1.0) -> None",
        "pkg.room.Limits.left: int",
        "pkg.room.Limits: @dataclass(frozen=True) class(Base)",
        "pkg.room.add: async def add(a: int, /, b: int = 2) -> int",
    ]


def test_a_changed_default_and_a_removed_name_are_each_a_line_of_the_difference(package: Path) -> None:
    before = lines_of(package, "pkg", NAMES)
    (package / "pkg" / "_inside.py").write_text(INSIDE.replace("b: int = 2", "b: int = 3"), encoding="utf-8")

    after = lines_of(package, "pkg", {"pkg.room": ["add"]})

    assert difference(before, before) == ""
    assert difference(before, after).splitlines() == [
        "-pkg.add is pkg.room.add",
        *(f"-{line}" for line in before if "Limits" in line),
        "-pkg.room.add: async def add(a: int, /, b: int = 2) -> int",
        "+pkg.room.add: async def add(a: int, /, b: int = 3) -> int",
    ]
