"""The arguments of signals and updates are parsed only if they can matter, and that check takes almost no time."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio.api.common.v1 import Payload
from temporalio.bridge.proto.workflow_activation import WorkflowActivation

from orga.client.history.values import (
    MAX_UPDATE_BYTES,
    UnreadablePayload,
    bound_activation,
    bounded_payloads,
    data_converter,
)
from orga.workflows.decisions import limits, result
from orga.workflows.decisions.begin import is_fork
from orga.workflows.decisions.control import interventions, questions
from orga.workflows.decisions.tool_calls import call_questions, recovery
from orga.workflows.types.input import parse_input
from orga.workflows.types.past import parse_fork
from orga.workflows.types.record import InvalidInput
from tests.support.values.core import a_state, at
from tests.support.values.odd_payloads import SMALL, odd, quoted

HELD_S = 1.0
"""Seconds. A workflow task may take two."""

IN_A_HISTORY = 26
"""Payloads of almost 2 MB. Then the history is full."""

ODD = odd(1_900_000)

LONGEST = {
    "a resolution": {"escalation_id": "x" * 1_000, "result": '"' * 100_000, "reason": "\x01" * 2_000},
    "a rewind": {"to_iteration": 1, "boundary_at": "x", "left": [',"[{' * 125] * 50, "steer": "\x01" * 50_000},
    "a list of lists": [[1, {"a": None}]] * 200,
    "a number": 17,
    "the largest number": 10**399,
    "a text": "[{," * 600_000,
}  # fmt: skip


def payload(data: bytes) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=data)


def read(data: bytes) -> Any:
    return data_converter.payload_converter.from_payloads(bounded_payloads([payload(data)]))[0]


@pytest.mark.parametrize("value", LONGEST.values(), ids=LONGEST.keys())
def test_a_meaningful_argument_is_parsed(value: Any) -> None:
    assert read(json.dumps(value).encode()) == value


@pytest.mark.parametrize("kind", [kind for kind, data in ODD.items() if not data.startswith(b'"')])
@pytest.mark.parametrize("size", [20_000, 200_000, 1_900_000])
def test_a_meaningless_argument_is_not_parsed(kind: str, size: int) -> None:
    assert read(odd(size)[kind]) == f"[not read: an argument of {len(odd(size)[kind])} bytes that is no text]"


BROKEN = [
    b'["' + b'\\"' * 300_000, b'["\\', b"[" + b'"\\\\"' * 150_000, b"9" * 700_000, b'"', b'["' + b"x" * 690_000,
]  # fmt: skip


@pytest.mark.parametrize("data", [*ODD.values(), *BROKEN, *SMALL.values()])
def test_a_history_full_of_such_arguments_is_read_within_a_workflow_task(data: bytes) -> None:
    """From the wire to the inbox, as in the SDK. The best of three counts because of the garbage collector."""

    def seconds() -> float:
        began = time.process_time()
        interventions.intervention("steer", (read(data),))
        interventions.parse_rewind(read(data))
        return time.process_time() - began

    assert any(seconds() * IN_A_HISTORY / 2 < 1.5 for _ in range(3))


def test_an_update_that_is_too_large_to_be_answered_is_removed() -> None:
    activation = WorkflowActivation()
    for name, size in (("first", 10), ("large", MAX_UPDATE_BYTES), ("last", 10)):
        update = activation.jobs.add().do_update
        update.name = name
        update.input.append(payload(quoted("x", size)))
    activation.jobs.add().signal_workflow.input.append(payload(ODD["lists"]))
    bound_activation(activation)
    assert [job.do_update.name for job in activation.jobs] == ["first", "last", ""]
    assert b"not read" in activation.jobs[2].signal_workflow.input[0].data


def argument_positions(data: bytes) -> list[Any]:
    """Return the argument on its own and as the value of several keys."""
    value = read(data)
    return [value, {"escalation_id": value, "choice": "skip"}, {"max_iterations": value}, {"limit": value}]


CHECKS: dict[str, Callable[[Any], object]] = {
    "extend_budget": lambda raw: limits.parsed_extension(a_state(), raw),
    "resolve_escalation": lambda raw: questions.parsed_resolution(a_state(), raw),
    "complete_tool_call": lambda raw: call_questions.parsed_completion(a_state(), raw),
    "approve": lambda raw: questions.parsed_decision(a_state(), raw, at(0)),
    "requeue": lambda raw: recovery.with_requeued_letter(a_state(), recovery.parsed_letter_id(raw)),
    "conversation": lambda raw: result.parsed_page([] if raw is None else raw),
}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS.keys())
@pytest.mark.parametrize("kind", [kind for kind in (*ODD, *SMALL) if kind != "null"])
def test_a_refusal_is_short_and_quick(check: Callable[[Any], object], kind: str) -> None:
    for given in argument_positions({**ODD, **SMALL}[kind]):
        if not given:
            continue
        began = time.process_time()
        with pytest.raises(ValueError, match=r".") as refused:
            check(given)
        assert time.process_time() - began < HELD_S
        assert len(str(refused.value)) < 12_000


def decoded(data: bytes) -> Any:
    """Return an input as the workflow gets it. Everything in the input of a starter is parsed."""
    return data_converter.payload_converter.from_payloads([payload(data)])[0]


FIELDS = ["task", "agent", "model", "instructions", "tools", "config", "trusted_context", "output_schema", "tenant",
          "lineage", "fork", "unknown"]  # fmt: skip
IN_CONFIG = ["max_iterations", "timeout_s", "temperature", "max_cost_usd", "recovery", "tool_profile", "pre_hydration",
             "step_iteration", "knowledge", "context_strategy"]  # fmt: skip
PLACES: dict[str, Callable[[Any], Any]] = {
    "input": lambda value: value,
    **{key: lambda value, key=key: {"task": "t", key: value} for key in FIELDS},
    **{f"config.{key}": lambda value, key=key: {"task": "t", "config": {key: value}} for key in IN_CONFIG},
    "lists of trusted_context": lambda value: {"task": "t", "trusted_context": {"a": [value, {"b": [value]}]}},
    "names of tools": lambda value: {"task": "t", "tools": [value]},
    "globs": lambda value: {"task": "t", "config": {"tool_profile": {"include": [value]}}},
    "tools of pre_hydration": lambda value: {"task": "t", "config": {"pre_hydration": {"resolution_tools": value}}},
    "delegated": lambda value: {"task": "t", "lineage": {"parent": value, "depth": value, "chain": [value]}},
    "fork": lambda value: {"fork": {"workflow_id": "w", "iteration": 1}, "trusted_context": {"a": value}},
    "fork.requeue": lambda value: {"fork": {"workflow_id": "w", "iteration": 1, "requeue": [value]}},
    "fork.iteration": lambda value: {"fork": {"workflow_id": value, "iteration": value, "run_id": value}},
}
MANY = {
    "10**6 entries": [0] * 10**6,
    "many lists": [[0] * 900] * 1_000,
    "many objects": [{"a": 0}] * 900_000,
    "a letter id of 5,000": "9" * 5_000,
    "2**70": 2**70,
    "-2**70": -(2**70),
    "texts": ["x" * 999] * 900,
    "objects of objects": [[{"a": {"b": 0}}] * 700] * 50,
    "keys": {f"{n}": n for n in range(10**5)},
    "a long key": {"x" * 5_000: 1},
    "half a character": "\ud800",
    "a key of half a character": {"\ud800": 1},
    "stars": ["*" * 200 + "Z"] * 1_000,
}
JSON = {kind: decoded(data) for kind, data in {**ODD, **SMALL}.items()}
GIVEN = {**MANY, **{kind: value for kind, value in JSON.items() if not isinstance(value, UnreadablePayload)}}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
@pytest.mark.parametrize("kind", GIVEN)
def test_any_input_of_a_starter_is_judged_quickly(place: Callable[[Any], Any], kind: str) -> None:
    """It is accepted, or refused with a short text. An accepted run can be written to a history and read again."""
    given = place(GIVEN[kind])
    began = time.process_time()
    taken, refused = judged(given)
    assert time.process_time() - began < HELD_S
    assert taken or 0 < len(refused.encode()) < 12_000
    if taken:
        assert type(taken).model_validate_json(taken.model_dump_json(exclude_unset=True)) == taken


def judged(given: Any) -> tuple[BaseModel | None, str]:
    try:
        return (parse_fork(given) if is_fork(given) else parse_input(given)), ""
    except InvalidInput as error:
        return None, str(error)


def test_a_start_with_too_many_values_is_refused() -> None:
    with pytest.raises(InvalidInput, match="more than 50,000 values"):
        parse_input({"task": "t", "trusted_context": {"a": MANY["many lists"]}})
