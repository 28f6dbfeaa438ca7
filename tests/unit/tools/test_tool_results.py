"""Results of Python functions: pending work is finished before the result is reported, and every value becomes text."""

import enum
import json
import math
from collections import UserDict, deque
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pytest
from pydantic import BaseModel

from orga.activities.adapters.tools.python_function import (
    MAX_VALUES,
    Isolation,
    PythonFunction,
    as_output,
    load_function,
)
from orga.activities.ports import ToolError
from orga.own_code import ROOT
from tests.support.tools.calls import CONTEXT, failure, result
from tests.support.values.pictures import a_png

PLACES: list[Isolation | None] = [None, "thread", "process"]


def load(name: str, place: Isolation | None) -> PythonFunction:
    loaded = load_function(f"tests.support.tools.lazy:{name}")
    return loaded.with_isolation(place) if place else loaded


async def test_the_guide_shows_a_tool_that_returns_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scans").mkdir()
    (tmp_path / "scans" / "7.png").write_bytes(a_png())
    monkeypatch.chdir(tmp_path)
    guide = (ROOT / "docs" / "your-own-tools.md").read_text().split("## Pictures and documents")[1]
    namespace: dict[str, Any] = {}
    exec(guide.split("```python\n")[1].split("```")[0], namespace)
    output = await PythonFunction(namespace["page"]).call({"number": 7}, CONTEXT)
    assert (output.content, [part.name for part in output.media]) == ("Page 7:", ["7.png"])


@pytest.mark.parametrize("place", PLACES)
async def test_a_picture_is_returned_next_to_text(place: Isolation | None) -> None:
    output = await load("draws", place).call({"width": 5}, CONTEXT)
    assert (output.content, [part.line() for part in output.media]) == (
        'drawn\n{"n":1}',
        [f"[image chart.png, 5x3, {len(a_png(5))} bytes]"],
    )


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((name, "done") for name in ("write", "wrapped", "returns_coroutine", "bound")),
        *((name, "done") for name in ("bound_wrapper", "writer", "plain_writer", "method", "returns_awaitable")),
        *((name, "done") for name in ("returns_another_promise", "returns_future", "as_activity", "blocking")),
        ("as_wrapped_activity", "done"),
        *((name, '["a","b"]') for name in ("yields", "yields_async", "returns_generator", "maps", "returns_iterable")),
        ("yields_as_activity", '["a","b"]'),
        ("holds_generator", '{"lines":["a","b"]}'),
    ],
)
async def test_pending_work_of_a_function_is_finished_before_its_result_is_reported(
    name: str, expected: str, place: Isolation | None, tmp_path: Path
) -> None:
    if place == "process" and name not in ("wrapped", "bound", "plain_writer", "yields_async", "as_activity", "maps"):
        place = "thread"  # a process is slow to start, and calls the function as a thread does
    effect = tmp_path / "effect"
    assert await result(load(name, place), path=str(effect)) == expected
    assert effect.read_text() == "done"


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["fails_midway", "fails_midway_async", "holds_failing_generator", "fails_late"])
async def test_pending_work_that_fails_midway_reports_its_error(
    name: str, place: Isolation | None, tmp_path: Path
) -> None:
    if place == "process" and name != "fails_midway_async":
        place = "thread"
    effect = tmp_path / "effect"
    error = await failure(load(name, place), path=str(effect))
    assert (error.kind, error.retryable, error.acted) == ("ConnectionError", True, "maybe")
    assert str(error) == f"{name} failed: ConnectionError: the line broke"
    assert effect.read_text() == "half"


async def test_a_coroutine_inside_a_result_is_refused(tmp_path: Path) -> None:
    effect = tmp_path / "effect"
    error = await failure(load("holds_coroutine", None), path=str(effect))
    assert (error.kind, error.acted) == ("InvalidResult", "maybe")
    assert "coroutine inside its result, which nothing awaits" in str(error)
    assert not effect.exists()


@pytest.mark.parametrize("name", ["never_ends", "never_ends_async"])
async def test_an_endless_generator_is_cut_off(name: str, tmp_path: Path) -> None:
    error = await failure(load(name, None), path=str(tmp_path / "effect"))
    assert (error.kind, error.acted) == ("InvalidResult", "maybe")
    assert str(error) == f"{name} returned more than 1,000,000 values; have it return less"


def test_a_partial_is_offered_without_its_fixed_arguments() -> None:
    spec = load("bound", None).spec
    assert (spec.name, spec.description) == ("write", "Have the effect that the tests look for.")
    assert spec.parameters["properties"] == {"path": {"type": "string", "description": "Where."}}


_ID = UUID(int=1)


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclass
class Order:
    number: Any
    note: str = "n\ud800"


class Parcel(BaseModel):
    content: Any


