"""Python functions as tools."""

from typing import Annotated

import pytest
from pydantic import AliasChoices, Field

from orga.activities.adapters.tools.python_function import PythonFunction, load_function
from orga.activities.ports import ToolContext
from tests.support.tools import sample as sample_tools
from tests.support.tools.calls import failure, result

MODULE = "tests.support.tools.sample"


def load(name: str) -> PythonFunction:
    return load_function(f"{MODULE}:{name}")


def test_the_definition_comes_from_signature_docstring_and_decorator() -> None:
    spec = load("weather").spec
    assert (spec.name, spec.description, spec.effect) == ("weather", "Forecast the weather of one day.", "read_only")
    assert spec.options.timeout_s == 5
    assert spec.main_argument == "place"
    assert spec.parameters == {
        "$defs": {
            "Place": {
                "properties": {"city": {"type": "string"}, "country": {"default": "AT", "type": "string"}},
                "required": ["city"],
                "type": "object",
            },
            "Unit": {"enum": ["c", "k"], "type": "string"},
        },
        "additionalProperties": False,
        "properties": {
            "place": {"$ref": "#/$defs/Place", "description": "Where."},
            "day": {"description": "The day, in the local calendar.", "format": "date", "type": "string"},
            "unit": {"$ref": "#/$defs/Unit", "default": "c"},
            "hours": {"default": 24, "description": "How many hours: at most 24.", "type": "integer"},
        },
        "required": ["place", "day"],
        "type": "object",
    }


def test_a_function_without_decorator_is_irreversible() -> None:
    spec = load("plain").spec
    assert (spec.effect, spec.options.timeout_s) == ("irreversible", None)
    assert spec.parameters["properties"]["times"] == {
        "default": 1,
        "description": "How often.",
        "maximum": 3,
        "minimum": 1,
        "type": "integer",
    }


def test_the_decorator_can_rename_a_function() -> None:
    spec = load("badly_named").spec
    assert (spec.name, spec.effect) == ("renamed-tool", "idempotent")
    assert spec.parameters["properties"]["mode"]["enum"] == ["a", "b"]


def test_a_decorated_function_is_still_a_function() -> None:
    assert sample_tools.weather(sample_tools.Place(city="x"), sample_tools.date(2024, 1, 2))["year"] == 2024


async def test_arguments_have_the_annotated_types() -> None:
    content = await result(load("weather"), place={"city": "Graz"}, day="2024-05-06", unit="k")
    assert content == '{"city":"Graz","year":2024,"unit":"KELVIN","hours":24}'


async def test_async_functions_are_awaited_and_others_run_in_a_thread() -> None:
    assert await result(load("plain"), text="ab", times=2) == "abab"
    assert await result(load("thread_name"), copy="c", _x=1) == "False c 1"


async def test_the_context_is_passed_and_is_not_an_argument_of_the_model() -> None:
    notes: list[str] = []
    tool = load("with_context")
    assert list(tool.spec.parameters["properties"]) == ["text"]
    output = await tool.call({"text": "a"}, ToolContext("c9", "k9", heartbeat=notes.append))
    assert (output.content, notes) == ("a k9", ["half way"])
    assert await result(load("optional_context")) == "c1"
    assert (await failure(tool, text="a", context={})).kind == "InvalidArguments"


async def test_callables_and_methods_can_be_tools() -> None:
    assert await result(load("calculator"), a=1, b=2) == "3"
    assert load("calculator").spec.name == "Calculator"
    assert await result(load("calculator.double"), a=4) == "8"


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("list", '[1,"a"]'),
        ("none", "null"),
        ("number", "1.5"),
        ("model", '{"city":"Graz","country":"AT"}'),
    ],
)
async def test_results_become_json(what: str, expected: str) -> None:
    assert await result(load("returns"), what=what) == expected


async def test_a_result_that_is_not_json_is_an_error() -> None:
    error = await failure(load("returns"), what="object")
    assert (error.kind, str(error)) == (
        "InvalidResult",
        "returns returned object, which is no JSON; have it return text or JSON",
    )


@pytest.mark.parametrize("function", ["raises", "raises_async"])
@pytest.mark.parametrize(
    ("kind", "expected", "retryable"),
    [
        ("value", "ValueError", False),
        ("os", "OSError", True),
        ("timeout", "TimeoutError", True),
        ("connection", "ConnectionResetError", True),
        ("tool", "Mine", True),
        ("exit", "SystemExit", False),
        ("stop", "StopIteration", False),
    ],
)
async def test_exceptions_become_tool_errors(function: str, kind: str, expected: str, retryable: bool) -> None:
    error = await failure(load(function), kind=kind)
    if (function, kind) == ("raises_async", "stop"):
        expected = "RuntimeError"  # Python raises this for coroutines
    assert (error.kind, error.retryable) == (expected, retryable)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        pytest.param({}, "text: Missing required argument", id="missing"),
        pytest.param({"text": "a", "times": 9}, "times: Input should be less than or equal to 3", id="out of range"),
        pytest.param({"text": "a", "other": 1}, "other: Unexpected argument", id="unknown"),
    ],
)
async def test_invalid_arguments_are_named(arguments: dict[str, object], named: str) -> None:
    error = await failure(load("plain"), **arguments)
    assert error.kind == "InvalidArguments"
    assert named in str(error)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        pytest.param("nowhere.at_all:f", "there is no module nowhere", id="module"),
        pytest.param(f"{MODULE}:nothing", "has no nothing", id="attribute"),
        pytest.param(f"{MODULE}:NUMBER", "NUMBER is int, not a function", id="not callable"),
        pytest.param(f"{MODULE}.weather", "written package.module:function", id="no colon"),
        pytest.param(":weather", "written package.module:function", id="no module"),
        pytest.param("...a:weather", "written package.module:function", id="an invalid module"),
        pytest.param(f"{MODULE}:", "written package.module:function", id="no attribute"),
        pytest.param(f"{MODULE}:unannotated", "parameter b has no annotation", id="no annotation"),
        pytest.param(f"{MODULE}:star", "args cannot be described", id="star"),
        pytest.param(f"{MODULE}:double_star", "kwargs cannot be described", id="double star"),
        pytest.param(f"{MODULE}:unresolvable", "'Nowhere' is not defined", id="unknown type"),
        pytest.param(f"{MODULE}:without_schema", "has no JSON Schema", id="type without schema"),
        pytest.param(f"{MODULE}:bad_name", "does not match", id="name"),
    ],
)
def test_an_unusable_function_is_refused_when_loaded(path: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"tool '{path}'") as caught:
        load_function(path)
    assert message in str(caught.value)


