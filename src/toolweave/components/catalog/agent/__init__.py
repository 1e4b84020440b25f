"""An agent of this project. The code is yours: change what you like.

`settings.py` says which model, which servers and which instructions; `tools.py` has
the functions it may use; `agent.py` puts them together.
"""

from __future__ import annotations

from .agent import create_agent
from .settings import Settings

__all__ = ["Settings", "create_agent"]
