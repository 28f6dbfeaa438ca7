"""A Python function as a tool, by its import path `package.module:function`."""

import asyncio
import importlib
import inspect
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from activities.adapters.tools.docstring import summary
from activities.adapters.tools.function_parameters import FunctionParameters
from activities.ports import ToolContext, ToolError
from activities.tools_api import marks_of
from workflows.types.tools import ToolOptions, ToolOutput, ToolSpec

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class PythonFunction:
    """Schema from signature and docstring. An `async` function is awaited, another runs in a thread."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Read the function.

        Raises:
            ValueError: When it cannot be offered to a model, with what to change.
        """
        marks = marks_of(function)
        name = marks.name or getattr(function, "__name__", type(function).__name__)
        if not _NAME.fullmatch(name):
            raise ValueError(
                f'the name {name!r} does not match ^[a-zA-Z0-9_-]{{1,64}}$; set one with @tool(name="...")'
            )
        self._function = function
        self._parameters = FunctionParameters(function)
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
        self._spec = ToolSpec(
            name=name,
            description=summary(function.__doc__ or ""),
            parameters=self._parameters.json_schema(),
            effect=marks.effect,
            options=ToolOptions() if marks.timeout_s is None else ToolOptions(timeout_s=marks.timeout_s),
            main_argument=next(iter(self._parameters.names), None),
        )

    @property
    def spec(self) -> ToolSpec:
        """Effect, name and timeout as the decorator says; calls are told apart by the first parameter."""
        return self._spec

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Return the function's result: a string as it is, anything else as JSON.

        Raises:
            ToolError: Kind is the exception's class; an OSError (so a TimeoutError or ConnectionError) is retryable.
        """
        values = self._parameters.keyword_arguments(arguments, context)
        work = self._awaited(values) if self._is_async else asyncio.to_thread(self._called, values)
        return self._output(await work)

    async def _awaited(self, values: dict[str, Any]) -> Any:
        with _failures_told(self._spec.name):
            return await self._function(**values)

    def _called(self, values: dict[str, Any]) -> Any:
        with _failures_told(self._spec.name):
            return self._function(**values)

    def _output(self, result: Any) -> ToolOutput:
        if isinstance(result, ToolOutput):
            return result
        try:
            return ToolOutput(content=result if isinstance(result, str) else to_json(result).decode())
        except (PydanticSerializationError, ValueError) as error:
            message = (
                f"{self._spec.name} returned {type(result).__name__}, which is no JSON; have it return text or JSON"
            )
            raise ToolError(message, kind="InvalidResult") from error


@contextmanager
def _failures_told(name: str) -> Generator[None]:
    """Turn exceptions into ToolError where they are raised: SystemExit further up would end the worker."""
    try:
        yield
    except ToolError:
        raise
    except (Exception, SystemExit) as error:
        kind = type(error).__name__
        raise ToolError(f"{name} failed: {kind}: {error}", kind=kind, retryable=isinstance(error, OSError)) from error


def load_function(path: str) -> PythonFunction:
    """Import `package.module:function` and return it as a tool.

    Raises:
        ValueError: With the path, what is wrong and what to change.
    """
    try:
        return PythonFunction(_imported(path))
    except ValueError as error:
        raise ValueError(f"tool {path!r}: {error}") from error


def _imported(path: str) -> Callable[..., Any]:
    module_name, colon, attribute = path.partition(":")
    if not (module_name and colon and attribute):
        raise ValueError("an import path is written package.module:function")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ValueError(f"there is no module {error.name}; check the spelling and PYTHONPATH") from error
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise ValueError(f"module {module_name} has no {attribute}; check the spelling")
        found = getattr(found, name)
    if not callable(found):
        raise ValueError(f"{attribute} is {type(found).__name__}, not a function")  # noqa: TRY004
    return found
