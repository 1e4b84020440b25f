"""Tasks: calls that outlast their request (extension `io.modelcontextprotocol/tasks`, and its form of 2025-11-25).

`rules.py` decides which calls become tasks, `feature.py` answers the requests of clients, `task.py` is one running
task. Tasks are in this process (`local.py`), or in a store that all replicas see (`remote.py`, `store.py`), as jobs of
workers (`worker.py`).
"""

from __future__ import annotations

from toolweave.serve._tasks.feature import TasksFeature, tasks_kept_by
from toolweave.serve._tasks.local import LocalTasks
from toolweave.serve._tasks.port import TaskBackend
from toolweave.serve._tasks.rules import OnLost, TaskRule, TaskSupport

__all__ = ["LocalTasks", "OnLost", "TaskBackend", "TaskRule", "TaskSupport", "TasksFeature", "tasks_kept_by"]
