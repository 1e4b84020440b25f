"""Parts of pages that are made of the code: between `<!-- generated: NAME -->` and `<!-- /generated -->`."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any, cast

from griffe import Docstring

from experiments.features.report import experiments, read, table
from experiments.gateways.report import table as gateway_table
from tests.docs.editors import client_sections, client_table
from tests.docs.messages import message_tables
from tests.docs.notebooks import NOTEBOOKS, shown
from tests.docs.repairs import REPAIRS, argument_examples, repair_rows, result_examples
from tests.docs.screens import screens
from tests.docs.side_by_side import FOLDER, TASKS, code_lines
from toolweave import errors
from toolweave.agent import Limits
from toolweave.config import ServerConfig, Timeouts
from toolweave.errors import ErrorKind
from toolweave.gateway._config.reload import AT_START
from toolweave.providers._model_apis import MODEL_APIS, UNKNOWN
from toolweave.providers._profiles import ANCHORED, PROFILES, REGULAR, SchemaProfile, SchemaRules
from toolweave.providers._strict import MAX_CHARACTERS, MAX_DEPTH, MAX_ENUM, MAX_PROPERTIES
from toolweave.providers._tool_schemas import GPT_OSS
from toolweave.schema.normalize import KEYWORDS
from toolweave.serve import HttpLimits

__all__ = ["generated"]

PART = re.compile(r"(?<=<!-- generated: )(?P<name>[a-z ]+) -->\n.*?(?=<!-- /generated -->)", re.DOTALL)


def generated(page: str) -> str:
    """Return a page with its generated parts made anew."""
    return PART.sub(lambda match: f"{match['name']} -->\n{''.join(PARTS[match['name']]())}", page)


def _lines() -> Iterator[str]:
    """Yield the table of the lines of each task."""
    yield "| task | theirs | ours |\n|---|---:|---:|\n"
    for task in TASKS:
        theirs, ours = (code_lines((FOLDER / f"{task}_{side}.py").read_text("utf-8")) for side in ("theirs", "ours"))
        yield f"| {task.replace('_', ' ')} | {theirs} | {ours} |\n"


def _error_tree() -> Iterator[str]:
    """Yield the tree of `toolweave.errors`, as its docstring has it."""
    tree = inspect.cleandoc(errors.__doc__ or "").split("::\n\n")[1].split("\n\n")[0]
    yield f"```text\n{textwrap.dedent(tree)}\n```\n"


def _error_kinds() -> Iterator[str]:
    """Yield the table of the kinds, each with the text below its name."""
    yield "| kind | |\n|---|---|\n"
    (kinds,) = cast("list[ast.ClassDef]", ast.parse(inspect.getsource(ErrorKind)).body)
    texts = [
        node.value.value for node in kinds.body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]
    for kind, text in zip(ErrorKind, texts[1:], strict=True):
        yield f"| `{kind}` | {text} |\n"


def _features() -> Iterator[str]:
    """Yield the table of features in docs/features.md, as it was measured."""
    yield from table(read())


def _settings(settings: type[Any], leave_out: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the table of a class of settings: each with its default and what its docstring says."""
    yield "| setting | default | |\n|---|---|---|\n"
    sections = Docstring(inspect.getdoc(settings) or "", parser="google").parse()
    texts = {
        one.name: one.description for section in sections if section.kind.value == "attributes" for one in section.value
    }
    for name, parameter in inspect.signature(settings).parameters.items():
        if name not in leave_out:
            text = " ".join(texts[name].split()).replace("|", "\\|")
            yield f"| `{name}` | {_default(parameter.default)} | {text} |\n"


def _settings_at_start() -> Iterator[str]:
    """Yield the settings of a gateway that a reload does not apply."""
    names = [f"`{name}`" for name in AT_START]
    yield f"{', '.join(names[:-1])} and {names[-1]}.\n"


def _default(value: object) -> str:
    if value is None or value in ("", ()) or "<factory>" in repr(value):
        return ""
    return (
        f"`{value:g}`" if isinstance(value, float) else f"`{str(value).lower() if isinstance(value, bool) else value}`"
    )


def _model_apis() -> Iterator[str]:
    """Yield the table of the limits of each model's API, with their sources."""
    yield "| API | profile | strict profile | tools | description | names of tools | source, read |\n"
    yield "|---|---|---|---:|---:|---|---|\n"
    for api in (*MODEL_APIS, UNKNOWN):
        strict = f"`{api.strict}`" if api.strict else "none"
        limits = f"{_number(api.limits.max_tools)} | {_number(api.limits.max_description)}"
        source = f"{api.source}; {api.date}"
        yield f"| {api.title} | `{api.schemas}` | {strict} | {limits} | `{api.names}` | {source} |\n"


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _profiles() -> Iterator[str]:
    """Yield the table of the rules of each profile."""
    yield "| profile | keywords left out or refused | formats | patterns | names of arguments | more | read of |\n"
    yield "|---|---|---|---|---|---|---|\n"
    for name, rules in PROFILES.items():
        keywords = "all but " + _codes(rules.keeps) if rules.keeps is not None else _codes(rules.leaves) or "none"
        formats = "any" if rules.formats is None else _codes(rules.formats)
        patterns = "any" if rules.pattern is None else PATTERNS[rules.pattern]
        names = "any" if rules.names is None else f"`{rules.names.pattern}`"
        more = f"{_more_rules(rules)} | {_read_of(name)}"
        yield f"| `{name}` | {keywords} | {formats} | {patterns} | {names} | {more} |\n"


