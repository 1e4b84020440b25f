"""Reading and writing of the two JSON files in which a project records its components.

Knows their outer structure only; their members are in `manifest.py` and `lockfile.py`.
"""

from __future__ import annotations

import json
from typing import Any, cast

from toolweave.errors import ConfigError


def read(data: bytes | None, path: str) -> dict[str, Any]:
    """Return the JSON object in a file; an empty one for a file that does not exist.

    Raises:
        ConfigError: It is not a JSON object.
    """
    if data is None:
        return {}
    try:
        value: Any = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the file is not JSON: {error}", path=path) from None
    return members(value, path, "the file")


def members(value: Any, path: str, what: str) -> dict[str, Any]:  # any JSON value
    """Return `value`, which must be an object.

    Raises:
        ConfigError: It is not one.
    """
    if not isinstance(value, dict):
        raise ConfigError(f"{what} must be an object, not {type(cast('object', value)).__name__}", path=path)
    return cast("dict[str, Any]", value)


def dump(value: dict[str, Any]) -> bytes:
    """Return a JSON object as the bytes of its file."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")
