"""Source code that users own: copied into their project, edited there, and brought up to date without losing an edit.

Knows nothing of tools, servers and models: what the components do stands in the catalog, as text.
"""

from __future__ import annotations

from toolweave.components.offered import Component, component, component_names
from toolweave.components.plan import Action, OnConflict, Plan, Step
from toolweave.components.project import FileState, Job, Project

__all__ = [
    "Action",
    "Component",
    "FileState",
    "Job",
    "OnConflict",
    "Plan",
    "Project",
    "Step",
    "component",
    "component_names",
]