def _profiles_in_short() -> Iterator[str]:
    """Yield the table of the profiles: the APIs that each is for, and the parts of a schema that it does not take."""
    yield "| profile | for | does not take | more |\n|---|---|---|---|\n"
    for name, rules in PROFILES.items():
        more = "; ".join(filter(None, (_names_and_patterns(rules), _more_rules(rules), _strict_bounds(rules))))
        yield f"| `{name}` | {_used_by(name)} | {_keywords_not_taken(rules)} | {more} |\n"


def _used_by(profile: SchemaProfile) -> str:
    """Return the APIs that a profile is for."""
    found = [api.title for api in (*MODEL_APIS, UNKNOWN) if profile == api.schemas]
    found += [f"strict tools of {api.title}" for api in (*MODEL_APIS, UNKNOWN) if profile == api.strict]
    return "; ".join(found) or f"models with `{GPT_OSS.pattern}` in their name"


def _keywords_not_taken(rules: SchemaRules) -> str:
    """Return the constraining keywords that a profile leaves out, or those that it keeps if they are fewer."""
    missing = set(rules.leaves)
    if rules.keeps is not None:
        missing |= KEYWORDS - rules.keeps
        if len(missing) > len(rules.keeps):
            return f"all but {_codes(rules.keeps)}"
    return _codes(missing) or "none"


def _names_and_patterns(rules: SchemaRules) -> str:
    found: list[str] = []
    if rules.pattern is not None and rules.takes_keyword("pattern"):
        found.append(f"patterns {PATTERNS[rules.pattern]}")
    if rules.names is not None:
        found.append(f"names of arguments as `{rules.names.pattern}`")
    return "; ".join(found)


def _strict_bounds(rules: SchemaRules) -> str:
    if not rules.closed:
        return ""
    return (
        f"at most {MAX_PROPERTIES:,} properties, {MAX_DEPTH} levels, {MAX_ENUM:,} values of enums, "
        f"{MAX_CHARACTERS:,} characters of names and values"
    )


def _read_of(profile: SchemaProfile) -> str:
    """Return the APIs whose profile it is, with the months in which their sources were read."""
    found = [f"{api.title}; {api.date}" for api in (*MODEL_APIS, UNKNOWN) if profile in (api.schemas, api.strict)]
    return ". ".join(found) or f"models with `{GPT_OSS.pattern}` in their name"


def _codes(values: Collection[str]) -> str:
    return ", ".join(f"`{value}`" for value in sorted(values))


def _more_rules(rules: SchemaRules) -> str:
    found = [text for name, text in RULES.items() if getattr(rules, name)]
    if rules.bounds is not None:
        bounds = rules.bounds
        found.append(
            f"in one request {bounds.strict_tools} strict tools, {bounds.optional_parameters} optional parameters, "
            f"{bounds.union_parameters} of several types"
        )
    return "; ".join(found)


PATTERNS: Mapping[re.Pattern[str], str] = {
    REGULAR: "without look-around and back-references",
    ANCHORED: "from `^` to `$`, without groups of a special kind",
}
RULES: Mapping[str, str] = {
    "root": "little beside the arguments at the top of a schema",
    "plain_unions": "no `allOf`, no `oneOf`, nothing beside a `$ref`",
    "single_unions": "no `properties` beside an `anyOf`",
    "inline": "no definitions",
    "plain_enums": "values of an `enum` are texts and numbers",
    "integer_bounds": "bounds of integers alone",
    "lone_lengths": "no lengths beside a pattern or a format",
    "single_items": "`minItems` of 0 and 1 alone",
    "shut": "every object closed, no recursion",
    "closed": "every object closed, and every member required",
}
FROM_CODE_ONLY = ("name", "server", "source", "sensitive", "options")
PARTS: Mapping[str, Callable[[], Iterator[str]]] = {
    "lines of tasks": _lines,
    "error tree": _error_tree,
    "error kinds": _error_kinds,
    "messages": message_tables,
    "pictures of pages": screens,
    "features": _features,
    "gateways": gateway_table,
    "model apis": _model_apis,
    "schema profiles": _profiles,
    "profiles in short": _profiles_in_short,
    "experiments": experiments,
    "settings at start": _settings_at_start,
    "server settings": partial(_settings, ServerConfig, FROM_CODE_ONLY),
    "timeouts": partial(_settings, Timeouts),
    "run limits": partial(_settings, Limits),
    "http limits": partial(_settings, HttpLimits),
    "clients": client_table,
    "sections of clients": client_sections,
    "cells of the notebook": partial(shown, NOTEBOOKS[0]),
    "results as read": result_examples,
    "arguments as sent": argument_examples,
    **{table: partial(repair_rows, table) for table in REPAIRS},
}
