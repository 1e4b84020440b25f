"""What `toolweave components` does, from Python: a plan first, then the files."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from toolweave.components import Project

with TemporaryDirectory() as folder:
    project = Project(Path(folder))
    project.carry_out(project.add("mcp-client"))

    settings = Path(folder) / "mcp_client" / "settings.py"
    settings.write_text(settings.read_text().replace("wait: float = 20.0", "wait: float = 5.0"))

    print([file.path for file in project.files("mcp-client") if file.edited])
    for step in project.remove("mcp-client").plan.steps:
        print(step.action, step.path, step.why)
