"""Functions whose result is a promise: a coroutine, a generator, or an object that has to be waited for."""

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from temporalio import activity

from orga.activities.tools_api import Media, tool
from tests.support.values.pictures import a_png


async def write(path: str, text: str = "done") -> str:
    """Have the effect that the tests look for.

    Args:
        path: Where.
        text: What is written.
    """
    await asyncio.sleep(0)
    Path(path).write_text(text)
    return text


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function as decorators of applications do, which do not ask whether it is `async`."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@tool(name="wrapped")
@logged
async def wrapped(path: str) -> str:
    return await write(path)


def returns_coroutine(path: str) -> Coroutine[Any, Any, str]:
    return write(path)


bound = functools.partial(write, text="done")
bound_wrapper = functools.partial(logged(write), text="done")


class Writer:
    async def __call__(self, path: str) -> str:
        """Write.

        Args:
            path: Where.
        """
        return await write(path)


class PlainWriter:
    def __call__(self, path: str) -> Awaitable[str]:
        return write(path)

    def method(self, path: str) -> Awaitable[str]:
        return write(path)


writer, plain_writer = Writer(), PlainWriter()
method = plain_writer.method


class Later:
    """Awaitable, and no coroutine."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __await__(self) -> Generator[Any, None, str]:
        return write(self._path).__await__()


def returns_awaitable(path: str) -> Later:
    return Later(path)


async def returns_another_promise(path: str) -> Coroutine[Any, Any, str]:
    return write(path)


def returns_future(path: str) -> "Future[str]":
    def late() -> str:
        time.sleep(0.05)
        Path(path).write_text("done")
        return "done"

    return ThreadPoolExecutor(1).submit(late)


def yields(path: str) -> Iterator[str]:
    Path(path).write_text("done")
    yield "a"
    yield "b"


async def yields_async(path: str) -> AsyncIterator[str]:
    yield "a"
    await write(path)
    yield "b"


async def returns_generator(path: str) -> Iterator[str]:
    return yields(path)


def maps(path: str) -> Iterator[str]:
    return map(str, yields(path))


def holds_generator(path: str) -> dict[str, Any]:
    return {"lines": yields(path)}


class Lines:
    def __init__(self, path: str) -> None:
        self._path = path

    def __iter__(self) -> Iterator[str]:
        return yields(self._path)


def returns_iterable(path: str) -> Lines:
    return Lines(path)


@activity.defn
async def as_activity(path: str) -> str:
    return await write(path)


as_wrapped_activity = logged(as_activity)


@activity.defn
def yields_as_activity(path: str) -> Iterator[str]:
    return yields(path)


@tool(blocking=True)
def blocking(path: str) -> Awaitable[str]:
    return write(path)


def fails_midway(path: str) -> Iterator[str]:
    yield "a"
    Path(path).write_text("half")
    raise ConnectionError("the line broke")


async def fails_midway_async(path: str) -> AsyncIterator[str]:
    for each in fails_midway(path):
        yield each


def holds_failing_generator(path: str) -> list[Any]:
    return [fails_midway(path)]


def fails_late(path: str) -> Coroutine[Any, Any, None]:
    async def late() -> None:
        Path(path).write_text("half")
        raise ConnectionError("the line broke")

    return late()


def holds_coroutine(path: str) -> dict[str, Any]:
    return {"sent": [write(path)]}


def never_ends(path: str) -> Iterator[int]:
    Path(path).write_text("half")
    while True:
        yield 1


async def never_ends_async(path: str) -> AsyncIterator[int]:
    for each in never_ends(path):
        yield each


def draws(width: int) -> list[object]:
    """Draw a chart."""
    return ["drawn", Media(a_png(width), "chart.png"), {"n": 1}]