class Part:
    """An object of a library that can convert itself to a dict."""

    def to_dict(self) -> dict[str, Any]:
        return {"id": 7}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(["a\ud800"], ["a�"], id="a lone surrogate in a list"),
        pytest.param({"k\udfff": {"\ud800": "\ud800"}}, {"k�": {"�": "�"}}, id="in keys and values"),
        pytest.param(("a", {"b"}, frozenset(["\ud83d"]), deque([1])), ["a", ["b"], ["�"], [1]], id="in containers"),
        pytest.param(Order(np.int64(1)), {"number": 1, "note": "n�"}, id="in a dataclass"),
        pytest.param(Parcel(content={"\ud800": b"\xff\x00"}), {"content": {"�": "/wA="}}, id="in a model, with bytes"),
        pytest.param([math.nan, math.inf, -math.inf], ["NaN", "Infinity", "-Infinity"], id="numbers that JSON lacks"),
        pytest.param([np.float64(1.5), np.int8(2), np.bool_(True), np.str_("s")], [1.5, 2, True, "s"], id="scalars"),
        pytest.param(np.float32("nan"), "NaN", id="a scalar NaN"),
        pytest.param([np.float64("inf"), np.float64("-inf")], ["Infinity", "-Infinity"], id="infinite scalars"),
        pytest.param(np.longdouble(0.5), "0.5", id="a scalar without a Python type"),
        pytest.param(np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]], id="an array"),
        pytest.param({np.int64(3): np.array([np.nan, 1])}, {"3": ["NaN", 1.0]}, id="a key, and an array with a gap"),
        pytest.param(np.array([{"a": np.int64(1)}, None]), [{"a": 1}, None], id="an array of objects"),
        pytest.param(np.array([1 + 2j]), ["1+2j"], id="complex numbers"),
        pytest.param(
            np.array(["2024-05-06T07:08:09.000000001", "NaT"], "datetime64[ns]"),
            ["2024-05-06T07:08:09.000000001", "NaT"],
            id="moments",
        ),
        pytest.param(np.datetime64("2024-05-06"), "2024-05-06", id="a moment"),
        pytest.param(np.timedelta64(90, "s"), "90 seconds", id="a duration"),
        pytest.param(
            [datetime(2024, 5, 6, tzinfo=UTC), timedelta(seconds=90), Decimal("1.10"), PurePosixPath("/a"), _ID],
            ["2024-05-06T00:00:00Z", "PT1M30S", "1.10", "/a", str(_ID)],
            id="values that are text",
        ),
        pytest.param([b"text", bytearray(b"\xff\x00"), memoryview(b"m")], ["text", "/wA=", "m"], id="bytes"),
        pytest.param([Colour.RED, Level.HIGH, {Colour.RED: 1}], ["red", 3, {"red": 1}], id="enumerations"),
        pytest.param({None: 1, (1, 2): 2, True: 3}, {"null": 1, "[1,2]": 2, "true": 3}, id="keys that are not text"),
        pytest.param([range(2), {"a": 1}.keys(), MappingProxyType({"a": 1}), UserDict(a=1)],
                     [[0, 1], ["a"], {"a": 1}, {"a": 1}], id="views and other mappings"),
        pytest.param(
            pd.DataFrame({"a": [1, 2], "at": [pd.Timestamp("2024-05-06"), pd.NaT]}),
            [{"a": 1, "at": "2024-05-06T00:00:00"}, {"a": 2, "at": "NaT"}],
            id="a data frame",
        ),
        pytest.param(
            {"sums": pd.DataFrame({"n": [3]}, index=pd.Index(["Graz"], name="city"))},
            {"sums": [{"city": "Graz", "n": 3}]},
            id="a data frame with labels as data",
        ),
        pytest.param([pd.Series([1, None]), pd.Series([3], ["x"])], [[1.0, "NaN"], {"x": 3}], id="columns"),
        pytest.param([pd.NA], ["<NA>"], id="a gap"),
        pytest.param(pd.Timestamp("2024-05-06", tz="UTC"), "2024-05-06T00:00:00Z", id="a moment of pandas"),
        pytest.param([Part()], [{"id": 7}], id="an object with a to_dict method"),
        pytest.param([_ID, _ID], [str(_ID), str(_ID)], id="the same value twice is no cycle"),
    ],
)  # fmt: skip
def test_every_value_becomes_json(given: Any, expected: Any) -> None:
    content = as_output("f", given).content
    assert json.loads(content) == expected
    assert content.encode()


def circle() -> list[Any]:
    found: list[Any] = []
    found += [found, found]
    return found


def deep(levels: int) -> Any:
    return [deep(levels - 1)] if levels else []


@pytest.mark.parametrize(
    ("given", "why", "acted"),
    [
        pytest.param(circle(), "a value that holds itself", "yes", id="circle"),
        pytest.param(deep(500), "nested more than 100 deep", "yes", id="depth"),
        pytest.param(np.zeros(MAX_VALUES + 1), "more than 1,000,000 values", "yes", id="a large array"),
        pytest.param([object()], "object, which is no JSON", "maybe", id="an object"),
        pytest.param(lambda: None, "function, which is no JSON", "maybe", id="a function"),
    ],
)
def test_a_value_that_cannot_become_text_is_refused_with_the_reason(given: Any, why: str, acted: str) -> None:
    with pytest.raises(ToolError, match=why) as caught:
        as_output("f", given)
    assert (caught.value.kind, caught.value.acted) == ("InvalidResult", acted)
