"""What a function says of itself: the JSON Schema of its parameters, its description, its checked arguments."""

import inspect
from collections.abc import Callable, Collection, Iterator
from functools import cached_property, partial
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints

from docstring_parser import Docstring, DocstringStyle, ParseError, parse
from pydantic import ConfigDict, Field, PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import ArgsKwargs

from orga.activities.adapters.tools.parameters import invalid_arguments, without_titles
from orga.activities.ports import ToolContext, ToolError

_VARIADIC = {
    inspect.Parameter.VAR_POSITIONAL: "*{} cannot be described to a model; use a list parameter",
    inspect.Parameter.VAR_KEYWORD: "**{} cannot be described to a model; name each parameter",
}


class FunctionParameters:
    """Parameters of one function. The model is shown neither a `ToolContext` nor what a `partial` has set already."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Read the signature.

        Raises:
            ValueError: With the parameter that cannot be offered to a model, and what to change.
        """
        hints = _hints(function)
        preset = _preset(function)
        self._all = [p for p in inspect.signature(function).parameters.values() if p.name not in preset]
        for parameter in self._all:
            _refuse_unusable(parameter, hints)
        self._contexts = [p.name for p in self._all if _is_context(hints[p.name])]
        texts = {p.arg_name.lstrip("*"): p.description for text in docstrings(function) for p in _parsed(text).params}
        offered = [p for p in self._all if p.name not in self._contexts]
        self._adapter = _adapter([(p, _described(hints[p.name], texts.get(p.name))) for p in offered])

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema that the model is offered."""
        return without_titles(self._adapter.json_schema())

    def bind(self, arguments: dict[str, Any], context: ToolContext) -> tuple[list[Any], dict[str, Any]]:
        """Return what to call the function with, by position and by name, converted to the annotated types.

        Raises:
            ToolError: Kind InvalidArguments.
        """
        try:
            checked = self._adapter.validate_python(ArgsKwargs((), arguments))
        except ValidationError as error:
            raise ToolError(invalid_arguments(error), kind="InvalidArguments") from error
        named = checked | dict.fromkeys(self._contexts, context)
        by_position = [p.name for p in self._all if p.kind is inspect.Parameter.POSITIONAL_ONLY]
        return [named.pop(name) for name in by_position], named


def layers(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Yield a function, what it calls if it is a `partial`, and at last the `__call__` of an object."""
    yield function
    while isinstance(function, partial):
        function = function.func
        yield function
    if not (inspect.isroutine(function) or inspect.isclass(function)):
        yield type(function).__call__


def _preset(function: Any) -> Collection[str]:
    """Return the names that a `partial` has set: what the application decided is not for a model to decide."""
    return function.keywords if isinstance(function, partial) else ()


def docstrings(function: Callable[..., Any]) -> list[str]:
    """Return the docstrings of a function's layers, the outermost first."""
    return [text for each in layers(function) if (text := each.__doc__) and text != partial.__doc__]


def summary(docstring: str) -> str:
    """Return the first paragraph of the description on one line."""
    described = _parsed(docstring).description or ""
    return " ".join(described.split("\n\n")[0].split())


def _parsed(docstring: str) -> Docstring:
    """Read a docstring of Sphinx, NumPy, Google or epydoc; one that breaks the rules of its style has no parameters."""
    try:
        return parse(docstring)
    except ParseError:
        return parse(docstring, style=DocstringStyle.REST)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    *_, target = layers(function)
    try:
        return get_type_hints(target, include_extras=True)
    except (NameError, TypeError) as error:
        raise ValueError(
            f"an annotation cannot be resolved: {error}; import its type at the top of the module"
        ) from error


def _refuse_unusable(parameter: inspect.Parameter, hints: dict[str, Any]) -> None:
    if parameter.kind in _VARIADIC:
        raise ValueError(_VARIADIC[parameter.kind].format(parameter.name))
    if parameter.name not in hints:
        raise ValueError(f"parameter {parameter.name} has no annotation; add one, as in `{parameter.name}: str`")


def _is_context(annotation: Any) -> bool:
    inner = get_args(annotation) if get_origin(annotation) not in (None, Annotated) else (annotation,)
    return ToolContext in inner


def _described(annotation: Any, text: str | None) -> Any:
    """Return the annotation with a text of the docstring; a description of its own comes later, so it wins."""
    if not text:
        return annotation
    described = Field(description=" ".join(text.split()))
    if get_origin(annotation) is not Annotated:
        return Annotated[annotation, described]
    inner, *metadata = get_args(annotation)
    return Annotated[(inner, described, *metadata)]  # type: ignore[return-value]


def _adapter(offered: list[tuple[inspect.Parameter, Any]]) -> TypeAdapter[dict[str, Any]]:
    """Return what checks arguments by name, with defaults filled in, as pydantic would for a call of the function."""

    def collect(**checked: Any) -> dict[str, Any]:
        return checked

    by_name = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hint) for p, hint in offered]
    collect.__signature__ = inspect.Signature(by_name)  # type: ignore[attr-defined]
    collect.__annotations__ = {p.name: hint for p, hint in offered}
    try:
        # By name, too: the schema shows the name of a parameter whose alias is a choice or a path.
        adapter = TypeAdapter[dict[str, Any]](cast("Any", collect), config=ConfigDict(validate_by_name=True))
        adapter.json_schema()
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        raise ValueError(f"a parameter's type has no JSON Schema: {_cause(error)}") from error
    return adapter


def _cause(error: PydanticUserError | PydanticUndefinedAnnotation) -> str:
    """Return the first sentence: what follows is for whoever writes a model."""
    return error.message.splitlines()[0].partition(". Set `")[0]
