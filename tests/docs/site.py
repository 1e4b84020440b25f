"""The documentation as a site: `scripts/docs --site` runs it.

The site is built from a folder of its own, because pages of the root (README.md, SECURITY.md) are pages of it too, and
a link between two pages has to be right for those who read them in the repository as well. That folder gets the pages
of docs/ and of the root with their links rewritten, and a page for each public module, whose text is its docstrings.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

import toolweave
from tests.docs.pages import CHECKOUT
from tests.programs import ran
from toolweave.version import VERSION

__all__ = ["DECISIONS", "build", "configuration", "make", "modules", "navigation", "pages_of_the_site", "stage"]

FOLDER = CHECKOUT / "build"
ROOT_PAGES = {
    "README.md": "first-steps.md",
    "SECURITY.md": "security-policy.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Pages of the root, and their names on the site; docs/security.md is another page than SECURITY.md."""
LINK = re.compile(r"(?<=\]\()(?!https?://|mailto:|#)(?P<path>[^)#\s]+)")
DECISIONS = "decisions/index.md"
"""The page that lists the decisions; they are not in the navigation."""
WITHOUT_DOCSTRINGS = "    options: {show_if_no_docstring: true}\n"
"""Constants whose names and values are those of the specification have none."""


class _Loader(yaml.SafeLoader):
    """YAML with the tag that mkdocs has for variables of the environment: `!ENV [NAME, DEFAULT]`."""


def _variable(loader: yaml.SafeLoader, node: yaml.Node) -> Any:  # any YAML value
    assert isinstance(node, yaml.SequenceNode)
    name, default = loader.construct_sequence(node)
    return os.environ.get(name) or default


_Loader.add_constructor("!ENV", _variable)


def configuration() -> dict[str, Any]:
    """Return what mkdocs.yml says."""
    read: dict[str, Any] = yaml.load((CHECKOUT / "mkdocs.yml").read_text(encoding="utf-8"), Loader=_Loader)
    if not read["repo_url"]:  # without it, "Edit this page" would lead nowhere
        del read["repo_url"], read["edit_uri"]
    return read


def navigation(entries: Any) -> Iterator[str]:  # any YAML value
    """Yield the pages that a navigation names."""
    for entry in entries:
        for target in entry.values():
            if isinstance(target, str):
                yield target
            else:
                yield from navigation(target)


def modules() -> dict[str, str]:
    """Return the public modules by the place of their page: the root and each room that exports names."""
    found = {"reference/toolweave.md": "toolweave"}
    for module in pkgutil.iter_modules(toolweave.__path__):
        path = f"toolweave.{module.name}"
        if not module.name.startswith("_") and module.name != "version" and names_of(path):
            found[f"reference/{module.name}.md"] = path
    return found


def names_of(path: str) -> list[str]:
    """Return the public names of a module."""
    return sorted(getattr(importlib.import_module(path), "__all__", ()), key=str.lower)


def pages_of_the_site() -> dict[str, Path]:
    """Return the files that become pages, by their place on the site."""
    docs = CHECKOUT / "docs"
    pages = {page.relative_to(docs).as_posix(): page for page in sorted(docs.rglob("*.md"))}
    return pages | {place: CHECKOUT / name for name, place in ROOT_PAGES.items()}


def stage(folder: Path, *, reference: bool = True) -> None:
    """Put everything that the site is made of into a folder, with or without the reference."""
    pages = pages_of_the_site()
    places = {source.resolve(): place for place, source in pages.items()}
    texts = {place: _relinked(source, place, places) for place, source in pages.items()}
    texts[DECISIONS] = "# Decisions\n\n" + "".join(_decisions(texts))
    if reference:
        texts |= {place: _reference(path) for place, path in modules().items()}
    for place, text in texts.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text, encoding="utf-8")
    for name in ("images", "stylesheets"):
        shutil.copytree(CHECKOUT / "docs" / name, folder / name)


def _relinked(source: Path, place: str, places: Mapping[Path, str]) -> str:
    """Return a page whose links lead to where the pages and pictures of the site are."""
    docs = (CHECKOUT / "docs").resolve()

    def lead(match: re.Match[str]) -> str:
        target = (source.parent / match["path"]).resolve()
        to = places.get(target) or (target.relative_to(docs).as_posix() if target.is_relative_to(docs) else None)
        return match["path"] if to is None else os.path.relpath(to, Path(place).parent)

    return LINK.sub(lead, source.read_text(encoding="utf-8"))