def described(
    a: str,
    n: int = Field(default=3, ge=1, description="How many."),
    m: Annotated[int, Field(ge=1)] = 2,
    o: Annotated[int, Field(default=4, le=9)] = Field(default=5),
    tags: list[str] = Field(default_factory=list),  # noqa: B008
    from_: str = Field(default="x", alias="from"),
    either: str = Field(default="y", validation_alias=AliasChoices("one", "other")),
) -> str:
    """Describe.

    Args:
        n: Not this one.
        m: As many more.
    """
    return f"{a} {n} {m} {o} {tags} {from_} {either}"


async def test_a_pydantic_field_keeps_default_bounds_and_description() -> None:
    tool = PythonFunction(described)
    assert tool.spec.parameters["properties"] == {
        "a": {"type": "string"},
        "n": {"type": "integer", "default": 3, "minimum": 1, "description": "How many."},
        "m": {"type": "integer", "default": 2, "minimum": 1, "description": "As many more."},
        "o": {"type": "integer", "default": 5, "maximum": 9},
        "tags": {"type": "array", "items": {"type": "string"}},
        "from": {"type": "string", "default": "x"},
        "either": {"type": "string", "default": "y"},
    }
    assert tool.spec.parameters["required"] == ["a"]
    assert await result(tool, a="a") == "a 3 2 5 [] x y"
    given = {"a": "b", "n": 1, "tags": ["t"], "from": "f", "either": "e"}
    assert await result(tool, **given) == "b 1 2 5 ['t'] f e"
    assert "n: Input should be greater than or equal to 1" in str(await failure(tool, a="a", n=0))


def any_kind(_y: int, context: ToolContext, /, copy: str, *, self: int = 1, json: bool, model_config: str = "m") -> str:
    return f"{_y} {context.call_id} {copy} {self} {json} {model_config}"


async def test_any_kind_of_parameter_and_any_name_is_supported() -> None:
    tool = PythonFunction(any_kind)
    assert list(tool.spec.parameters["properties"]) == ["_y", "copy", "self", "json", "model_config"]
    assert (tool.spec.main_argument, tool.spec.parameters["required"]) == ("_y", ["_y", "copy", "json"])
    assert await result(tool, _y=1, copy="c", json=True, self=2) == "1 c1 c 2 True m"
    assert await result(load("positional"), a="p") == "p"
    assert list(load("partial").spec.parameters["properties"]) == ["_x"]


GOOGLE = """Send a letter.

    Slowly.

    Args:
        to (str): Who gets it,
            by name.
        text: What it says: all of it.
    """
SPHINX = """Send
    a letter.

    :param to: Who gets it,
        by name.
    :type to: str
    :param str text: What it says: all of it.
    :returns: Nothing.
    """
NUMPY = """Send a letter.

    Parameters
    ----------
    to : str
        Who gets it,
        by name.
    text : str, optional
        What it says: all of it.

    Returns
    -------
    str
        to: nothing.
    """
EPYDOC = """Send a letter.

    @param to: Who gets it, by name.
    @param text: What it says: all of it.
    """


@pytest.mark.parametrize("docstring", [GOOGLE, SPHINX, NUMPY, EPYDOC], ids=["google", "sphinx", "numpy", "epydoc"])
def test_docstrings_of_all_styles_describe_the_parameters(docstring: str) -> None:
    def send(to: str, text: str = "") -> None: ...

    send.__doc__ = docstring
    spec = PythonFunction(send).spec
    assert spec.description == "Send a letter."
    texts = {name: each["description"] for name, each in spec.parameters["properties"].items()}
    assert texts == {"to": "Who gets it, by name.", "text": "What it says: all of it."}


@pytest.mark.parametrize("docstring", ["", "Args:", ":param", "Args:\n  (", "Parameters\n---\n", "a" * 100_000])
def test_any_docstring_is_accepted(docstring: str) -> None:
    def send(to: str) -> None: ...

    send.__doc__ = docstring
    assert PythonFunction(send).spec.parameters["properties"] == {"to": {"type": "string"}}


class Box:
    """A type that no model can write."""


def boxed(box: Box) -> str:
    """Open it."""
    return str(box)


def test_a_type_that_no_model_can_write_is_reported() -> None:
    with pytest.raises(ValueError, match=r"has no JSON Schema: Unable to .* for <class '.*Box'>$"):
        PythonFunction(boxed)
