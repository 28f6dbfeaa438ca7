"""Makes a tool from a Python function: its schema from signature and docstring, its calls, its results as JSON."""

import asyncio
import inspect
import re
from base64 import b64encode
from collections.abc import AsyncIterable, Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cached_property, partial
from math import isfinite
from pathlib import Path, PurePath
from types import UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from docstring_parser import Docstring, DocstringStyle, ParseError, parse
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PydanticUndefinedAnnotation,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
)
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import ArgsKwargs, to_json, to_jsonable_python
from temporalio import activity
from typing_extensions import is_typeddict

from orga.activities.adapters.schemas.arguments import schema_problem
from orga.activities.adapters.threads import OwnThreads
from orga.activities.adapters.tools.function_process import FunctionProcess
from orga.activities.adapters.tools.import_path import import_function, import_path_of
from orga.activities.adapters.tools.parameters import validation_error_text, without_titles
from orga.activities.media import Media, output_with_media
from orga.activities.ports import Acted, ToolContext, ToolError
from orga.activities.tools_api import ToolMarks, marks_of
from orga.workflows.types.text import clean_text
from orga.workflows.types.tool_calls.tools import ToolOptions, ToolOutput, ToolSpec

MAX_VALUES = 1_000_000
"""Values within one result, including those that a generator yields. A model sees at most 500,000 bytes anyway."""

MAX_DEPTH = 100
"""Nesting levels of lists and objects in a result."""

_MISSING_VALUE_TYPES = frozenset({"NaTType", "NAType"})
"""The types of missing values in pandas tables. They need a case of their own, because `NaTType` looks like a date."""

_NON_FINITE = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}
"""The text for a number that JSON cannot express, by Python's text."""

_TO_PLAIN_METHODS = ("tolist", "to_dicts", "to_list", "to_pylist", "to_dict")
"""Methods of arrays and tables that return plain lists and rows. The first one that an object has is used."""

_TOO_MANY_VALUES = f"more than {MAX_VALUES:,} values; have it return less"


@contextmanager
def raising_tool_errors(name: str) -> Generator[None]:
    """Turn exceptions of a function into ToolError. SystemExit must be caught here, because it would end the worker."""
    try:
        yield
    except ToolError:
        raise
    except (Exception, SystemExit) as error:
        kind = type(error).__name__
        text = f"{name} failed: {kind}: {error}"
        raise ToolError(text, kind=kind, retryable=isinstance(error, OSError), acted="maybe") from error


def is_async_result(result: Any) -> bool:
    """Return whether a function's result must be awaited in an event loop."""
    return isinstance(result, (AsyncIterable, Future)) or inspect.isawaitable(result)


async def awaited_output(name: str, result: Any) -> ToolOutput:
    """Await the result of a function if necessary, and return it as output."""
    while is_async_result(result):
        if inspect.isawaitable(result):
            result = await result
        elif isinstance(result, Future):
            result = await asyncio.wrap_future(cast("Future[Any]", result))
        else:
            result = await _collect_results(name, result)
    if isinstance(result, Iterator):  # the code of a generator may block
        return await asyncio.to_thread(as_output, name, result)
    return as_output(name, result)


async def _collect_results(name: str, results: AsyncIterable[Any]) -> list[Any]:
    found: list[Any] = []
    iterator: Any = aiter(results)
    try:
        async for each in iterator:
            found.append(each)
            if len(found) > MAX_VALUES:
                raise _unusable_result(name, _TOO_MANY_VALUES, "maybe")
    finally:
        if hasattr(iterator, "aclose"):
            await iterator.aclose()
    return found


def as_output(name: str, result: Any) -> ToolOutput:
    """Return a string unchanged, and another value as JSON. Raise ToolError (InvalidResult) if JSON cannot express it.

    `Media`, alone or in a list or tuple, become pictures and documents. The other items of the list become the text.
    """
    if isinstance(result, ToolOutput):
        return result
    if isinstance(result, Media):
        return output_with_media("", [result])
    if isinstance(result, (list, tuple)):
        several = cast("Sequence[Any]", result)
        if media := [each for each in several if isinstance(each, Media)]:
            texts = [as_output(name, each).content for each in several if not isinstance(each, Media)]
            return output_with_media("\n".join(texts), media)
    if isinstance(result, str):
        return ToolOutput(content=result)
    return ToolOutput(content=to_json(_JsonConversion(name).json_value(result)).decode())


