"""Wrong edits of the source, played one at a time: `scripts/mutants`.

`mutants.toml` lists edits that remove a bound, a check or a cancellation, each with the test that fails for it.
A mutant is killed if that test fails with the edit and passes without it. It is stale if the file does not have its
`old` exactly once: the list has to follow the source. It is open while no test is known that fails for it. To find one,
name the files of tests to run: `scripts/mutants --file fast_calls tests/gateway/test_fast_calls.py`.

A file of the checkout is changed while its tests run, and restored: use a worktree that nobody edits meanwhile.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import msgspec

CHECKOUT = Path(__file__).resolve().parents[2]
SOURCE = CHECKOUT / "src" / "toolweave"
LIST = Path(__file__).with_name("mutants.toml")
SECONDS = 60
"""Seconds that a test may take with a mutant, which may make it wait for ever."""
_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)


class Mutant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A wrong edit.

    Attributes:
        file: The file, below the package.
        old: The text that is replaced, which the file has once.
        new: The text in its place.
        killed_by: The tests that fail for it, as pytest names them; none are known for one that is open.
        equivalent: Why no test can fail for it; such a mutant is not played.
    """

    file: str
    old: str
    new: str
    killed_by: tuple[str, ...] = ()
    equivalent: str = ""

    @property
    def text(self) -> str:
        """The text of the file."""
        return (SOURCE / self.file).read_text("utf-8")

    def __str__(self) -> str:
        line = self.text.partition(self.old)[0].count("\n") + 1
        return f"{self.file}:{line} {' '.join(self.old.split())!r} -> {' '.join(self.new.split())!r}"


def mutants() -> Sequence[Mutant]:
    """Return the mutants of the list."""
    return msgspec.toml.decode(LIST.read_bytes(), type=dict[str, Sequence[Mutant]])["mutants"]


def failed_tests(tests: Sequence[str]) -> Sequence[str]:
    """Run tests until one fails; return those that failed."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"--timeout={SECONDS}"]
    ended = subprocess.run([*command, *tests], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    failed = _FAILED.findall(ended.stdout)
    if ended.returncode > 1 and not failed:
        raise RuntimeError(f"pytest could not run {' '.join(tests)}: {ended.stdout[-500:]}{ended.stderr[-500:]}")
    return failed


@cache
def passes(test: str) -> bool:
    """Return whether a test passes on the source as it is."""
    return not failed_tests([test])


def play(mutant: Mutant, tests: Sequence[str]) -> tuple[str, str]:
    """Return `killed`, `survives`, `stale` or `unclear`, and the test that failed."""
    place = SOURCE / mutant.file
    text = mutant.text
    if text.count(mutant.old) != 1:
        return "stale", ""
    try:
        place.write_text(text.replace(mutant.old, mutant.new), "utf-8")
        failed = failed_tests(tests)
    finally:
        place.write_text(text, "utf-8")
    if not failed:
        return "survives", ""
    return ("killed" if passes(failed[0]) else "unclear"), failed[0]


def main() -> int:
    """Play the mutants of some files, or all; return 1 if one is not killed."""
    parser = argparse.ArgumentParser(description="Play wrong edits of the source, one at a time.")
    parser.add_argument("tests", nargs="*", help="tests to run in place of those of the list")
    parser.add_argument("--file", default="", help="a part of the names of the files to play")
    options = parser.parse_args()
    verdicts: Counter[str] = Counter()
    for mutant in mutants():
        if options.file not in mutant.file:
            continue
        tests = options.tests or mutant.killed_by
        if mutant.equivalent and not options.tests:
            verdict, why = "equivalent", mutant.equivalent
        elif not tests:
            verdict, why = "open", ""
        else:
            verdict, why = play(mutant, tests)
        verdicts[verdict] += 1
        print(f"{verdict:10} {mutant} {why}", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common()))
    return 0 if verdicts.keys() <= {"killed", "equivalent"} else 1


if __name__ == "__main__":
    sys.exit(main())
