"""JSON Schema as values: derive one from a signature, validate with one, build a model from one.

No I/O; knows nothing of tools, servers or language models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolweave._lazy import lazy_exports

if TYPE_CHECKING:
    from toolweave.schema._problems import Problem, describe
    from toolweave.schema._pydantic_models import schema_to_model
    from toolweave.schema._signature import Signature, derive, schema_of
    from toolweave.schema._validate import Validator

__all__ = ["Problem", "Signature", "Validator", "derive", "describe", "schema_of", "schema_to_model"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "_problems": (
            "Problem",
            "describe",
        ),
        "_pydantic_models": ("schema_to_model",),
        "_signature": (
            "Signature",
            "derive",
            "schema_of",
        ),
        "_validate": ("Validator",),
    },
)
