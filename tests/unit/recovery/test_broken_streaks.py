"""Streaks of iterations: any other reply between two denials ends a streak, also of invalid calls."""

from collections.abc import Callable

import pytest

from orga.workflows.decisions import observe
from orga.workflows.decisions.critique import Assessment, with_rejected_answer
from orga.workflows.decisions.observe import classify_reply
from orga.workflows.decisions.tool_calls.decision import with_undecided_answer
from orga.workflows.types.messages import Reply
from orga.workflows.types.state import AgentState
from orga.workflows.types.tool_calls.gate import Verdict
from tests.support.runs.critics import a_critic
from tests.support.values.core import a_state

ANSWER = Reply.of("done")
BLANK = Reply.of("")
MISFIT = Verdict(decision="invalid", reason="no number")
DENIED = Verdict(decision="deny", reason="no")
NO = Assessment(False, "model:m", "No source.", 0.4)


TAKEN_IN: dict[str, Callable[[AgentState], AgentState]] = {
    "an answer": lambda state: observe.with_answer(state, ANSWER),
    "an empty reply": lambda state: observe.with_repair(state, classify_reply(BLANK)),
    "an answer with a schema mismatch": lambda state: observe.with_schema_mismatch(state, ANSWER, MISFIT),
    "a denied answer": lambda state: observe.with_denied_answer(state, ANSWER, DENIED),
    "an answer rejected by a critic": lambda state: with_rejected_answer(state, ANSWER, a_critic(), NO),
    "an answer before a required decision": lambda state: with_undecided_answer(state, ANSWER),
    "allowed calls": lambda state: observe.with_outcomes(state, ANSWER, (), []),
}


@pytest.mark.parametrize("taken_in", TAKEN_IN.values(), ids=TAKEN_IN.keys())
def test_a_streak_is_ended_by(taken_in: Callable[[AgentState], AgentState]) -> None:
    after = taken_in(a_state(denials={"rm: no": 2}, invalid={"rn: no tool 'rn' is offered": 2}))
    assert ("rm: no" in after.denials, after.invalid) == (False, {})
