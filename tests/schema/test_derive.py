"""From signatures to schemas, and from JSON objects to arguments."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import functools
import pathlib
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, NotRequired, Optional, Required, TypedDict

import pydantic
import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from toolweave.errors import SchemaError
from toolweave.schema import Signature, Validator, derive, describe, schema_of


class Context:
    """Stands for what a caller fills in."""


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Movie(TypedDict, total=False):
    title: Required[str]
    year: int


class Shelf(TypedDict):
    movies: list[Movie]
    label: NotRequired[str | None]


class Node(BaseModel):
    """One node of a tree."""

    name: str = Field(title="The name", description="What it is called.")
    children: list[Node] = []


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str


def parameters(function: Callable[..., Any]) -> dict[str, Any]:
    return derive(function, injected=Context).input_schema["properties"]


def bound(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    kwargs, problems = derive(function, injected=Context).bind(arguments)
    assert not problems
    return kwargs


@pytest.mark.requirement("R89", "R90")
def test_a_plain_signature_becomes_a_closed_object() -> None:
    def search(text: str, limit: int = 10) -> str:
        return text * limit

    assert derive(search).input_schema == {
        "type": "object",
        "title": "search",
        "properties": {"text": {"type": "string"}, "limit": {"type": "integer", "default": 10}},
        "required": ["text"],
        "additionalProperties": False,
    }


@pytest.mark.requirement("C11")
def test_a_function_without_parameters_takes_an_empty_closed_object() -> None:
    def now() -> str:
        return ""

    schema = derive(now).input_schema

    assert schema["properties"] == {}
    assert schema["additionalProperties"] is False
    assert "required" not in schema


@pytest.mark.requirement("R43", "R44", "D8")
def test_every_usual_annotation_has_a_schema() -> None:
    def everything(
        text: str,
        number: float,
        whole: int,
        yes: bool,
        items: list[int],
        table: dict[str, float],
        pair: tuple[int, str],
        color: Color,
        mode: Literal["r", "w"],
        either: int | str,
        maybe: Optional[int],  # noqa: UP045  # the old spelling is a case
        when: dt.datetime,
        data: bytes,
        where: pathlib.Path,
        ident: uuid.UUID,
        amount: decimal.Decimal,
        anything: Any,
    ) -> None: ...

    del everything.__annotations__["anything"]

    found = parameters(everything)

    assert found["text"] == {"type": "string"}
    assert found["number"] == {"type": "number"}
    assert found["whole"] == {"type": "integer"}
    assert found["yes"] == {"type": "boolean"}
    assert found["items"] == {"type": "array", "items": {"type": "integer"}}
    assert found["table"] == {"type": "object", "additionalProperties": {"type": "number"}}
    assert found["pair"]["prefixItems"] == [{"type": "integer"}, {"type": "string"}]
    assert found["mode"] == {"type": "string", "enum": ["r", "w"]}
    assert found["either"] == {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    assert found["maybe"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert found["when"] == {"type": "string", "format": "date-time"}
    assert found["data"]["type"] == "string"
    assert found["where"]["type"] == "string"
    assert found["ident"] == {"type": "string", "format": "uuid"}
    assert found["anything"] == {}
    assert derive(everything).input_schema["$defs"]["Color"]["enum"] == ["red", "blue"]


@pytest.mark.requirement("R90", "D8")
def test_models_dataclasses_and_typed_dicts_are_closed_at_every_level() -> None:
    def draw(point: Point, node: Node, shelf: Shelf, free: Open) -> None: ...

    definitions = derive(draw).input_schema["$defs"]

    assert definitions["Point"] == {
        "type": "object",
        "title": "Point",
        "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
        "required": ["x"],
        "additionalProperties": False,
    }
    assert definitions["Node"]["additionalProperties"] is False
    assert definitions["Shelf"]["required"] == ["movies"]
    assert definitions["Movie"]["required"] == ["title"]
    assert definitions["Movie"]["additionalProperties"] is False
    assert definitions["Open"]["additionalProperties"] is True


def test_a_model_that_is_no_object_keeps_its_own_form() -> None:
    class Numbers(pydantic.RootModel[list[int]]):
        pass

    def f(numbers: Numbers) -> None: ...

    assert derive(f).input_schema["$defs"]["Numbers"] == {
        "type": "array",
        "items": {"type": "integer"},
        "title": "Numbers",
    }
    assert bound(f, {"numbers": [1]})["numbers"].root == [1]


def test_only_titles_that_somebody_gave_are_kept() -> None:
    def draw(node: Node, size: Annotated[int, Field(title="Size in mm")] = 1) -> None: ...

    schema = derive(draw).input_schema

    assert schema["$defs"]["Node"]["properties"]["name"]["title"] == "The name"
    assert schema["properties"]["size"]["title"] == "Size in mm"
    assert "title" not in schema["$defs"]["Node"]["properties"]["children"]


def test_descriptions_come_from_annotations_before_the_docstring() -> None:
    def search(
        a: Annotated[str, "bare text"],
        b: Annotated[str, Field(description="field text")],
        c: Annotated[int, Field(ge=1), "text after a bound"],
        d: str,
        e: int = Field(3, description="text of a default", le=5),
        f: int = Field(default_factory=lambda: 7),
    ) -> None:
        """Search.

        Args:
            a: Not this.
            b: Not this.
            d: From the docstring.
            e: Not this.
        """

    signature = derive(search)
    found = signature.input_schema["properties"]

    assert found["a"]["description"] == "bare text"
    assert found["b"]["description"] == "field text"
    assert found["c"] == {"type": "integer", "minimum": 1, "description": "text after a bound"}
    assert found["d"]["description"] == "From the docstring."
    assert found["e"] == {"type": "integer", "maximum": 5, "default": 3, "description": "text of a default"}
    assert signature.input_schema["required"] == ["a", "b", "c", "d"]
    assert signature.description == "Search."
    assert bound(search, {"a": "", "b": "", "c": 1, "d": ""}) == {"a": "", "b": "", "c": 1, "d": "", "e": 3, "f": 7}


def test_a_default_that_has_no_json_form_is_left_out_of_the_schema_and_still_used() -> None:
    sentinel = object()

    def f(a: Any = sentinel, b: Color = Color.RED) -> None: ...

    found = parameters(f)

    assert "default" not in found["a"]
    assert found["b"]["default"] == "red"
    assert bound(f, {}) == {"a": sentinel, "b": Color.RED}


@pytest.mark.requirement("R95")
def test_a_parameter_that_the_caller_fills_in_is_not_in_the_schema() -> None:
    def f(
        text: str,
        ctx: Context,
        maybe: Optional[Context] = None,  # noqa: UP045  # the old spelling is a case
        more: Annotated[Context | None, "x"] = None,
    ) -> None: ...

    signature = derive(f, injected=Context)

    assert signature.injected == ("ctx", "maybe", "more")
    assert list(signature.input_schema["properties"]) == ["text"]


def test_an_annotation_that_names_the_injected_type_without_importing_it_is_recognized() -> None:
    def f(text: str, ctx: Any, other: Any = None) -> None: ...

    f.__annotations__ |= {"ctx": "elsewhere.Context", "other": "Optional['Context']"}

    assert derive(f, injected=Context).injected == ("ctx", "other")


def test_types_that_are_local_to_the_caller_are_found() -> None:
    class Local(BaseModel):
        n: int

    def f(local: Local) -> Local:
        return local

    signature = derive(f)

    assert signature.input_schema["$defs"]["Local"]["properties"] == {"n": {"type": "integer"}}
    assert signature.output_schema is not None


@pytest.mark.parametrize(
    "make, expected",
    [
        (lambda: _takes_stars, r"'_takes_stars' takes \*args"),
        (lambda: _takes_more_stars, r"'_takes_more_stars' takes \*\*kwargs"),
        (lambda: _positional, "'_positional'.*'a' is positional-only"),
        (lambda: _unknown, "'_unknown'.*'Unknown' of parameter 'a'"),
        (lambda: _no_json, "'_no_json'.*'b'"),
        (lambda: _callback, "'_callback'.*'b'"),
        (lambda: _bad_bound, "'_bad_bound'"),
        (lambda: _generator, "'_generator' is a generator"),
        (lambda: _async_generator, "'_async_generator' is a generator"),
        (lambda: dict.fromkeys, "fromkeys"),
        (lambda: 3, "'int' has no signature"),
    ],
)
def test_a_signature_that_has_no_place_in_a_json_object_is_refused_by_name(
    make: Callable[[], Any], expected: str
) -> None:
    with pytest.raises(SchemaError, match=expected):
        derive(make())


@pytest.mark.parametrize(
    ("make", "place", "reason"),
    [
        (lambda: _looks_ahead, "parameter 'code'", "look-around"),
        (lambda: _looks_ahead_by_default, "parameter 'code'", "look-around"),
        (lambda: _looks_behind_within, "parameter 'codes'", "look-around"),
        (lambda: _open_group, "parameter 'code'", "unclosed group"),
        (lambda: _negative_length, "parameter 'code'", "negative int"),
        (lambda: _returns_look_ahead, "the return type", "look-around"),
    ],
)
def test_a_tool_whose_constraint_cannot_be_checked_is_refused_by_the_names_of_tool_and_parameter(
    make: Callable[[], Callable[..., Any]], place: str, reason: str
) -> None:
    function = make()

    with pytest.raises(SchemaError) as caught:
        derive(function)

    message = str(caught.value)
    assert message.startswith(f"function {function.__name__!r}: {place} has a constraint that pydantic cannot check: ")
    assert reason in message
    assert "change the pattern or the bound, or check the value in the function" in message
    assert "\n" not in message


def _looks_ahead(count: int, code: Annotated[str, Field(pattern="(?=a)b")]) -> None: ...
def _looks_ahead_by_default(count: int = 1, code: str = Field("a", pattern="(?=a)b")) -> None: ...
def _looks_behind_within(codes: list[Annotated[str, Field(pattern="(?<!a)b")]] | None = None) -> None: ...
def _open_group(code: Annotated[str, Field(pattern="(a")]) -> None: ...
def _negative_length(code: Annotated[str, Field(max_length=-1)]) -> None: ...
def _returns_look_ahead() -> Annotated[str, Field(pattern="(?=a)b")]:
    return "b"


def _takes_stars(*args: int) -> None: ...
def _takes_more_stars(**kwargs: int) -> None: ...
def _positional(a: int, /) -> None: ...
def _unknown(a: Any) -> None: ...


_unknown.__annotations__["a"] = "Unknown"


def _no_json(a: int, b: Context) -> None: ...
def _callback(a: int, b: Callable[[int], int]) -> None: ...
def _bad_bound(a: int = Field(3, discriminator="kind")) -> None: ...
def _generator() -> Iterator[int]:
    yield 1


async def _async_generator() -> AsyncIterator[int]:
    yield 1


def wrapping(function: Any) -> Any:
    """Return a function that passes everything on, as decorators make."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


