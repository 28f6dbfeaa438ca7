"""Functions that users might offer as tools, good and bad ones, imported by path."""

import asyncio
import enum
import functools
import sys
import threading
from collections.abc import Callable
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from orga.activities.tools_api import ToolContext, ToolError, tool


class Unit(enum.Enum):
    CELSIUS = "c"
    KELVIN = "k"


class Place(BaseModel):
    city: str
    country: str = "AT"


@tool(effect="read_only", timeout_s=5)
def weather(place: Place, day: date, unit: Unit = Unit.CELSIUS, hours: int = 24) -> dict[str, Any]:
    """Forecast the weather
    of one day.

    More that the model need not know.

    Args:
        place: Where.
        day (date): The day,
            in the local calendar.
        hours: How many hours: at most 24.

    Returns:
        place: not a parameter.
    """
    return {"city": place.city, "year": day.year, "unit": unit.name, "hours": hours}


async def plain(text: str, times: Annotated[int, Field(ge=1, le=3, description="How often.")] = 1) -> str:
    await asyncio.sleep(0)
    return text * times


def thread_name(copy: str, _x: int = 0) -> str:
    return f"{threading.current_thread() is threading.main_thread()} {copy} {_x}"


def with_context(text: str, context: ToolContext) -> str:
    context.heartbeat("half way")
    return f"{text} {context.idempotency_key}"


def optional_context(context: ToolContext | None = None) -> str:
    return "none" if context is None else context.call_id


@tool(name="renamed-tool", effect="idempotent")
def badly_named(mode: Literal["a", "b"]) -> None:
    """Do it."""


def raises(kind: str) -> str:
    if kind == "tool":
        raise ToolError("told", kind="Mine", retryable=True)
    if kind == "exit":
        sys.exit(3)
    errors: dict[str, Exception] = {
        "value": ValueError("wrong"),
        "os": OSError("disk"),
        "timeout": TimeoutError("slow"),
        "connection": ConnectionResetError("gone"),
        "stop": StopIteration(),
    }
    raise errors[kind]


async def raises_async(kind: str) -> str:
    return raises(kind)


def returns(what: str) -> Any:
    return {"list": [1, "a"], "none": None, "number": 1.5, "object": object(), "model": Place(city="Graz")}[what]


def unannotated(a: str, b) -> str:  # type: ignore[no-untyped-def]  # pyright: ignore
    return a


def star(*args: str) -> str:
    return ""


def double_star(**kwargs: str) -> str:
    return ""


def positional(a: str, /) -> str:
    return a


def unresolvable(a: "Nowhere") -> str:  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore
    return ""


def without_schema(a: Callable[[int], int]) -> str:
    return ""


@tool(name="bad name")
def bad_name(a: str) -> str:
    return a


class Calculator:
    async def __call__(self, a: int, b: int) -> int:
        """Add."""
        return a + b

    def double(self, a: int) -> int:
        return 2 * a


calculator = Calculator()
partial = functools.partial(thread_name, "x")
NUMBER = 3
