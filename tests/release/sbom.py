"""The bill of materials of a wheel, in CycloneDX's form: `python sbom.py WHEEL`, run where the wheel is installed.

It needs the standard library alone, since the environment holds the wheel and its dependencies and nothing else. The
same wheel, environment and SOURCE_DATE_EPOCH give the same bytes.
"""

from __future__ import annotations

import hashlib
import importlib.metadata as installed
import json
import os
import re
import sys
import uuid
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["VENDORED", "Vendored", "bill_of_materials"]


class Vendored(NamedTuple):
    """A file of another project that the wheel carries."""

    name: str
    file: str
    version: re.Pattern[str]
    license: str
    purl: str


VENDORED = (
    Vendored(
        name="htmx.org",
        file="toolweave/gateway/_console/static/htmx.min.js",
        version=re.compile(r'version:"(\d+\.\d+\.\d+)"'),
        license="0BSD",
        purl="pkg:npm/htmx.org@{}",
    ),
)


def bill_of_materials(wheel: Path, distribution: str = "toolweave") -> dict[str, Any]:
    """Return the bill of a wheel: the files it carries, and the installed versions of all requirements but extras."""
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    required = _required(distribution)
    root = {
        **_component(distribution),
        "hashes": [{"alg": "SHA-256", "content": digest}],
        "components": [_vendored(wheel, one) for one in VENDORED],
    }
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, digest)}",
        "version": 1,
        "metadata": {"timestamp": datetime.fromtimestamp(seconds, UTC).isoformat(), "component": root},
        "components": [_component(name) for name in sorted(required) if name != distribution],
        "dependencies": [
            {"ref": _purl(name), "dependsOn": [_purl(other) for other in sorted(required[name])]}
            for name in sorted(required)
        ],
    }


def _required(distribution: str) -> dict[str, set[str]]:
    """Return what each distribution requires, by name, from one distribution on."""
    found: dict[str, set[str]] = {}
    waiting = [(distribution, frozenset[str]())]
    while waiting:
        name, extras = waiting.pop()
        names = found.setdefault(name, set())
        for line in installed.requires(name) or []:
            required, its_extras = _applying(line, extras)
            if required and required not in names:
                names.add(required)
                waiting.append((required, its_extras))
    return found


def _applying(line: str, extras: frozenset[str]) -> tuple[str, frozenset[str]]:
    """Return the name that a requirement names and its extras, and no name if it is for extras or not installed."""
    requirement, _, marker = line.partition(";")
    wanted = re.findall(r"extra\s*==\s*['\"]([^'\"]+)", marker)
    match = re.match(r"\s*([\w.-]+)\s*(?:\[([^]]*)\])?", requirement)
    if match is None or (wanted and not extras.intersection(wanted)):
        return "", frozenset()
    name = _normal(match[1])
    try:
        installed.distribution(name)
    except installed.PackageNotFoundError:  # a marker excludes it here
        return "", frozenset()
    return name, frozenset(part.strip() for part in (match[2] or "").split(",") if part.strip())


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _purl(name: str) -> str:
    return f"pkg:pypi/{name}@{installed.version(name)}"


def _component(name: str) -> dict[str, Any]:
    metadata = installed.metadata(name)
    # Not by index: once a package has imported the backport `importlib_metadata`, a field that is missing raises.
    (expression,) = metadata.get_all("License-Expression", [""])[:1]
    (license_text,) = metadata.get_all("License", [""])[:1]
    component = {"type": "library", "bom-ref": _purl(name), "name": name, "version": installed.version(name)}
    component["purl"] = _purl(name)
    if expression:
        return {**component, "licenses": [{"expression": expression}]}
    classifiers = (line.rpartition(" :: ") for line in metadata.get_all("Classifier", []))
    classified = [name for kind, _, name in classifiers if kind.startswith("License")]
    named = [license_text.strip().partition("\n")[0], *classified]
    return {**component, "licenses": [{"license": {"name": name}} for name in named if name][:1]}


def _vendored(wheel: Path, vendored: Vendored) -> dict[str, Any]:
    with zipfile.ZipFile(wheel) as archive:
        content = archive.read(vendored.file)
    match = vendored.version.search(content.decode())
    if match is None:
        raise SystemExit(f"{vendored.file} does not name its version")
    purl = vendored.purl.format(match[1])
    return {
        "type": "library",
        "bom-ref": purl,
        "name": vendored.name,
        "version": match[1],
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}],
        "licenses": [{"expression": vendored.license}],
    }


if __name__ == "__main__":
    json.dump(bill_of_materials(Path(sys.argv[1])), sys.stdout, indent=2, sort_keys=True)
    sys.stdout.write("\n")
