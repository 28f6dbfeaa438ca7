"""The kinds of run, by what they answer."""

from typing import Any

import pytest

from orga.client.runs.ids import RunKind, kind_of
from orga.workflows.types.goals.result import GoalResult, GoalStatus
from orga.workflows.types.sessions.result import SessionResult, SessionStatus
from orga.workflows.types.status import AgentResult, AgentStatus

AGENT = RunKind(AgentResult, AgentStatus)
GOAL = RunKind(GoalResult, GoalStatus)
SESSION = RunKind(SessionResult, SessionStatus)


@pytest.mark.parametrize("kind", [GOAL, SESSION])
def test_what_a_run_answers_tells_its_kind(kind: RunKind) -> None:
    for answer in (kind.result, kind.status):
        assert kind_of({"kind": answer.model_fields["kind"].default}) == kind


@pytest.mark.parametrize("answer", [{}, {"kind": "other"}, {"kind": ["goal"]}, None, "goal"])
def test_what_says_nothing_of_its_kind_is_an_agents(answer: Any) -> None:
    assert kind_of(answer) == AGENT
