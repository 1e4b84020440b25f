"""Checks of the options of runs that are given in Python."""

from __future__ import annotations

from typing import get_args

from toolweave.agent._journal import OnUnknown
from toolweave.tools._option_checks import check_choice

_POLICIES: tuple[str, ...] = get_args(OnUnknown)


def check_unknown_policy(on_unknown: OnUnknown | None) -> None:
    """Check a policy for calls with an unknown outcome; None is that of the agent or of the submission.

    Raises:
        ValueError: There is none of this name.
    """
    if on_unknown is not None:
        check_choice("on_unknown", on_unknown, _POLICIES)


def check_attended(attended: object) -> None:
    """Check who may approve calls; None keeps the recorded value.

    Raises:
        ValueError: It is another value, which would count as true: as if a person were there.
    """
    if attended is not None:
        check_choice("attended", attended, (True, False, "later"))