class Store:
    def find(self, query: str, limit: int) -> str:
        """Find."""
        return f"{query}{limit}"


def add_all(x: int, y: int, z: int) -> int:
    """Add."""
    return x + y + z


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (functools.update_wrapper(functools.partial(add_all, z=10), add_all), ["x", "y"]),
        (functools.update_wrapper(functools.partial(add_all, 10), add_all), ["y", "z"]),
        (functools.update_wrapper(functools.partial(functools.partial(add_all, z=1), y=2), add_all), ["x"]),
        (
            functools.update_wrapper(
                functools.partial(functools.update_wrapper(functools.partial(add_all, 1), add_all), 2), add_all
            ),
            ["z"],
        ),
        (wrapping(functools.update_wrapper(functools.partial(add_all, 1), add_all)), ["y", "z"]),
        (functools.update_wrapper(functools.partial(wrapping(add_all), 1), add_all), ["y", "z"]),
        (functools.partial(wrapping(add_all), 1), ["y", "z"]),
        (functools.update_wrapper(functools.partial(Store().find, limit=3), Store.find), ["query"]),
    ],
)
def test_a_partial_does_not_ask_again_for_what_it_binds(function: Any, wanted: list[str]) -> None:
    derived = derive(function)

    assert derived.input_schema["required"] == wanted
    assert (derived.name, derived.description) in [("add_all", "Add."), ("find", "Find.")]
    assert all("type" in one for one in derived.input_schema["properties"].values())


