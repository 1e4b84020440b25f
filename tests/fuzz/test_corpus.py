"""Inputs that a fuzzer kept: each is read, or refused with a documented error."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).with_name("corpus")


@pytest.mark.parametrize("name", TARGETS)
def test_every_kept_input_is_read_or_refused_with_a_documented_error(name: str) -> None:
    kept = sorted((CORPUS / name).iterdir())

    assert kept
    for path in kept:
        TARGETS[name](path.read_bytes())


def test_every_folder_of_inputs_belongs_to_a_target() -> None:
    assert {folder.name for folder in CORPUS.iterdir()} == set(TARGETS)
