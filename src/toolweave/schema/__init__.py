"""JSON Schema as values: derive one from a signature, validate with one, build a model from one.

No I/O; knows nothing of tools, servers or language models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolweave.schema._pydantic_models import schema_to_model
    from toolweave.schema._signature import Signature, derive, schema_of
    from toolweave.schema.problems import Problem, describe
    from toolweave.schema.validate import Validator, load_validator
else:
    from toolweave._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "problems": (
                "Problem",
                "describe",
            ),
            "_pydantic_models": ("schema_to_model",),
            "_signature": (
                "Signature",
                "derive",
                "schema_of",
            ),
            "validate": (
                "Validator",
                "load_validator",
            ),
        },
        moved={"providers": ("LoweredSchema", "SchemaProfile", "lower")},
    )

__all__ = [
    "Problem",
    "Signature",
    "Validator",
    "derive",
    "describe",
    "load_validator",
    "schema_of",
    "schema_to_model",
]
