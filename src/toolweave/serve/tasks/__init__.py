"""Calls that outlast their request: the extension `io.modelcontextprotocol/tasks`, and its form in revision 2025-11-25.

`rules.py` says which calls become tasks, `feature.py` answers what clients ask, `task.py` is one task that runs. Tasks
have a home: this process (`here.py`), or a store that all replicas see and workers who take them from a queue
(`replica.py`, `worker.py`, `board.py`).
"""

from __future__ import annotations

from toolweave.serve.tasks.feature import Tasks
from toolweave.serve.tasks.here import Here
from toolweave.serve.tasks.home import Home
from toolweave.serve.tasks.rules import OnLost, TaskRule, TaskSupport

__all__ = ["Here", "Home", "OnLost", "TaskRule", "TaskSupport", "Tasks"]