def _unusable_result(name: str, what: str, acted: Acted) -> ToolError:
    return ToolError(f"{name} returned {what}", kind="InvalidResult", acted=acted)


class _JsonConversion:
    """Converts one result to JSON. Infinity and NaN become text, and invalid text becomes valid."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._left = MAX_VALUES
        self._inside: set[int] = set()
        """Ids of the values that contain the current one."""
        self._acted: Acted = "yes"
        """The statement of errors about the effect. It is "maybe" if some code of the function has not run yet."""

    def json_value(self, given: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise self._refusal(_TOO_MANY_VALUES)
        if given is None or isinstance(given, (bool, int)):
            return given
        if isinstance(given, float):
            return given if isfinite(given) else _NON_FINITE[str(float(given))]
        is_text = isinstance(given, (str, PurePath)) and not isinstance(given, Enum)
        if is_text or type(given).__name__ in _MISSING_VALUE_TYPES:
            return clean_text(str(given))
        if isinstance(given, (bytes, bytearray, memoryview)):
            return _decoded_text(bytes(cast("bytes", given)))
        return self._container_value(given)

    def _container_value(self, given: Any) -> Any:
        if id(given) in self._inside:
            raise self._refusal("a value that holds itself; have it return text or plain JSON")
        if len(self._inside) == MAX_DEPTH:
            raise self._refusal(f"a value that is nested more than {MAX_DEPTH} deep; have it return less")
        self._inside.add(id(given))
        try:
            return self._composed_value(given)
        finally:
            self._inside.discard(id(given))

    def _composed_value(self, given: Any) -> Any:
        if isinstance(given, (BaseModel, Enum)):
            return self.json_value(_model_fields(given) if isinstance(given, BaseModel) else given.value)
        if is_dataclass(given) and not isinstance(given, type):
            return {each.name: self.json_value(getattr(given, each.name)) for each in fields(given)}
        if isinstance(given, Mapping):
            items = cast("Mapping[Any, Any]", given).items()
            return {self._key_text(key): self.json_value(item) for key, item in items}
        if (plain := self._plain_value(given)) is not given:
            # numpy returns a number that Python cannot hold, such as a longdouble, as a copy of the same type
            return str(given) if type(plain) is type(given) else self.json_value(plain)
        if isinstance(given, Iterable) and not isinstance(given, type):
            if not isinstance(given, Collection):
                self._acted = "maybe"
            return [self.json_value(each) for each in cast("Iterable[Any]", given)]
        return self._scalar_value(given)

    def _plain_value(self, given: Any) -> Any:
        """Return arrays and tables of numpy, pandas, polars, torch and Arrow as lists and rows, others unchanged."""
        method = next((name for name in _TO_PLAIN_METHODS if hasattr(given, name)), None)
        if method is None:
            return given
        if isinstance(size := getattr(given, "size", 0), int) and size > self._left:
            raise self._refusal(_TOO_MANY_VALUES)
        if getattr(getattr(given, "dtype", None), "kind", "") in ("M", "m"):
            given = given.astype(str)  # as numbers of nanoseconds, times would lose their unit
        is_pandas = hasattr(given, "index") and hasattr(given, "to_dict")
        return _pandas_value(given) if is_pandas else getattr(given, method)()

    def _key_text(self, given: Any) -> str:
        key = self.json_value(given)
        return key if isinstance(key, str) else to_json(key).decode()

    def _scalar_value(self, given: Any) -> Any:
        """Return a date, a decimal or a similar value in the form that pydantic gives it."""
        if is_async_result(given):
            if inspect.iscoroutine(given):
                given.close()
            self._acted = "maybe"
            raise self._refusal(f"{type(given).__name__} inside its result, which nothing awaits; await it first")
        try:
            plain = to_jsonable_python(given)
        except ValueError:
            self._acted = "maybe"
            what = f"{type(given).__name__}, which is no JSON; have it return text or JSON"
            raise self._refusal(what) from None
        return self.json_value(plain)

    def _refusal(self, what: str) -> ToolError:
        return _unusable_result(self._name, what, self._acted)


def _pandas_value(given: Any) -> Any:
    """Return a data frame as rows. Return a series as a list, or as an object if its values have labels."""
    has_labels = type(given.index).__name__ != "RangeIndex"
    if hasattr(given, "columns"):
        return (given.reset_index() if has_labels else given).to_dict("records")
    return given.to_dict() if has_labels else given.tolist()


def _model_fields(model: BaseModel) -> Any:
    try:
        return model.model_dump(mode="json", by_alias=True)
    except ValueError:  # a field has bytes, an array, or another value that only `_JsonConversion` can convert
        return model.model_dump(by_alias=True)


def _decoded_text(data: bytes) -> str:
    try:
        return clean_text(data.decode())
    except UnicodeDecodeError:
        return b64encode(data).decode()


_VARIADIC = {
    inspect.Parameter.VAR_POSITIONAL: "*{} cannot be described to a model; use a list parameter",
    inspect.Parameter.VAR_KEYWORD: "**{} cannot be described to a model; name each parameter",
}


class FunctionParameters:
    """The parameters of a function. The model does not see a `ToolContext`, or arguments that a `partial` has set."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Read the signature. Raise ValueError, with the remedy, if a parameter cannot be described to a model."""
        hints = _type_hints(function)
        preset = _preset_names(function)
        self._all = [p for p in inspect.signature(function).parameters.values() if p.name not in preset]
        for parameter in self._all:
            _refuse_unusable(parameter, hints)
        self._contexts = [p.name for p in self._all if _is_context(hints[p.name])]
        texts = {
            p.arg_name.lstrip("*"): p.description
            for text in docstrings(function)
            for p in _parsed_docstring(text).params
        }
        offered = [p for p in self._all if p.name not in self._contexts]
        self._adapter = _arguments_adapter([(p, _annotated_type(hints[p.name], texts.get(p.name))) for p in offered])

    @property
    def has_context(self) -> bool:
        return bool(self._contexts)

    @cached_property
    def schema(self) -> dict[str, Any]:
        return without_titles(self._adapter.json_schema())

    def bind(self, arguments: dict[str, Any], context: ToolContext) -> tuple[list[Any], dict[str, Any]]:
        """Return converted positional and keyword arguments. Raise ToolError (InvalidArguments) if they do not fit."""
        try:
            checked = self._adapter.validate_python(ArgsKwargs((), arguments))
        except ValidationError as error:
            raise ToolError(validation_error_text(error), kind="InvalidArguments") from error
        named = checked | dict.fromkeys(self._contexts, context)
        by_position = [p.name for p in self._all if p.kind is inspect.Parameter.POSITIONAL_ONLY]
        return [named.pop(name) for name in by_position], named


