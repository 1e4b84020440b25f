"""What `scripts/release` writes beside the wheel, and that the README's links work on an index page."""

from __future__ import annotations

import hashlib
import importlib.metadata
import runpy
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.release.provenance import statement
from tests.release.readme_links import CHECKOUT, broken_links
from tests.release.sbom import VENDORED, bill_of_materials

REPOSITORY = "https://example.com/owner/toolweave"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A wheel with the files of other projects that the package carries."""
    path = tmp_path / "toolweave-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for vendored in VENDORED:
            archive.write(CHECKOUT / "src" / vendored.file, vendored.file)
    return path


def test_the_readme_has_no_link_that_leads_nowhere_on_an_index_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPO_URL", REPOSITORY)
    hook = runpy.run_path(str(CHECKOUT / "hatch_build.py"))["RepositoryMetadata"](str(CHECKOUT), {})
    metadata: dict[str, Any] = {}

    hook.update(metadata)

    assert broken_links(metadata["readme"]["text"], REPOSITORY) == []
    assert metadata["urls"]["Source"] == REPOSITORY


def test_a_link_to_no_file_no_heading_or_a_relative_place_is_broken() -> None:
    text = f"# Here\n[a](docs/index.md) [b]({REPOSITORY}/blob/main/no.md) [c](#there) [d](#here) [e](https://pypi.org)"

    assert broken_links(text, REPOSITORY) == ["docs/index.md", f"{REPOSITORY}/blob/main/no.md", "#there"]


def test_the_bill_of_materials_names_what_the_wheel_requires_and_carries(wheel: Path) -> None:
    bill = bill_of_materials(wheel)

    assert all(component["licenses"] for component in bill["components"])
    names = {component["name"] for component in bill["components"]}
    root = bill["metadata"]["component"]
    (htmx,) = root["components"]
    assert {
        "anyio",
        "msgspec",
        "pyjwt",
        "cryptography",
        "pydantic-core",
    } <= names
    assert names.isdisjoint({"pytest", "openai", "mcp"})  # extras
    assert root["purl"] == f"pkg:pypi/toolweave@{importlib.metadata.version('toolweave')}"
    assert root["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}]
    assert htmx["licenses"] == [{"expression": "0BSD"}]
    assert htmx["purl"] == f"pkg:npm/htmx.org@{htmx['version']}"
    assert {entry["ref"] for entry in bill["dependencies"]} == {
        root["bom-ref"],
        *(component["bom-ref"] for component in bill["components"]),
    }


def test_the_same_wheel_gives_the_same_bill(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")

    assert bill_of_materials(wheel) == bill_of_materials(wheel)
    assert bill_of_materials(wheel)["metadata"]["timestamp"] == "1970-01-02T00:00:00+00:00"


def test_the_statement_of_provenance_names_each_file_by_its_digest_and_the_commit(wheel: Path) -> None:
    written = statement([wheel], commit="a" * 40, repository=REPOSITORY)

    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert written["subject"] == [{"name": wheel.name, "digest": {"sha256": digest}}]
    (source,) = written["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert source == {"digest": {"gitCommit": "a" * 40}, "uri": f"git+{REPOSITORY}@{'a' * 40}"}
