"""The check that no test leaves a process behind does find what it must find."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.leftovers import Watch, processes
from tests.programs import ran

SLEEPER = "import time; print('up', flush=True); time.sleep(60)"


def test_a_child_that_ended_is_no_leftover(homes: Path) -> None:
    watch = Watch(homes)

    subprocess.run([sys.executable, "-c", "pass"], check=True)

    assert watch.leftovers() == []


@pytest.mark.slow
def test_a_running_child_is_ended_and_named_with_its_command_line(homes: Path) -> None:
    watch = Watch(homes)

    with subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with pytest.raises(pytest.fail.Exception, match=rf"{child.pid}: .*time\.sleep\(60\)"):
            watch.fail_on_leftovers("the test")

    assert child.returncode == -signal.SIGKILL


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="platform: needs /proc")
def test_a_grandchild_whose_parent_died_is_found_by_its_home(homes: Path) -> None:
    watch = Watch(homes)
    parent = (
        "import subprocess, sys;"
        f"child = subprocess.Popen([sys.executable, '-c', {SLEEPER!r}], start_new_session=True,"
        " stdout=subprocess.PIPE, stderr=subprocess.DEVNULL);"
        "child.stdout.readline(); print(child.pid)"
    )
    done = ran([sys.executable, "-W", "ignore", "-c", parent], check=True)
    orphan = int(done.stdout)

    assert [row.pid for row in watch.leftovers()] == [orphan]
    assert os.getpid() not in {row.parent for row in processes() if row.pid == orphan}

    os.kill(orphan, signal.SIGKILL)