def function_layers(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Yield the function, then each function inside a `partial`. If the last one is an object, yield its `__call__`."""
    yield function
    while isinstance(function, partial):
        function = function.func
        yield function
    if not (inspect.isroutine(function) or inspect.isclass(function)):
        yield type(function).__call__


def _preset_names(function: Any) -> Collection[str]:
    """Return the names of arguments that a `partial` has set. The application chose them, so a model must not."""
    return function.keywords if isinstance(function, partial) else ()


def docstrings(function: Callable[..., Any]) -> list[str]:
    """Return the docstrings of `function_layers`, in order."""
    return [text for each in function_layers(function) if (text := each.__doc__) and text != partial.__doc__]


def docstring_summary(docstring: str) -> str:
    """Return the first paragraph of a docstring on one line."""
    described = _parsed_docstring(docstring).description or ""
    return " ".join(described.split("\n\n")[0].split())


def _parsed_docstring(docstring: str) -> Docstring:
    """Parse a docstring in the style of Sphinx, NumPy, Google or epydoc. An invalid docstring has no parameters."""
    try:
        return parse(docstring)
    except ParseError:
        return parse(docstring, style=DocstringStyle.REST)


def _type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    *_, target = function_layers(function)
    try:
        return get_type_hints(target, include_extras=True)
    except (NameError, TypeError) as error:
        raise ValueError(
            f"an annotation cannot be resolved: {error}; import its type at the top of the module"
        ) from error


def _refuse_unusable(parameter: inspect.Parameter, hints: dict[str, Any]) -> None:
    if parameter.kind in _VARIADIC:
        raise ValueError(_VARIADIC[parameter.kind].format(parameter.name))
    if parameter.name == "self" and parameter.name not in hints:
        raise ValueError("it is a method without its object; give the method of an object, as in Shop(...).look_up")
    if parameter.name not in hints:
        raise ValueError(f"parameter {parameter.name} has no annotation; add one, as in `{parameter.name}: str`")


def _is_context(annotation: Any) -> bool:
    """Return whether a parameter takes a `ToolContext`, alone or in a union with other types."""
    inner = () if get_origin(annotation) is Annotated else get_args(annotation)
    return annotation is ToolContext or ToolContext in inner


def _annotated_type(annotation: Any, text: str | None) -> Any:
    """Return the annotation with a text of the docstring. The annotation's own description comes later and wins."""
    if not text:
        return annotation
    described = Field(description=" ".join(text.split()))
    if get_origin(annotation) is not Annotated:
        return Annotated[annotation, described]
    inner, *metadata = get_args(annotation)
    return Annotated[(inner, described, *metadata)]  # type: ignore[return-value]


def _arguments_adapter(offered: list[tuple[inspect.Parameter, Any]]) -> TypeAdapter[dict[str, Any]]:
    """Return an adapter that checks arguments by name and adds defaults, as a call of the function would."""

    def collect(**checked: Any) -> dict[str, Any]:
        return checked

    by_name = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hint) for p, hint in offered]
    collect.__signature__ = inspect.Signature(by_name)  # type: ignore[attr-defined]
    collect.__annotations__ = {p.name: hint for p, hint in offered}
    try:
        # `validate_by_name`, because the schema shows the parameter's name if its alias is a choice or a path.
        adapter = TypeAdapter[dict[str, Any]](cast("Any", collect), config=ConfigDict(validate_by_name=True))
        adapter.json_schema()
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        raise ValueError(f"a parameter's type has no JSON Schema: {_first_sentence(error)}") from error
    return adapter


