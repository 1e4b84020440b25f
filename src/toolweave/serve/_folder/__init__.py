"""The files of a folder as parts of a server: Python, prompts in Markdown, resources, skills.

Independent of transports and of the server that offers them.
"""

from __future__ import annotations

__all__: list[str] = []
