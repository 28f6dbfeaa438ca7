"""A Python function as a tool, by its import path `package.module:function`."""

import asyncio
import inspect
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from temporalio import activity

from orga.activities.adapters.tools.docstring import summary
from orga.activities.adapters.tools.function_outcome import as_output, failures_told
from orga.activities.adapters.tools.function_parameters import FunctionParameters
from orga.activities.adapters.tools.function_process import FunctionProcess
from orga.activities.adapters.tools.import_path import imported, path_of
from orga.activities.adapters.tools.own_threads import OwnThreads
from orga.activities.ports import ToolContext
from orga.activities.tools_api import ToolMarks, marks_of
from orga.workflows.types.tools import ToolOptions, ToolOutput, ToolSpec

Isolation = Literal["thread", "process"]
Run = Callable[[dict[str, Any], ToolContext], Any]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class PythonFunction:
    """Schema from signature and docstring. An `async` function is awaited, another runs in a thread or a process."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        path: str | None = None,
        isolation: Isolation | None = None,
        code_digest: str = "",
    ) -> None:
        """Read the function.

        Args:
            function: What is called.
            path: Where a process of its own imports it from; None finds that out.
            isolation: Where it runs; None follows its decorator.
            code_digest: Of the modules that it was read from.

        Raises:
            ValueError: When it cannot be offered to a model or run there, with what to change.
        """
        marks = marks_of(function)
        name = marks.name or _activity_name(function) or getattr(function, "__name__", type(function).__name__)
        if not _NAME.fullmatch(name):
            raise ValueError(
                f'the name {name!r} does not match ^[a-zA-Z0-9_-]{{1,64}}$; set one with @tool(name="...")'
            )
        self._function = function
        self._path = path
        self.code_digest = code_digest
        self._parameters = FunctionParameters(function)
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
        place = isolation or ("process" if marks.blocking else None if self._is_async else "thread")
        self._run = self._runner(place, name)
        self._spec = ToolSpec(
            name=name,
            description=summary(function.__doc__ or ""),
            parameters=self._parameters.json_schema(),
            effect=marks.effect,
            options=_options(marks, place),
            main_argument=next(iter(self._parameters.names), None),
        )

    @property
    def spec(self) -> ToolSpec:
        """Effect, name and timeout as the decorator says; calls are told apart by the first parameter."""
        return self._spec

    def isolated(self, isolation: Isolation) -> "PythonFunction":
        """Return a tool of the same function that runs there.

        Raises:
            ValueError: A process could not import it.
        """
        return PythonFunction(self._function, path=self._path, isolation=isolation, code_digest=self.code_digest)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Return the function's result: a string as it is, anything else as JSON.

        Raises:
            ToolError: Kind is the exception's class; an OSError (so a TimeoutError or ConnectionError) is retryable.
        """
        return await self._run(arguments, context)

    def call_here(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Call the function in this thread; otherwise as `call`."""
        values = self._parameters.keyword_arguments(arguments, context)
        with failures_told(self._spec.name):
            result = self._function(**values)
            result = asyncio.run(result) if self._is_async else result
        return as_output(self._spec.name, result)

    async def _await(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        values = self._parameters.keyword_arguments(arguments, context)
        with failures_told(self._spec.name):
            result = await self._function(**values)
        return as_output(self._spec.name, result)

    def _runner(self, place: Isolation | None, name: str) -> Run:
        if place == "process":
            return FunctionProcess(name, self._path or path_of(self._function)).run
        if place is None:
            return self._await
        threads = OwnThreads[ToolOutput](name)
        return lambda arguments, context: threads.run(partial(self.call_here, arguments, context))


def _activity_name(function: Callable[..., Any]) -> str | None:
    """Return the name of one that is a Temporal activity, too."""
    definition = activity._Definition.from_callable(function)  # pyright: ignore[reportUnknownMemberType]
    return definition.name if definition else None


def _options(marks: ToolMarks, place: Isolation | None) -> ToolOptions:
    said = {"timeout_s": marks.timeout_s, "isolation": place}
    return ToolOptions.model_validate({key: value for key, value in said.items() if value is not None})


def load_function(path: str, folders: Sequence[Path] = ()) -> PythonFunction:
    """Import `package.module:function`, from `folders` where it is not installed, and return it as a tool.

    Raises:
        ValueError: With the path, what is wrong and what to change.
    """
    try:
        function, digest = imported(path, folders)
        return PythonFunction(function, path=path, code_digest=digest)
    except ValueError as error:
        raise ValueError(f"tool {path!r}: {error}") from error
