"""The few values of some options of runs, checked where they are given in Python."""

from __future__ import annotations

from typing import get_args

from toolweave._option_checks import choice_error, instance_of
from toolweave.agent._journal import OnUnknown
from toolweave.agent._stored.deadlines import WaitingPolicy

UNKNOWN_POLICIES: tuple[str | None, ...] = (*get_args(OnUnknown), None)
"""Policies for calls with an unknown outcome; None is that of the agent or of the submission."""
ATTENDED: tuple[bool | str | None, ...] = (True, False, "later", None)
"""Values of `attended`; None keeps the recorded one. A misspelt word would count as true: as if a person were there."""
WAITING_POLICY = instance_of(WaitingPolicy, "WaitingPolicy(...)").or_none
"""The type of an option that is the waiting policy."""


def unknown_policy_error(given: object) -> ValueError:
    """Return the error for a policy that there is not."""
    return choice_error("on_unknown", given, UNKNOWN_POLICIES[:-1])


def attended_error(given: object) -> ValueError:
    """Return the error for another value of `attended`."""
    return choice_error("attended", given, ATTENDED[:-1])
