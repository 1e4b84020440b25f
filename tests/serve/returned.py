"""Functions of every return type, the values that they return, and a program that serves them.

`python -m tests.serve.returned` serves over stdio, with `--port N` over HTTP.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, TypeAlias, TypedDict
from uuid import UUID

from pydantic import BaseModel, Field, RootModel

from toolweave import create_mcp_server

__all__ = ["RETURNED", "server"]


class Color(Enum):
    RED = "red"


class Point(BaseModel):
    x: int


@dataclass
class Size:
    wide: int


class Movie(TypedDict):
    title: str


class Node(BaseModel):
    name: str
    children: list[Node] = []


Numbers = RootModel[list[int]]
Tree: TypeAlias = "list[Node]"


def number() -> float:
    return 1.5


def whole() -> int:
    return 0


def text() -> str:
    return "made"


def json_text() -> str:
    return "null"


def flag() -> bool:
    return False


def nothing() -> None:
    return None


def numbers() -> list[int]:
    return [1, 2]


def empty() -> list[str]:
    return []


def pair() -> tuple[int, str]:
    return 1, "a"


def unique() -> set[int]:
    return {1}


def generated() -> Iterable[int]:
    return (n for n in (1, 2))


def points() -> list[Point]:
    return [Point(x=1)]


def maybe_none() -> int | None:
    return None


def maybe_number() -> int | None:
    return 5


def maybe_point() -> Point | None:
    return Point(x=1)


def either() -> Point | list[Point]:
    return Point(x=1)


def objects() -> Point | Size:
    return Size(wide=2)


def choice() -> Literal["a", "b"]:
    return "a"


def color() -> Color:
    return Color.RED


def day() -> date:
    return date(2026, 11, 28)


def amount() -> Decimal:
    return Decimal("1.50")


def span() -> timedelta:
    return timedelta(days=3)


def ident() -> UUID:
    return UUID(int=1)


def bounded() -> Annotated[int, Field(ge=0)]:
    return 3


def root() -> Numbers:
    return Numbers([1])


def tree() -> Tree:
    return [Node(name="a", children=[Node(name="b")])]


def model() -> Point:
    return Point(x=1)


def data_class() -> Size:
    return Size(wide=2)


def typed_dict() -> Movie:
    return {"title": "Stalker"}


def mapping() -> dict[str, int]:
    return {"a": 1}


RETURNED: dict[Any, Any] = {
    number: 1.5,
    whole: 0,
    text: "made",
    json_text: "null",
    flag: False,
    nothing: None,
    numbers: [1, 2],
    empty: [],
    pair: [1, "a"],
    unique: [1],
    generated: [1, 2],
    points: [{"x": 1}],
    maybe_none: None,
    maybe_number: 5,
    maybe_point: {"x": 1},
    either: {"x": 1},
    objects: {"wide": 2},
    choice: "a",
    color: "red",
    day: "2026-11-28",
    amount: "1.50",
    span: "P3D",
    ident: str(UUID(int=1)),
    bounded: 3,
    root: [1],
    tree: [{"name": "a", "children": [{"name": "b", "children": []}]}],
    model: {"x": 1},
    data_class: {"wide": 2},
    typed_dict: {"title": "Stalker"},
    mapping: {"a": 1},
}
"""The JSON of each function's value."""


def server() -> Any:
    """Return a server with all of them."""
    return create_mcp_server(name="returned", version="1", tools=list(RETURNED))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--port"]:
        server().run_http(port=int(sys.argv[2]))
    else:
        server().run_stdio()
