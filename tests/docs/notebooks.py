"""Notebooks of docs_src: run by a kernel of Jupyter, and shown on pages as their cells with what each put out.

`python -m tests.docs.notebooks` runs them all and writes their outputs anew.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["NOTEBOOKS", "read", "run", "shown"]

NOTEBOOKS = sorted((Path(__file__).resolve().parent.parent.parent / "docs_src").glob("*.ipynb"))
SECONDS = 60
_PLAIN = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def read(path: Path) -> Any:
    """Return a notebook."""
    return _nbformat().read(path, as_version=4)


def run(notebook: Any, folder: Path) -> Any:
    """Return a notebook with what its cells put out when a kernel runs them in a folder; times are left out."""
    from nbclient import NotebookClient  # late, as below

    done = copy.deepcopy(notebook)
    NotebookClient(
        done, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    done.metadata = _PLAIN
    for cell in done.cells:
        cell.metadata = {}
    return done


def shown(path: Path) -> Iterator[str]:
    """Yield the cells as a page has them: what is displayed as HTML stands there as that, all else as text."""
    between = ""
    for cell in read(path).cells:
        yield between
        between = "\n"
        if cell.cell_type == "markdown":
            yield f"{cell.source}\n"
            continue
        yield f"```py\n{cell.source}\n```\n"
        for output in cell.outputs:
            data = output.get("data", {"text/plain": output.get("text", "")})
            html, text = data.get("text/html"), data.get("text/plain", "").rstrip("\n")
            yield f"\n{html}\n" if html else f"\n```text\n{text}\n```\n"


def _nbformat() -> Any:  # it has no types
    return importlib.import_module("nbformat")  # takes a while, and only notebooks need it


def _write() -> None:
    for path in NOTEBOOKS:
        _nbformat().write(run(read(path), path.parent), path)


if __name__ == "__main__":
    _write()