def _decisions(texts: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each decision, by its title."""
    for place, text in texts.items():
        if place.startswith("decisions/"):
            yield f"- [{text.partition(chr(10))[0].removeprefix('# ')}]({Path(place).name})\n"


def _reference(path: str) -> str:
    """Return the page of a public module: its docstrings, or the table of its names where all are those of rooms."""
    module = importlib.import_module(path)
    title = f"# {path}\n\n"
    if path == "toolweave":
        return f"{title}{module.__doc__}\n\n| name | |\n|---|---|\n{''.join(_rows_of_the_root())}"
    inner = [f"{path}.{name}" for name in names_of(path) if isinstance(getattr(module, name), ModuleType)]
    if inner:
        parts = [f"## {name}\n\n::: {name}\n{WITHOUT_DOCSTRINGS}\n" for name in inner]
        return f"{title}{module.__doc__}\n\n{''.join(parts)}"
    return f"{title}::: {path}\n"


def _rows_of_the_root() -> Iterator[str]:
    """Yield a row for each name of the root, with a link to the page of the room that it is from."""
    rooms = [(Path(place).name, path) for place, path in modules().items() if path != "toolweave"]
    for name in names_of("toolweave"):
        if name != "__version__":
            page, path = next((page, path) for page, path in rooms if name in names_of(path))
            first = (inspect.getdoc(getattr(toolweave, name)) or "").partition("\n")[0].replace("|", "\\|")
            yield f"| [`{name}`]({page}#{path}.{name}) | {first} |\n"


def build(folder: Path, config: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
    """Build FOLDER/docs into FOLDER/site; a broken link, anchor or name is an error."""
    written = folder / "mkdocs.yml"
    written.write_text(json.dumps({**config, "docs_dir": "docs", "site_dir": "site"}), encoding="utf-8")
    return ran(
        [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "--config-file", str(written)],
        cwd=folder,
        seconds=240,
    )


def _unlisted(site: Path) -> list[str]:
    """Return the public names that the inventory of a built site does not have."""
    compressed = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    listed = {line.split(" ")[0] for line in zlib.decompress(compressed).decode().splitlines()}
    names = {f"{path}.{name}" for path in modules().values() if path != "toolweave" for name in names_of(path)}
    return sorted(names - listed - {f"toolweave.protocol.{name}" for name in names_of("toolweave.protocol")})


def _mend_edit_links(site: Path) -> None:
    """Let "Edit this page" lead to where a page of the root is, and take it out of pages made of docstrings."""
    moved = {place: name for name, place in ROOT_PAGES.items()}
    for place in [*moved, *modules()]:
        page = site / place.removesuffix(".md") / "index.html"
        text = page.read_text(encoding="utf-8")
        wrong = f"/docs/{place}"
        if place in moved:
            text = text.replace(wrong, f"/{moved[place]}")
        else:
            text = re.sub(rf'<a href="[^"]*{re.escape(wrong)}"[^>]*rel="edit">.*?</a>', "", text, flags=re.DOTALL)
        page.write_text(text, encoding="utf-8")


def _guides_first(site: Path) -> None:
    """Keep the reference in the search as names without their texts, and leave decisions to the repository."""
    index = site / "search.json"
    found: dict[str, Any] = json.loads(index.read_text(encoding="utf-8"))
    items: list[dict[str, Any]] = [one for one in found["items"] if not one["location"].startswith("decisions/0")]
    for item in items:
        page, _, name = str(item["location"]).partition("#")
        if page.startswith("reference/"):
            item |= {"title": name or item["title"], "text": "", "path": ["Reference"]}
    found["items"] = items
    index.write_text(json.dumps(found), encoding="utf-8")


def make(folder: Path) -> subprocess.CompletedProcess[str]:
    """Make the whole site in FOLDER/site, with the reference; what was there is deleted."""
    shutil.rmtree(folder, ignore_errors=True)
    stage(folder / "docs")
    config: dict[str, Any] = {**configuration(), "copyright": f"Toolweave {VERSION}"}
    for plugin in config["plugins"]:
        if "mkdocstrings" in plugin:  # paths are relative to the config, which is another one here
            plugin["mkdocstrings"]["handlers"]["python"]["paths"] = [str(CHECKOUT / "src")]
    done = build(folder, config)
    if done.returncode == 0:
        _mend_edit_links(folder / "site")
        _guides_first(folder / "site")
    return done


def _main() -> int:
    done = make(FOLDER)
    sys.stderr.write(done.stdout + done.stderr)
    if done.returncode == 0 and (missing := _unlisted(FOLDER / "site")):
        sys.stderr.write(f"not in the reference, for want of a docstring: {', '.join(missing)}\n")
        return 1
    return done.returncode


if __name__ == "__main__":
    sys.exit(_main())
