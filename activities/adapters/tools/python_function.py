"""A Python function as a tool, by its import path `package.module:function`."""

import asyncio
import inspect
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from temporalio import activity

from orga.activities.adapters.tools.function_outcome import as_output, failures_told, is_promise, settled
from orga.activities.adapters.tools.function_parameters import FunctionParameters, docstrings, layers, summary
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
        marks = marks_of(*layers(function))
        name = marks.name or _activity_name(function) or _own_name(function)
        if not _NAME.fullmatch(name):
            raise ValueError(
                f'the name {name!r} does not match ^[a-zA-Z0-9_-]{{1,64}}$; set one with @tool(name="...")'
            )
        self._function = function
        self._path = path
        self.code_digest = code_digest
        self._parameters = FunctionParameters(function)
        place = isolation or ("process" if marks.blocking else None if _is_async(function) else "thread")
        self._run = self._runner(place, name, is_chosen=isolation is not None)
        self._spec = ToolSpec(
            name=name,
            description=summary(next(iter(docstrings(function)), "")),
            parameters=self._parameters.schema,
            effect=marks.effect,
            options=_options(marks, place),
            main_argument=next(iter(self._parameters.schema["properties"]), None),
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
        """Carry out the whole call in this thread; otherwise as `call`."""
        with failures_told(self._spec.name):
            result = self._called(arguments, context)
            return asyncio.run(settled(self._spec.name, result)) if is_promise(result) else result

    def _called(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Call the function, and return its output, or the promise that it returned."""
        args, kwargs = self._parameters.bind(arguments, context)
        with failures_told(self._spec.name):
            result = self._function(*args, **kwargs)
            return result if is_promise(result) else as_output(self._spec.name, result)

    async def _await(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        args, kwargs = self._parameters.bind(arguments, context)
        with failures_told(self._spec.name):
            return await settled(self._spec.name, self._function(*args, **kwargs))

    def _runner(self, place: Isolation | None, name: str, *, is_chosen: bool) -> Run:
        if place == "process":
            return FunctionProcess(name, self._path or path_of(self._function)).run
        if place is None:
            return self._await
        threads = OwnThreads[Any](name)
        if is_chosen:
            return lambda arguments, context: threads.run(partial(self.call_here, arguments, context))

        async def run(arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
            """Await what a plain wrapper of an `async` function returns here, where its other users' loop runs."""
            with failures_told(name):
                return await settled(name, await threads.run(partial(self._called, arguments, context)))

        return run


def _is_async(function: Callable[..., Any]) -> bool:
    return any(inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in layers(function))


def _activity_name(function: Callable[..., Any]) -> str | None:
    """Return the name of one that is a Temporal activity, too."""
    for each in layers(function):
        if definition := activity._Definition.from_callable(each):  # pyright: ignore[reportUnknownMemberType]
            return definition.name
    return None


def _own_name(function: Callable[..., Any]) -> str:
    """Return the name of a function, of an object that of its class; a `partial` has one only if it was given it."""
    named = (each for each in layers(function) if hasattr(each, "__name__") or not isinstance(each, partial))
    first = next(named)
    return getattr(first, "__name__", type(first).__name__)


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
