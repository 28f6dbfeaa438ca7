"""What became of a Python function's call: its result as text, its exception as a ToolError.

A result may be a promise: a coroutine or a generator has done nothing yet. `settled` and `as_output` carry it out
before anything is reported, so that the report is about the effect.
"""

import asyncio
import inspect
from base64 import b64encode
from collections.abc import AsyncIterable, Collection, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from enum import Enum
from math import isfinite, isnan
from pathlib import PurePath
from typing import Any, cast

from pydantic import BaseModel
from pydantic_core import to_json, to_jsonable_python

from orga.activities.ports import Acted, ToolError
from orga.workflows.types.text import clean_text
from orga.workflows.types.tools import ToolOutput

MAX_VALUES = 1_000_000
"""Of a result, those that a generator yields included; a model is shown 500,000 bytes at most."""

MAX_DEPTH = 100
"""Lists and objects inside each other."""

_GAPS = frozenset({"NaTType", "NAType"})
"""Types of what stands for nothing in a table of pandas; one of them passes for a date that has no day."""

_TOO_MANY = f"more than {MAX_VALUES:,} values; have it return less"


@contextmanager
def failures_told(name: str) -> Generator[None]:
    """Turn exceptions into ToolError where they are raised: SystemExit further up would end the worker."""
    try:
        yield
    except ToolError:
        raise
    except (Exception, SystemExit) as error:
        kind = type(error).__name__
        told = f"{name} failed: {kind}: {error}"
        raise ToolError(told, kind=kind, retryable=isinstance(error, OSError), acted="maybe") from error


def is_promise(result: Any) -> bool:
    """Return whether an event loop is needed to get at the result."""
    return isinstance(result, (AsyncIterable, Future)) or inspect.isawaitable(result)


async def settled(name: str, result: Any) -> ToolOutput:
    """Return the output of a call, once all that it promised is done."""
    while is_promise(result):
        if inspect.isawaitable(result):
            result = await result
        elif isinstance(result, Future):
            result = await asyncio.wrap_future(cast("Future[Any]", result))
        else:
            result = await _collected(name, result)
    if isinstance(result, Iterator):  # its body is code that blocks
        return await asyncio.to_thread(as_output, name, result)
    return as_output(name, result)


async def _collected(name: str, results: AsyncIterable[Any]) -> list[Any]:
    found: list[Any] = []
    iterator: Any = aiter(results)
    try:
        async for each in iterator:
            found.append(each)
            if len(found) > MAX_VALUES:
                raise _unusable(name, _TOO_MANY, "maybe")
    finally:
        if hasattr(iterator, "aclose"):
            await iterator.aclose()
    return found


def as_output(name: str, result: Any) -> ToolOutput:
    """Return a string as it is, anything else as JSON. What iterates is collected.

    Raises:
        ToolError: Kind InvalidResult.
    """
    if isinstance(result, ToolOutput):
        return result
    if isinstance(result, str):
        return ToolOutput(content=result)
    return ToolOutput(content=to_json(_Conversion(name).value(result)).decode())


def _unusable(name: str, what: str, acted: Acted) -> ToolError:
    return ToolError(f"{name} returned {what}", kind="InvalidResult", acted=acted)


class _Conversion:
    """One result on its way to JSON: numbers that JSON lacks become text, text becomes valid."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._left = MAX_VALUES
        self._inside: set[int] = set()
        """Ids of the values that hold the present one."""
        self._acted: Acted = "yes"
        """What a refusal reports: a value that may be a promise leaves open what was done."""

    def value(self, given: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise self._refusal(_TOO_MANY)
        if given is None or isinstance(given, (bool, int)):
            return given
        if isinstance(given, float):
            return given if isfinite(given) else "NaN" if isnan(given) else f"{'-' * (given < 0)}Infinity"
        if (isinstance(given, (str, PurePath)) and not isinstance(given, Enum)) or type(given).__name__ in _GAPS:
            return clean_text(str(given))
        if isinstance(given, (bytes, bytearray, memoryview)):
            return _text_of(bytes(cast("bytes", given)))
        return self._held(given)

    def _held(self, given: Any) -> Any:
        """Convert what may hold other values, unless it holds itself."""
        if id(given) in self._inside:
            raise self._refusal("a value that holds itself; have it return text or plain JSON")
        if len(self._inside) == MAX_DEPTH:
            raise self._refusal(f"a value that is nested more than {MAX_DEPTH} deep; have it return less")
        self._inside.add(id(given))
        try:
            return self._composed(given)
        finally:
            self._inside.discard(id(given))

    def _composed(self, given: Any) -> Any:
        if isinstance(given, (BaseModel, Enum)):
            return self.value(_fields_of(given) if isinstance(given, BaseModel) else given.value)
        if is_dataclass(given) and not isinstance(given, type):
            return {each.name: self.value(getattr(given, each.name)) for each in fields(given)}
        if isinstance(given, Mapping):
            items = cast("Mapping[Any, Any]", given).items()
            return {self._key(key): self.value(item) for key, item in items}
        if (plain := self._without_library(given)) is not given:
            return str(given) if type(plain) is type(given) else self.value(plain)
        if isinstance(given, Iterable) and not isinstance(given, type):
            if not isinstance(given, Collection):
                self._acted = "maybe"
            return [self.value(each) for each in cast("Iterable[Any]", given)]
        return self._atom(given)

    def _without_library(self, given: Any) -> Any:
        """Return arrays, scalars and tables of numpy, pandas, polars, torch and Arrow as lists, numbers and rows."""
        if not any(hasattr(given, each) for each in ("tolist", "to_list", "to_dict", "to_dicts", "to_pylist")):
            return given
        if isinstance(size := getattr(given, "size", 0), int) and size > self._left:
            raise self._refusal(_TOO_MANY)
        if getattr(getattr(given, "dtype", None), "kind", "") in ("M", "m"):
            given = given.astype(str)  # as numbers, moments in nanoseconds would lose their unit
        if hasattr(given, "index") and hasattr(given, "to_dict"):  # of pandas
            has_labels = type(given.index).__name__ != "RangeIndex"
            if hasattr(given, "columns"):
                return (given.reset_index() if has_labels else given).to_dict("records")
            return given.to_dict() if has_labels else given.tolist()
        name = next(each for each in ("tolist", "to_dicts", "to_list", "to_pylist", "to_dict") if hasattr(given, each))
        return getattr(given, name)()

    def _key(self, given: Any) -> str:
        key = self.value(given)
        return key if isinstance(key, str) else to_json(key).decode()

    def _atom(self, given: Any) -> Any:
        """Return a date, a path, a decimal and the like as pydantic writes it."""
        if is_promise(given):
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
        return self.value(plain)

    def _refusal(self, what: str) -> ToolError:
        return _unusable(self._name, what, self._acted)


def _fields_of(model: BaseModel) -> Any:
    try:
        return model.model_dump(mode="json", by_alias=True)
    except ValueError:  # a field holds bytes, an array, or what only we can write
        return model.model_dump(by_alias=True)


def _text_of(data: bytes) -> str:
    try:
        return clean_text(data.decode())
    except UnicodeDecodeError:
        return b64encode(data).decode()