def test_a_partial_has_the_name_and_the_docstring_that_it_was_given() -> None:
    partial = functools.partial(add_all, z=1)
    partial.__name__ = "add_one"  # pyright: ignore[reportAttributeAccessIssue]  # as update_wrapper does
    partial.__doc__ = "Add one."

    assert (derive(partial).name, derive(partial).description) == ("add_one", "Add one.")


def test_methods_partials_and_callable_objects_have_signatures() -> None:
    class Adder:
        """Adds."""

        def __call__(self, a: int, b: int = 1) -> int:
            return a + b

        def method(self, c: int) -> int:
            """Also adds."""
            return c

    def add(a: int, b: int, c: int) -> int:
        return a + b + c

    assert list(parameters(Adder())) == ["a", "b"]
    assert derive(Adder()).name == "Adder"
    assert derive(Adder()).description == "Adds."
    assert list(parameters(Adder().method)) == ["c"]
    assert derive(Adder().method).description == "Also adds."
    partial = functools.partial(functools.partial(add, 1), c=3)
    assert list(parameters(partial)) == ["b", "c"]
    assert derive(partial).input_schema["required"] == ["b"]
    assert derive(partial).name == "add"


def test_a_class_is_a_callable_like_any_other() -> None:
    class Greeter:
        """Greets."""

        def __init__(self, name: str) -> None:
            self.name = name

    assert list(parameters(Greeter)) == ["name"]
    assert derive(Greeter).description == "Greets."


