"""Options of middleware in Python that would protect nothing: refused at once, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from toolweave import tool
from toolweave.middleware import (
    AccessRule,
    AccessRules,
    AuditLog,
    CallBudget,
    OfferSelection,
    RateLimit,
    Redaction,
    SizeLimits,
    UserApproval,
)

Make = Callable[..., Any]


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (AccessRule, {"effect": "deny", "annotations": {"destructive": True}}, "did you mean 'destructiveHint'"),
        (AccessRule, {"effect": "deny", "annotations": {"read_only_hint": True}}, "did you mean 'readOnlyHint'"),
        (AccessRule, {"effect": "deny", "annotations": {"readOnlyHint": "no"}}, "readOnlyHint is true or false"),
        (AccessRule, {"effect": "deny", "annotations": ["readOnlyHint"]}, "annotations is a mapping, not list of str"),
        (OfferSelection, {"annotations": {"openworldhint": True}}, "did you mean 'openWorldHint'"),
        (
            AccessRules,
            {"rules": [{"effect": "deny"}]},
            "rules is a list of AccessRule.*, not tuple of dict",
        ),
        (RateLimit, {"calls": 3, "only": ["add"]}, "only is a list of OfferSelection.*, not tuple of str"),
        (UserApproval, {"only": ["add"]}, "only is a list of OfferSelection.*, not tuple of str"),
        (SizeLimits, {"results": 3, "only": ["add"]}, r"SizeLimits\.only is a list of OfferSelection"),
        (RateLimit, {"calls": "3"}, "RateLimit.calls is a number, not str"),
        (CallBudget, {"calls": True}, "CallBudget.calls is a number, not bool"),
        (SizeLimits, {"results": "1 MB"}, "SizeLimits.results is a number, not str"),
        (Redaction, {"patterns": {}}, "patterns is a mapping of names to regular expressions, with one at least"),
        (Redaction, {"patterns": ["email"]}, "patterns is a mapping .* those with a name are email, card, jwt"),
        (AuditLog, {"sink": print, "methods": ["tool/call"]}, "did you mean 'tools/call'"),
        (AuditLog, {"sink": print, "methods": "tools/cal"}, "did you mean 'tools/call'"),
    ],
)
def test_an_option_that_would_protect_nothing_is_refused(make: Make, options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make(**options)


def test_annotations_and_methods_beside_those_of_mcp_are_allowed() -> None:
    assert OfferSelection(annotations={"costs": True}).annotations == {"costs": True}
    assert AuditLog(sink=print, methods=["tools/*", "acme/quote"]).methods == ("tools/*", "acme/quote")


@pytest.mark.parametrize("hint", ["destructive", "destructiveHnt", "read_only"])
def test_a_misspelt_hint_of_an_own_tool_is_refused(hint: str) -> None:
    def wipe() -> None:
        """Delete everything."""

    with pytest.raises(ValueError, match=f"tool 'wipe': annotations: '{hint}' is not a hint; did you mean"):
        tool(annotations={hint: True})(wipe)
