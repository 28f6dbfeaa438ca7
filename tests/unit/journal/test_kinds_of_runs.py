"""The kind of a run is derived from its results and status."""

from typing import Any

import pytest

from orga.client.runs.endings import RunKind, kind_of
from orga.workflows.types.goals.pursuit import GoalResult, GoalStatus
from orga.workflows.types.sessions.session_result import SessionResult, SessionStatus
from orga.workflows.types.status import AgentResult, AgentStatus

AGENT = RunKind(AgentResult, AgentStatus)
GOAL = RunKind(GoalResult, GoalStatus)
SESSION = RunKind(SessionResult, SessionStatus)


@pytest.mark.parametrize("kind", [GOAL, SESSION])
def test_a_result_or_status_determines_the_kind(kind: RunKind) -> None:
    for answer in (kind.result, kind.status):
        assert kind_of({"kind": answer.model_fields["kind"].default}) == kind


@pytest.mark.parametrize("answer", [{}, {"kind": "other"}, {"kind": ["goal"]}, None, "goal"])
def test_without_a_known_kind_a_run_is_an_agent_s(answer: Any) -> None:
    assert kind_of(answer) == AGENT
