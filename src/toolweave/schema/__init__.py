"""JSON Schema as values: derive one from a signature, validate with one, build a model from one.

No I/O; knows nothing of tools, servers or language models.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolweave.schema._problems import Problem, describe
    from toolweave.schema._pydantic_models import schema_to_model
    from toolweave.schema._signature import Signature, derive, schema_of
    from toolweave.schema._validate import Validator

__all__ = ["Problem", "Signature", "Validator", "derive", "describe", "schema_of", "schema_to_model"]

_HOMES = {
    "Problem": "_problems",
    "Signature": "_signature",
    "Validator": "_validate",
    "derive": "_signature",
    "describe": "_problems",
    "schema_of": "_signature",
    "schema_to_model": "_pydantic_models",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
