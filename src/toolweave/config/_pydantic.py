"""`ServerConfig` as a field of pydantic models. Imported by pydantic's own request alone."""

from __future__ import annotations

from typing import Any

from pydantic_core import core_schema

from toolweave.config._coerce import server_config
from toolweave.config._merge import normalize_config
from toolweave.config._model import ServerConfig


def config_schema(kind: type[ServerConfig]) -> core_schema.CoreSchema:
    """Return the schema of a field that holds a server's config, given in any form that `server_config` takes."""
    return core_schema.no_info_before_validator_function(
        server_config,
        core_schema.is_instance_schema(kind),
        serialization=core_schema.plain_serializer_function_ser_schema(_shown, when_used="json"),
    )


def _shown(config: ServerConfig) -> dict[str, Any]:
    """Return the full form of a config; JSON of a model shows no secret."""
    return _masked(normalize_config(config.name, config), config)


def _masked(value: Any, config: ServerConfig) -> Any:
    if isinstance(value, dict):
        return {str(key): _masked(item, config) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, (list, tuple)):
        return [_masked(item, config) for item in value]  # pyright: ignore[reportUnknownVariableType]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return config.redact(str(value))
