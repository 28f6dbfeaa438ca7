"""Summaries are one short line, whatever a model wrote."""

from typing import Any

import pytest
from hypothesis import given

from orga.workflows.decisions.control.interventions import with_guidance, with_pause
from orga.workflows.decisions.result import (
    agent_run_details,
    argument_summary,
    call_summary,
    gate_summary,
    reason_summary,
    usage_text,
    with_shown_calls,
    without_refused_calls,
)
from orga.workflows.types.control import Intervention
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.models.usage import ToolCallCounts, UsageTotals
from orga.workflows.types.text import SUMMARY_CHARS, markdown_code, one_line
from orga.workflows.types.tool_calls.delegation import Child
from orga.workflows.types.tool_calls.gate import PLAN, GateRequest, Verdict
from tests.support.values.core import a_call, a_setup, a_spec, a_state, at
from tests.support.values.strategies import LAW, any_calls, any_text

PATH = a_spec(main_argument="path")


@pytest.mark.parametrize(
    ("arguments", "main", "expected"),
    [
        pytest.param({"path": "README.md"}, "path", "read README.md", id="the main argument"),
        pytest.param({"limit": 5, "path": "a"}, "path", "read a", id="the main argument, not the first"),
        pytest.param({"limit": 5}, "path", "read", id="no main argument"),
        pytest.param({"path": None}, "path", "read", id="null"),
        pytest.param({"q": "first", "r": "second"}, None, "read first", id="the first argument otherwise"),
        pytest.param({}, None, "read", id="no arguments"),
        pytest.param({"path": ["git", "log", 1]}, "path", "read git log 1", id="a list is shown like a command"),
        pytest.param({"path": {"a": 1}}, "path", "read {'a': 1}", id="an object"),
        pytest.param({"path": 0}, "path", "read 0", id="zero is shown"),
        pytest.param({"path": "a\n\tb  c"}, "path", "read a b c", id="on one line"),
    ],
)
def test_call_summary(arguments: dict[str, Any], main: str | None, expected: str) -> None:
    assert call_summary(a_call(**arguments), a_spec(main_argument=main)) == expected


def test_a_call_of_an_unknown_tool_also_has_a_summary() -> None:
    assert call_summary(a_call("nope", x="y"), None) == "nope y"


@LAW
@given(any_calls)
def test_a_summary_is_one_short_line(call: ToolCall) -> None:
    summary = call_summary(call, PATH)
    assert len(summary) <= SUMMARY_CHARS
    assert len(summary.splitlines()) <= 1


@LAW
@given(any_text)
def test_one_line_is_idempotent(text: str) -> None:
    assert one_line(one_line(text)) == one_line(text)


def test_a_cut_line_ends_with_an_ellipsis() -> None:
    assert one_line("x" * 101) == "x" * 99 + "…"
    assert one_line("x" * 100) == "x" * 100


def test_details_show_the_state_of_the_run() -> None:
    state = a_state(
        setup=a_setup(),
        last="read a",
        doing="acting",
        iteration=3,
        tool_calls=ToolCallCounts(proposed=5, run=3, denied=2, failed=1),
    )
    state = with_guidance(state, Intervention(kind="steer", text="x"))
    assert agent_run_details(state).splitlines() == [
        "**acting**, iteration 3 of 25",
        "",
        "- task: `count the files`",
        "- model: `scripted:model`",
        "- spent: 0 tokens in 0 model calls",
        "- tool calls: 3 run, 2 denied, 1 failed",
        "- unread interventions: 1",
        "- last: `read a`",
    ]


def test_details_name_the_delegate_that_waits_for_a_person() -> None:
    held = Child(workflow_id="agent-1.1.0", agent="clerk", task="write", held=True)
    idle = Child(workflow_id="agent-1.1.1", agent="reader", task="read")
    assert agent_run_details(a_state(setup=a_setup(), children=(held, idle))).splitlines()[-1] == (
        "- delegated to: `clerk`, which waits for a person: `orga status agent-1.1.0`, `reader`"
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a b", "`a b`"), ("a`b", "`` a`b ``"), ("``a```", "```` ``a``` ````"), ("[x](y)", "`[x](y)`")],
)
def test_no_text_can_end_its_markdown_code(text: str, shown: str) -> None:
    assert markdown_code(text) == shown


def test_details_before_the_setup_show_the_input() -> None:
    assert "- model: `default`" in agent_run_details(a_state())
    assert agent_run_details(with_pause(a_state(), at(1))).startswith("**paused**, iteration 0 of 25")


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        pytest.param(UsageTotals(total_tokens=5, model_calls=1), "5 tokens in 1 model call", id="no price"),
        pytest.param(
            UsageTotals(total_tokens=5, model_calls=1, cost_usd=0.0), "5 tokens in 1 model call, 0.0000 USD", id="free"
        ),
        pytest.param(
            UsageTotals(total_tokens=5, model_calls=2, cost_usd=0.12345),
            "5 tokens in 2 model calls, 0.1235 USD",
            id="priced",
        ),
    ],
)
def test_spent(usage: UsageTotals, expected: str) -> None:
    assert usage_text(usage) == expected


def a_request(*calls: ToolCall, **fields: Any) -> GateRequest:
    return GateRequest(agent="a", iteration=3, calls=calls, specs=(PATH,), **fields)


@pytest.mark.parametrize(
    ("request_", "shown"),
    [
        pytest.param(a_request(a_call("read", path="a")), None, id="a call, shown by its tool"),
        pytest.param(
            a_request(*(a_call("read", path=str(n)) for n in range(5))),
            "iteration 3: read 0; read 1; read 2; 2 more",
            id="many calls",
        ),
        pytest.param(a_request(answer="42"), "iteration 3: the answer", id="an answer"),
        pytest.param(a_request(answer="so far", purpose="ending"), "iteration 3: what was gathered", id="an ending"),
        pytest.param(a_request(places=(PLAN,)), "iteration 3: a plan of 0", id="a plan"),
        pytest.param(
            GateRequest(agent="a", iteration=0, calls=(a_call("read", path="a"),), purpose="hydration"),
            "before the first iteration: read a",
            id="a lookup",
        ),
    ],
)
def test_the_gates_summary_describes_the_models_proposal(request_: GateRequest, shown: str | None) -> None:
    assert gate_summary(request_) == shown


def test_a_model_calls_summary_names_refused_calls_until_they_were_answered() -> None:
    calls = (a_call("read", path="a"), a_call("write", path="b"))
    verdicts = (Verdict(decision="allow"), Verdict(decision="deny", reason="no"))
    state = with_shown_calls(a_state(setup=a_setup(), iteration=3), calls, verdicts)
    assert reason_summary(state) == "iteration 4, after a denial: write b"
    assert agent_run_details(state).splitlines()[-2:] == [
        "- last: `read a; write b`",
        "- refused by the gate: `write b`",
    ]
    assert reason_summary(without_refused_calls(state)) is None


def test_without_refused_calls_the_state_has_no_such_field() -> None:
    state = a_state(setup=a_setup())
    called = with_shown_calls(state, (a_call("read", path="a"),), (Verdict(decision="allow"),))
    assert "refused" not in called.model_dump(exclude_unset=True)


def test_a_calls_summary_does_not_repeat_the_tool() -> None:
    assert argument_summary(a_call("read", path="todo.md"), PATH) == "todo.md"
    assert argument_summary(a_call("read"), PATH) is None
