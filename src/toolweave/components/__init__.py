"""Components: source code that is copied into a user's project, edited there, and updated without losing an edit.

Independent of tools, servers and models: the components are texts in the catalog.
"""

from __future__ import annotations

from toolweave.components._plan import Action, FileStep, OnConflict, Plan
from toolweave.components._project import Component, ComponentChange, FileState, Project, component, component_names

__all__ = [
    "Action",
    "Component",
    "ComponentChange",
    "FileState",
    "FileStep",
    "OnConflict",
    "Plan",
    "Project",
    "component",
    "component_names",
]
