"""The calls of a round: planned calls are made unchanged, and the model proposes the others."""

from typing import Any

import pytest

from orga.activities.goals import with_planned_calls
from orga.workflows.types.context import ContextRef
from orga.workflows.types.goals.requests import GoalRequest
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.parts import Part, ThinkingPart, text_part


def planned(at: str, name: str = "look") -> ToolCall:
    return ToolCall(call_id=at, name=name, arguments={"at": at})


def made(at: str, name: str = "look") -> ToolCall:
    return ToolCall(call_id=f"model-{at}", name=name, arguments={"at": f"model {at}"})


def asked(*calls: ToolCall | None) -> GoalRequest:
    return GoalRequest(iteration=2, context=ContextRef(head="")).with_round(calls)


def replied(*parts: Part) -> Reply:
    return Reply(parts=parts, finish="tool_calls")


A, B, C = planned("a"), planned("b"), planned("c")


@pytest.mark.parametrize(
    ("round_", "said_by_model", "calls"),
    [
        pytest.param((A, None), (made("b"),), (A, made("b")), id="only the missing call"),
        pytest.param((A, None), (made("a"), made("b")), (A, made("b")), id="all calls of the round"),
        pytest.param((None, B), (made("a"),), (made("a"), B), id="the missing call comes first"),
        pytest.param((A, None, C), (made("b"),), (A, made("b"), C), id="one missing between two"),
        pytest.param((None, B, None), (made("a"), made("c")), (made("a"), B, made("c")), id="two missing around one"),
        pytest.param((A, B, None), tuple(map(made, "abc")), (A, B, made("c")), id="all three"),
        pytest.param((None, None), (made("a"), made("b")), (made("a"), made("b")), id="a plan without arguments"),
        pytest.param(
            (A, B, None), (made("a"), made("b")), (made("a"), made("b")), id="too few calls are kept unchanged"
        ),
        pytest.param((A, None), (), (), id="none at all"),
    ],
)
def test_planned_calls_replace_the_calls_of_the_model(
    round_: tuple[ToolCall | None, ...], said_by_model: tuple[ToolCall, ...], calls: tuple[ToolCall, ...]
) -> None:
    assert with_planned_calls(replied(*said_by_model), asked(*round_)).calls == calls


def test_thinking_stays_before_its_call() -> None:
    first, second = ThinkingPart(kind="thinking", text="1"), ThinkingPart(kind="thinking", text="2")
    reply = replied(first, made("a"), text_part("and"), second, made("c"))
    parts = with_planned_calls(reply, asked(None, B, None)).parts
    assert parts == (first, made("a"), text_part("and"), second, B, made("c"))


@pytest.mark.parametrize(
    ("round_", "fields"),
    [
        pytest.param((A, B), {"calls": (A, B)}, id="all are planned"),
        pytest.param((A, None), {"calls": (A,), "open_places": (1,)}, id="one is missing"),
        pytest.param((None, None), {}, id="none is planned"),
    ],
)
def test_a_request_contains_only_what_it_needs(round_: tuple[ToolCall | None, ...], fields: dict[str, Any]) -> None:
    request = asked(*round_)
    assert {name: getattr(request, name) for name in request.model_fields_set - {"iteration", "context"}} == fields
    assert request.needs_model == (None in round_)