def test_a_wrapped_function_keeps_its_own_signature() -> None:
    def inner(a: int) -> None:
        """Inner."""

    @functools.wraps(inner)
    def outer(*args: Any, **kwargs: Any) -> None:
        inner(*args, **kwargs)

    assert list(parameters(outer)) == ["a"]


@pytest.mark.requirement("R95")
def test_arguments_arrive_as_the_annotated_types() -> None:
    def f(point: Point, node: Node, when: dt.date, color: Color, shelf: Shelf, tags: set[str]) -> None: ...

    kwargs = bound(
        f,
        {
            "point": {"x": 1},
            "node": {"name": "a", "children": [{"name": "b"}]},
            "when": "2026-07-28",
            "color": "blue",
            "shelf": {"movies": [{"title": "M"}]},
            "tags": ["a", "b"],
        },
    )

    assert kwargs["point"] == Point(1, 0)
    assert kwargs["node"].children[0] == Node(name="b")
    assert kwargs["when"] == dt.date(2026, 7, 28)
    assert kwargs["color"] is Color.BLUE
    assert kwargs["shelf"] == {"movies": [{"title": "M"}]}
    assert kwargs["tags"] == {"a", "b"}


@pytest.mark.requirement("R94", "R95")
def test_arguments_that_do_not_fit_are_told_of_by_the_schema_and_by_the_types() -> None:
    def even(n: int) -> int:
        if n % 2:
            raise ValueError("must be even")
        return n

    def f(n: Annotated[int, AfterValidator(even)], when: dt.date | None = None) -> None: ...

    signature = derive(f)

    assert describe(signature.bind({"n": "2", "x": 1})[1]) == (
        '- "n": expected integer, got string "2"\n- "x" is not a known property (allowed: n, when)'
    )
    assert "must be even" in describe(signature.bind({"n": 3})[1])
    assert '"when' in describe(signature.bind({"n": 2, "when": "tomorrow"})[1])
    assert describe(signature.bind(["n"])[1]) == "expected object, got array"  # type: ignore[arg-type]


