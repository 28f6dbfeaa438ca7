"""A function's parameters as a pydantic model: its JSON Schema, and its checked keyword arguments."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model

from orga.activities.adapters.tools.docstring import argument_texts
from orga.activities.adapters.tools.parameters import invalid_arguments, without_titles
from orga.activities.ports import ToolContext, ToolError

_REFUSED_KINDS = {
    inspect.Parameter.VAR_POSITIONAL: "*{} cannot be described to a model; use a list parameter",
    inspect.Parameter.VAR_KEYWORD: "**{} cannot be described to a model; name each parameter",
    inspect.Parameter.POSITIONAL_ONLY: "{} is positional-only; remove the slash from the signature",
}


class FunctionParameters:
    """Parameters of one function; one annotated `ToolContext` is filled in by us and not shown to the model."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Read the signature.

        Raises:
            ValueError: With the parameter that cannot be offered to a model, and what to change.
        """
        hints = _hints(function)
        parameters = list(inspect.signature(function).parameters.values())
        for parameter in parameters:
            _refuse_unusable(parameter, hints)
        self._context_names = [p.name for p in parameters if _is_context(hints[p.name])]
        self.names = [p.name for p in parameters if p.name not in self._context_names]
        texts = argument_texts(function.__doc__ or "")
        offered = [p for p in parameters if p.name in self.names]
        self._model = _model([(p, hints[p.name], texts.get(p.name)) for p in offered])

    def json_schema(self) -> dict[str, Any]:
        """Return the schema that the model is offered."""
        return without_titles(self._model.model_json_schema(by_alias=True))

    def keyword_arguments(self, arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        """Return what to call the function with, converted to the annotated types.

        Raises:
            ToolError: Kind InvalidArguments.
        """
        try:
            checked = self._model.model_validate(arguments)
        except ValidationError as error:
            raise ToolError(invalid_arguments(error), kind="InvalidArguments") from error
        values = {name: getattr(checked, f"p{index}") for index, name in enumerate(self.names)}
        return values | dict.fromkeys(self._context_names, context)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    target = function if inspect.isroutine(function) or inspect.isclass(function) else type(function).__call__
    try:
        return get_type_hints(target, include_extras=True)
    except (NameError, TypeError) as error:
        raise ValueError(
            f"an annotation cannot be resolved: {error}; import its type at the top of the module"
        ) from error


def _refuse_unusable(parameter: inspect.Parameter, hints: dict[str, Any]) -> None:
    if parameter.kind in _REFUSED_KINDS:
        raise ValueError(_REFUSED_KINDS[parameter.kind].format(parameter.name))
    if parameter.name not in hints:
        raise ValueError(f"parameter {parameter.name} has no annotation; add one, as in `{parameter.name}: str`")


def _is_context(annotation: Any) -> bool:
    inner = get_args(annotation) if get_origin(annotation) not in (None, Annotated) else (annotation,)
    return ToolContext in inner


def _model(offered: list[tuple[inspect.Parameter, Any, str | None]]) -> type[BaseModel]:
    """Name the fields p0, p1 ... with the parameters as aliases: a parameter may be called `copy` or `_x`."""
    fields: dict[str, Any] = {}
    for index, (parameter, annotation, text) in enumerate(offered):
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        described = Annotated[annotation, Field(description=text)] if text else annotation
        fields[f"p{index}"] = (described, Field(default, alias=parameter.name))
    try:
        model = create_model("Arguments", __config__=ConfigDict(extra="forbid"), **fields)
        model.model_json_schema()
    except PydanticUserError as error:
        raise ValueError(f"a parameter's type has no JSON Schema: {_cause(error)}") from error
    return model


def _cause(error: PydanticUserError) -> str:
    """Return the first sentence: what follows is for whoever writes a model."""
    return error.message.splitlines()[0].partition(". Set `")[0]
