"""How dense code and how private its English is: figures of each module and folder, and the ratchet that holds them.

`python -m tests.architecture.density` prints the figures of the rooms; with `--write` it lowers the ratchet in
`density.json` to what stands. A figure that rose is not written: mend the code instead.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source import Module, modules

__all__ = ["LIMITS", "RATCHET", "counts", "density", "numbers", "refused_words", "totals", "words_of_page"]

CHECKOUT = Path(__file__).parents[2]
RATCHET = Path(__file__).with_name("density.json")

LIMITS = {
    "conditional expressions": 18.0,
    "nested conditional expressions": 0.06,
    "tuple assignments": 1.5,
    "boolean operators": 42.0,
    "comprehensions": 18.0,
    "uses of Any": 35.0,
}
"""The most of each that 1,000 lines of code may have; ENGLISH.md has where they come from."""

REFUSED = re.compile(
    r"(?<!there )\bis no (?!longer\b|more\b)\w|(?<!there )\b(?:is|are|was|were) (?-i:none)\b|"
    r"\bwhoever\b|\bheard\b|\bears\b|"
    r"\b(?:told|tells?)\b(?! apart)|"
    r"\bwhispers?\b|\bfor people\b|\bfor good\b|\ball the same\b|\bas it stands\b|\bbut for\b|\bgoes on\b|"
    r"\bof its own\b|\b_?(?:most|longest|least)_(?!common\b)[a-z]|_told\b|_tell\b|\b(?:too|as well)[.;]",
    re.IGNORECASE,
)
"""Words that the standard of this project's English refuses; `None` is a value."""

QUOTED = frozenset({"toolweave.definitions._patterns"})
"""Modules whose texts quote others: the words of hidden instructions."""


# From Python 3.12 on the texts of an f-string are tokens of their own.
_WORDS = frozenset(
    {
        tokenize.NAME,
        tokenize.COMMENT,
        tokenize.STRING,
        getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING),
    }
)


def counts(tree: ast.AST) -> Counter[str]:
    """Return how often a module does what LIMITS bounds, and its calls of `cast`."""
    found: Counter[str] = Counter()
    for node in ast.walk(tree):
        match node:
            case ast.IfExp():
                found["conditional expressions"] += 1
                if any(isinstance(inner, ast.IfExp) for inner in ast.walk(node) if inner is not node):
                    found["nested conditional expressions"] += 1
            case ast.BoolOp(values=values):
                found["boolean operators"] += len(values) - 1
            case ast.Assign(targets=[ast.Tuple()], value=ast.Tuple()):
                found["tuple assignments"] += 1
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                found["comprehensions"] += 1
            case ast.Name(id="Any"):
                found["uses of Any"] += 1
            case ast.Call(func=ast.Name(id="cast")):
                found["casts"] += 1
            case _:
                pass
    return found


def docstring_lines(tree: ast.AST) -> set[int]:
    """Return the numbers of the lines of docstrings of modules, classes and functions."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            lines.update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return lines


def code_and_comments(module: Module) -> tuple[int, int]:
    """Return the lines of code of a module and its lines that are a comment alone."""
    documented = docstring_lines(module.tree)
    code = 0
    comments = 0
    for number, line in enumerate(module.text.splitlines(), 1):
        text = line.strip()
        if text.startswith("#"):
            comments += 1
        elif text and number not in documented:
            code += 1
    return code, comments


def density(count: int, code: int) -> float:
    """Return a count per 1,000 lines of code."""
    return 1000 * count / max(code, 1)


def words_of_source(text: str) -> int:
    """Count refused words in the names, comments and texts of a program; other code is not words."""
    found = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in _WORDS:
            found += len(REFUSED.findall(token.string))
    return found


def words_of_page(text: str) -> int:
    """Count refused words of a page outside its code blocks."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return len(REFUSED.findall(prose.replace("is None", "")))


def refused_words() -> dict[str, int]:
    """Return the refused words of each room, of the tests, and of the pages (decisions apart)."""
    found: dict[str, int] = defaultdict(int)
    for module in modules():
        if module.name not in QUOTED:
            found[f"src: {module.room or 'toolweave'}"] += words_of_source(module.text)
    for path in sorted((CHECKOUT / "tests").rglob("*.py")):
        found["tests"] += words_of_source(path.read_text(encoding="utf-8"))
    pages = [*sorted((CHECKOUT / "docs").rglob("*.md")), *sorted(CHECKOUT.glob("*.md"))]
    for page in pages:
        kind = "decisions" if "decisions" in page.parts else "pages"
        found[kind] += words_of_page(page.read_text(encoding="utf-8"))
    return dict(sorted(found.items()))


def over_the_limits() -> Iterator[tuple[str, str, int]]:
    """Yield each module and kind of which it has more than the limit, with the count."""
    for module in modules():
        code, _ = code_and_comments(module)
        found = counts(module.tree)
        for kind, limit in LIMITS.items():
            if found[kind] > 1 and density(found[kind], code) > limit:
                yield module.name, kind, found[kind]


def numbers() -> Counter[str]:
    """Return how often the package does what LIMITS bounds, and its calls of `cast`."""
    found: Counter[str] = Counter()
    for module in modules():
        found += counts(module.tree)
    return found


def totals() -> dict[str, float]:
    """Return the figures of the package: each kind per 1,000 lines of code, and comments in percent of lines."""
    found = numbers()
    code = 0
    comments = 0
    lines = 0
    for module in modules():
        code_here, comments_here = code_and_comments(module)
        code += code_here
        comments += comments_here
        lines += len(module.text.splitlines())
    figures = {kind: density(found[kind], code) for kind in LIMITS}
    return figures | {"comments": 100 * comments / lines}


def written() -> str:
    """Return the ratchet as it would be written now."""
    ratchet: dict[str, dict[str, int]] = defaultdict(dict)
    for name, kind, count in over_the_limits():
        ratchet[name][kind] = count
    figures = {kind: round(figure, 2) for kind, figure in totals().items()}
    return (
        json.dumps(
            {"totals": figures, "numbers": numbers(), "words": refused_words(), "modules": ratchet},
            indent=1,
            sort_keys=True,
        )
        + "\n"
    )


def main() -> None:
    """Print the figures, or write the ratchet."""
    if "--write" in sys.argv:
        RATCHET.write_text(written(), encoding="utf-8")
    else:
        print(json.dumps({"totals": totals(), "words": refused_words()}, indent=1))


if __name__ == "__main__":
    main()
