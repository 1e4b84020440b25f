"""The keys of an entry in every dialect, and the one word for each: its field, or its dialect's word in snake_case."""

from __future__ import annotations

import re

_SYNONYMS = {
    "server_name": "name",
    "type": "transport",
    "transport_type": "transport",
    "server_url": "url",
    "environment": "env",
    "http_headers": "headers",
    "working_directory": "cwd",
    "is_active": "enabled",
    "cmd": "command",
    "envs": "env",
    "uri": "url",
    "env_keys": "env_vars",
}
SYNONYMS = frozenset(_SYNONYMS)
"""The keys that mean a field of another name."""


def snake_case(key: object) -> str:  # a YAML key may be a number
    """Return a key in snake_case: `headerName`, `header-name` and `header_name` are the same."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", str(key)).replace("-", "_").lower()


def canonical_key(key: object) -> str:
    """Return the field or dialect word that a key means, in snake_case."""
    word = snake_case(key)
    return _SYNONYMS.get(word, word)
