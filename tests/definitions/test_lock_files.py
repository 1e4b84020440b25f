"""Lock files that are not files: nobody waits for them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from toolweave.definitions import Pins
from toolweave.errors import ConfigError

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")


@pytest.mark.parametrize("linked", [False, True])
def test_a_lock_file_that_is_a_named_pipe_is_an_error_at_once(tmp_path: Path, linked: bool) -> None:
    lock = tmp_path / "toolweave.lock"
    pipe = tmp_path / "pipe" if linked else lock
    os.mkfifo(pipe)
    if linked:
        lock.symlink_to(pipe)

    with pytest.raises(ConfigError, match="not a regular file") as caught:
        Pins.read(lock)

    assert caught.value.path == str(lock)
