"""A server's config as a field of pydantic models. Imported by pydantic's own request alone; knows no config."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic_core import core_schema

from toolweave._json_types import Json


def config_schema(kind: type, parse: Callable[[object], object], show: Callable[[Any], Json]) -> core_schema.CoreSchema:
    """Return the schema of a field that holds a server's config.

    Args:
        kind: The class of the config.
        parse: Makes a config of anything that a user gives.
        show: Returns a config as JSON without secrets.
    """
    return core_schema.no_info_before_validator_function(
        parse,
        core_schema.is_instance_schema(kind),
        serialization=core_schema.plain_serializer_function_ser_schema(show, when_used="json"),
    )