def test_an_aliased_parameter_is_called_by_its_alias() -> None:
    def f(from_: Annotated[str, Field(alias="from")]) -> None: ...

    assert list(parameters(f)) == ["from"]
    assert bound(f, {"from": "here"}) == {"from_": "here"}


def test_a_value_with_no_json_form_inside_arguments_is_a_problem() -> None:
    def f(a: Any) -> None: ...

    assert derive(f).bind({"a": {1}})[1]


Returns = tuple[Any, bool]


@pytest.mark.requirement("C18")
@pytest.mark.parametrize(
    "returns, has_schema",
    [
        (Point, True),
        (Node, True),
        (Shelf, True),
        (dict[str, int], True),
        (Annotated[Point, "text"], True),
        (str, True),
        (int, True),
        (list[Point], True),
        (Point | None, True),
        (None, True),
        (Any, False),
        (object, False),
        (list, False),
        (list[Any], False),
        (tuple[object, ...], False),
        (list[Context], False),
        (Context | None, False),
        (Annotated[Context | str, "text"], False),
        (dict[str, Any], True),
        (Context, False),
        (Callable[[], int], False),
    ],
    ids=repr,
)
def test_a_return_type_that_says_something_and_is_no_content_has_an_output_schema(
    returns: Any, has_schema: bool
) -> None:
    def f() -> Any: ...

    f.__annotations__["return"] = returns

    assert (derive(f, opaque=(Context,)).output_schema is not None) == has_schema


def test_a_return_annotation_that_cannot_be_evaluated_is_no_output_schema() -> None:
    def f() -> Any: ...

    f.__annotations__["return"] = "Unknown"

    assert derive(f).output_schema is None


def test_what_is_returned_is_dumped_as_its_output_schema_says() -> None:
    class Named(BaseModel):
        kind: str = Field(serialization_alias="type")

    def f() -> Named:
        return Named(kind="x")

    def untyped() -> Any:
        return 1

    signature = derive(f)

    assert signature.dump(f()) == {"type": "x"}
    assert signature.output_schema is not None
    assert Validator(signature.output_schema).is_valid(signature.dump(f()))
    assert derive(untyped).dump(1) == 1


def test_the_schema_of_a_recursive_type_has_its_object_at_the_root() -> None:
    schema = schema_of(Node)

    assert schema["type"] == "object"
    assert schema["title"] == "Node"
    assert schema["description"] == "One node of a tree."
    assert schema["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    assert "$schema" not in schema
    assert Validator(schema).is_valid({"name": "a", "children": [{"name": "b"}]})
    assert not Validator(schema).is_valid({"name": "a", "children": [{"nam": "b"}]})


@pytest.mark.requirement("R90")
def test_the_schema_of_what_comes_out_can_differ_from_what_goes_in() -> None:
    class Area(BaseModel):
        side: int

        @pydantic.computed_field
        def area(self) -> int:
            return self.side**2

    assert list(schema_of(Area)["properties"]) == ["side"]
    assert list(schema_of(Area, serialization=True)["properties"]) == ["side", "area"]
    with pytest.raises(SchemaError, match="no JSON form"):
        schema_of(Context)


def test_typed_dicts_inside_other_annotations_are_understood() -> None:
    def f(
        a: list[Movie],
        b: Movie | None,
        c: Annotated[dict[str, Shelf], "x"],
        d: Optional[Movie] = None,  # noqa: UP045  # the old spelling is a case
    ) -> None: ...

    found = derive(f)

    assert isinstance(found, Signature)
    assert found.bind({"a": [{"title": "x"}], "b": None, "c": {"k": {"movies": []}}})[1] == ()
    assert found.bind({"a": [{}], "b": None, "c": {}})[1]
