"""The challenges of a `WWW-Authenticate` header (RFC 9110, 11.6.1), read with its real grammar. Pure."""

# The grammar is ambiguous at a comma: it separates the parameters of one challenge and also the challenges. A scheme is
# a word that a space, a comma or the end follows, and a parameter a word that `=` and a value follow. So after a comma,
# the parameters continue as long as `_PARAMETER` matches, and everything else begins a new challenge. Every step moves
# `at` forward, so the loop ends even with hostile text.

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from toolweave._value import Value

_MAX_CHARACTERS = 16 * 1024
_MAX_CHALLENGES = 32
_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_GAP = re.compile(r"[ \t,]*")
_SCHEME = re.compile(rf"({_WORD})(?=[ \t,]|$)")
# A parameter has a value: a word that ends in `=` and has none is a token68.
# Servers write URLs without quotes, or in single ones, which no grammar allows and which can mean nothing else.
_PARAMETER = re.compile(
    rf"[ \t]*({_WORD})[ \t]*=[ \t]*"
    r"""(?:"((?:[^"\\]|\\.)*)"|'([^']*)'(?=[ \t,]|$)|((?![="'])[^\s,"]+)(?=[ \t,]|$))"""
)
_BARE = re.compile(r"[ \t]+([A-Za-z0-9._~+/-]+=*)[ \t]*(?=,|$)")
_COMMA = re.compile(r"[ \t]*(?:,[ \t]*)+")
_ESCAPED = re.compile(r"\\(.)")


class Challenge(Value, frozen=True):
    """One challenge.

    Attributes:
        scheme: Its scheme, in lower case.
        parameters: Its parameters by lower-case name; of repeated ones the first.
        token: Its token68, as `Negotiate` has one.
    """

    scheme: str
    parameters: Mapping[str, str] = {}
    token: str = ""


def parse_challenges(header: str) -> list[Challenge]:
    """Return the challenges of a header; repeated headers are joined by commas, and unreadable parts are skipped."""
    text = header[:_MAX_CHARACTERS]
    at = 0
    found = list[Challenge]()
    while at < len(text) and len(found) < _MAX_CHALLENGES:
        at = _after(_GAP, text, at)
        scheme = _SCHEME.match(text, at)
        if scheme is None:
            comma = text.find(",", at)
            if comma < 0:
                break
            at = comma + 1
            continue
        challenge, at = _challenge(scheme[1].lower(), text, scheme.end())
        found.append(challenge)
    return found


def _challenge(scheme: str, text: str, at: int) -> tuple[Challenge, int]:
    parameters, end = _parameters(text, at)
    if parameters:
        return Challenge(scheme=scheme, parameters=parameters), end
    token = _BARE.match(text, at)
    if token is not None:
        return Challenge(scheme=scheme, token=token[1]), token.end()
    return Challenge(scheme=scheme), end


def challenge_for(challenges: Sequence[Challenge]) -> Challenge | None:
    """Return the challenge that OAuth answers, with an error if any has one: Bearer's, else DPoP's."""
    ours = [each for each in challenges if each.scheme in ("bearer", "dpop")]
    ours.sort(key=lambda each: ("error" not in each.parameters, each.scheme != "bearer"))
    if ours:
        return ours[0]
    return None


def _parameters(text: str, at: int) -> tuple[dict[str, str], int]:
    found: dict[str, str] = {}
    if text[at : at + 1] not in (" ", "\t"):
        return found, at
    while (one := _PARAMETER.match(text, at)) is not None:
        name, quoted, singly_quoted, plain = one.groups("")
        found.setdefault(name.lower(), _ESCAPED.sub(r"\1", quoted) + singly_quoted + plain)
        at = one.end()
        comma = _COMMA.match(text, at)
        if comma is None or _PARAMETER.match(text, comma.end()) is None:
            break
        at = comma.end()
    return found, at


def _after(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    if found is None:
        return at
    return found.end()
