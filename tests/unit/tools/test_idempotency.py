"""Idempotency keys: all attempts of a call share one, and two calls never share one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.workflows.decisions.tool_calls.calls import KEY_CHARS, idempotency_key
from orga.workflows.types.messages import ToolCall
from tests.support.values.core import a_call
from tests.support.values.strategies import LAW, calls

KEY = idempotency_key("run", "3.0", a_call(path="a"))


@pytest.mark.parametrize(
    ("origin", "iteration", "index", "call"),
    [
        pytest.param("other", 3, 0, a_call(path="a"), id="another run"),
        pytest.param("run", 4, 0, a_call(path="a"), id="another iteration"),
        pytest.param("run", 3, 1, a_call(path="a"), id="the same call again in one reply"),
        pytest.param("run", 3, 0, a_call("write", path="a"), id="another tool"),
        pytest.param("run", 3, 0, a_call(path="b"), id="other arguments after a rewind"),
        pytest.param("run", 3, 0, a_call(path="a", more=None), id="one more argument"),
    ],
)
def test_another_call_has_another_key(origin: str, iteration: int, index: int, call: ToolCall) -> None:
    assert idempotency_key(origin, f"{iteration}.{index}", call) != KEY


def test_the_model_s_call_id_is_not_part_of_the_key() -> None:
    """A rewound run proposes the same call with a new id. The call must not take effect twice."""
    assert idempotency_key("run", "3.0", a_call("read", "another id", path="a")) == KEY


@LAW
@given(calls, st.integers(1, 10**6), st.integers(0, 31))
def test_the_key_is_the_same_after_a_round_trip_through_the_history(call: ToolCall, iteration: int, index: int) -> None:
    read = ToolCall.model_validate_json(call.model_dump_json(exclude_unset=True))
    key = idempotency_key("run", f"{iteration}.{index}", call)
    assert idempotency_key("run", f"{iteration}.{index}", read) == key
    assert len(key) == KEY_CHARS
    assert key.isalnum()
    assert key.isascii()


def test_special_float_arguments_have_distinct_keys() -> None:
    keys = {idempotency_key("run", "1.0", a_call(x=float(x))) for x in ("nan", "inf", "-inf", "0")}
    assert len(keys) == 4


def test_the_key_of_recorded_histories_is_unchanged() -> None:
    """A worker of another version retries the same call with the same key."""
    assert KEY == "76c1a44b633c068b29aa52daf88f1d32"
