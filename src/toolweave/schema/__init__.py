"""JSON Schema as values: derive one from a signature, validate with one, build a model from one.

No I/O; knows nothing of tools, servers or models of language.
"""

from __future__ import annotations

from toolweave.schema.problems import Problem, describe
from toolweave.schema.validate import Validator

__all__ = ["Problem", "Validator", "describe"]
