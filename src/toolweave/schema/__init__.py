"""JSON Schema as values: derive one from a signature, validate with one, build a model from one.

No I/O; knows nothing of tools, servers or language models.
"""

from __future__ import annotations

from toolweave.schema.derive import Signature, derive, schema_of
from toolweave.schema.models import schema_to_model
from toolweave.schema.problems import Problem, describe
from toolweave.schema.validate import Validator

__all__ = ["Problem", "Signature", "Validator", "derive", "describe", "schema_of", "schema_to_model"]