def _first_sentence(error: PydanticUserError | PydanticUndefinedAnnotation) -> str:
    """Return the first sentence of the error. The rest is advice for authors of pydantic models."""
    return error.message.splitlines()[0].partition(". Set `")[0]


Isolation = Literal["thread", "process"]

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class PythonFunction:
    """A tool that calls a Python function. A function that is not `async` runs in a thread or a process."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        path: str | None = None,
        isolation: Isolation | None = None,
        code_digest: str = "",
    ) -> None:
        """Read the function. Raise ValueError, with the remedy, if it cannot be a tool or run with this isolation.

        Args:
            path: The import path for a process. None: the path is derived from the function.
            isolation: Where the function runs, and where its result is awaited. None: the decorator decides.
        """
        marks = marks_of(*function_layers(function))
        name = marks.name or _activity_name(function) or _own_name(function)
        if not TOOL_NAME.fullmatch(name):
            raise ValueError(
                f'the name {name!r} does not match ^[a-zA-Z0-9_-]{{1,64}}$; set one with @tool(name="...")'
            )
        self._function = function
        self._path = path
        self.code_digest = code_digest
        self._parameters = FunctionParameters(function)
        self._is_async = _is_async(function)
        self._threads = OwnThreads[Any](name)
        effective = isolation or _declared_isolation(marks, self._is_async)
        if effective == "process":
            self._run = FunctionProcess(name, path or import_path_of(function)).run
        else:
            self._run = self._run_in_loop if isolation is None else self._run_in_thread
        spec = ToolSpec(
            name=name,
            description=docstring_summary(next(iter(docstrings(function)), "")),
            parameters=self._parameters.schema,
            effect=marks.effect,
            options=_tool_options(marks, effective),
            main_argument=next(iter(self._parameters.schema["properties"]), None),
        )
        schema = _output_schema(function, marks.output_schema)
        self.spec = spec.with_takes_caller(self._parameters.has_context).with_output_schema(schema)

    def with_isolation(self, isolation: Isolation) -> "PythonFunction":
        """Return a tool of the same function. Raise ValueError if a process cannot import the function."""
        return PythonFunction(self._function, path=self._path, isolation=isolation, code_digest=self.code_digest)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Return the function's result: a string unchanged, any other value as JSON.

        An exception becomes a ToolError of its type. An OSError, such as a TimeoutError, is retryable.
        """
        return await self._run(arguments, context)

    def call_here(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Do the same as `call`, but without isolation, in the current thread."""
        with raising_tool_errors(self.spec.name):
            result = self._call_function(arguments, context)
            return asyncio.run(awaited_output(self.spec.name, result)) if is_async_result(result) else result

    def _call_function(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Call the function. Return its output, or its result itself if that must still be awaited."""
        args, kwargs = self._parameters.bind(arguments, context)
        with raising_tool_errors(self.spec.name):
            result = self._function(*args, **kwargs)
            return result if is_async_result(result) else as_output(self.spec.name, result)

    async def _run_in_thread(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        return await self._threads.run(partial(self.call_here, arguments, context))

    async def _run_in_loop(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Await the result in the worker's event loop. Only a function that is not `async` is called in a thread."""
        call = partial(self._call_function, arguments, context)
        with raising_tool_errors(self.spec.name):
            result = call() if self._is_async else await self._threads.run(call)
            return await awaited_output(self.spec.name, result)


def _output_schema(function: Callable[..., Any], declared: Any) -> dict[str, Any] | None:
    """Return the schema of a function's results, or None if they may be any JSON."""
    if declared is not None:
        return checked_output_schema(declared)
    returned = _type_hints(function).get("return")
    if not _has_fields(returned):
        return None
    try:
        return checked_output_schema(returned)
    except ValueError:
        return None


def checked_output_schema(declared: Any) -> dict[str, Any]:
    """Return the JSON Schema of a type, such as a pydantic model. `declared` can also be a JSON Schema itself.

    Raise ValueError if the type has no schema, or the schema cannot be used.
    """
    if isinstance(declared, Mapping):
        schema = dict(cast("Mapping[str, Any]", declared))
    else:
        try:
            adapter = TypeAdapter[Any](declared)
            schema = without_titles(adapter.json_schema(mode="serialization", schema_generator=_ValueSchema))
        except (PydanticUserError, PydanticUndefinedAnnotation) as error:
            raise ValueError(f"output_schema: the type has no JSON Schema: {_first_sentence(error)}") from None
    if problem := schema_problem(schema):
        raise ValueError(f"output_schema: {problem}")
    return schema


class _ValueSchema(GenerateJsonSchema):
    """Generates schemas of results without pydantic's pattern for decimals, which cannot be matched in linear time."""

    def decimal_schema(self, schema: object) -> dict[str, Any]:
        return {"type": "string"}


_CONTAINERS = (list, tuple, dict, Sequence, Mapping, Union, UnionType, Annotated)


def _has_fields(annotation: Any) -> bool:
    """Return whether a type is a model, dataclass or TypedDict, or contains one. `Media` do not count."""
    if (origin := get_origin(annotation)) in _CONTAINERS:
        return any(map(_has_fields, get_args(annotation)))
    kind: Any = origin or annotation
    if kind is Media:
        return False
    return inspect.isclass(kind) and (issubclass(kind, BaseModel) or is_dataclass(kind) or is_typeddict(kind))


def _is_async(function: Callable[..., Any]) -> bool:
    return any(
        inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in function_layers(function)
    )


def _activity_name(function: Callable[..., Any]) -> str | None:
    for each in function_layers(function):
        if definition := activity._Definition.from_callable(each):  # pyright: ignore[reportUnknownMemberType]
            return definition.name
    return None


def _own_name(function: Callable[..., Any]) -> str:
    """Return the name of a function, or of an object's class. A `partial` only has a name if somebody has set it."""
    named = (each for each in function_layers(function) if hasattr(each, "__name__") or not isinstance(each, partial))
    first = next(named)
    return getattr(first, "__name__", type(first).__name__)


def _declared_isolation(marks: ToolMarks, is_async: bool) -> Isolation | None:
    if marks.blocking:
        return "process"
    return None if is_async else "thread"


def _tool_options(marks: ToolMarks, isolation: Isolation | None) -> ToolOptions:
    given = {"timeout_s": marks.timeout_s, "isolation": isolation}
    return ToolOptions.model_validate({key: value for key, value in given.items() if value is not None})


def load_function(path: str, folders: Sequence[Path] = ()) -> PythonFunction:
    """Import `package.module:function` from `folders`, or as installed. Raise ValueError with the remedy."""
    try:
        function, digest = import_function(path, folders)
        return PythonFunction(function, path=path, code_digest=digest)
    except ValueError as error:
        raise ValueError(f"tool {path!r}: {error}") from error
