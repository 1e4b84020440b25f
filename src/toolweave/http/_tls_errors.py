"""The meaning of errors of TLS, and the next step for each.

The words are those of OpenSSL, which are all that Python's errors have. An alert is the other side's refusal. It may
arrive with the first answer, not the handshake: TLS 1.3 lets a client write before the server has judged it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

_FILE = "SSL_CERT_FILE"
_OTHER_FILES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
"""Variables by which other programs trust an authority; OpenSSL does not read them."""
_TRUST = f"to trust a certificate authority of your own, name its file in {_FILE}"

_MEANINGS: Sequence[tuple[str, str]] = (
    (
        r"(?i)certificate has expired",
        "the server's certificate has expired: its operator has to renew it, or this machine's clock is wrong",
    ),
    (r"(?i)certificate is not yet valid", "the server's certificate is not valid yet: check this machine's clock"),
    (
        r"(?i)(?:hostname|IP address) mismatch[^']*'([^']*)'",
        "the server's certificate is for another name than {0!r}: use the name that it is for, in the URL",
    ),
    (
        r"(?i)alert (?:certificate required|bad certificate|unknown ca|certificate unknown)|certificate_required",
        "the server wants a certificate of this client, and none is sent: a local proxy, such as nginx, can send it",
    ),
    (
        r"(?i)alert handshake failure",
        "the server ended the handshake: it may want a certificate of this client, and none is sent",
    ),
    (
        r"(?i)unsupported protocol|alert protocol version|no protocols available",
        "the server speaks no version of TLS that is safe: TLS 1.2 is the oldest",
    ),
    (r"(?i)CERTIFICATE_VERIFY_FAILED", _TRUST),
)
"""Patterns of errors, each with its meaning; `{0}` is the first group. The first that fits counts."""


def explained(error: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the text of an error; one of TLS with its meaning and the next step.

    Args:
        error: The error's own text.
        environment: Where the file of authorities is named.
    """
    for pattern, meaning in _MEANINGS:
        found = re.search(pattern, error)
        if found is not None:
            step = _trusting(environment) if meaning == _TRUST else meaning.format(*found.groups())
            return f"{error}; {step}"
    return error


def _trusting(environment: Mapping[str, str]) -> str:
    """Return how to trust an authority, or the reason why the file that is named has no effect."""
    # OpenSSL ignores a file that it cannot read.
    named = environment.get(_FILE)
    if named and not Path(named).is_file():
        return f"{_FILE} names {named!r}, which is not a file"
    if named:
        return f"{_FILE} names {named!r}, which does not have the authority of this server: add it there"
    others = [name for name in _OTHER_FILES if environment.get(name)]
    if others:
        return f"{_TRUST}; {others[0]} is not read"
    return _TRUST
