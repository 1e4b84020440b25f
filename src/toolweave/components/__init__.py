"""Components: source code that is copied into a user's project, edited there, and updated without losing an edit.

Knows nothing of tools, servers and models: the components are texts in the catalog.
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
