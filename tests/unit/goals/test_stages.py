"""The table of review stages: loop, journal and laws use one order, and only allowed proposals are executed."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.workflows.decisions.journal.verdicts import (
    EXECUTABLE_STATUSES,
    LET_THROUGH_STATUSES,
    ProposalStatuses,
    next_status,
)
from orga.workflows.decisions.review_stages import (
    ANSWER_STAGES,
    CALL_STAGES,
    GATE_TRANSITIONS,
    STAGE_FIELDS,
    STAGE_NEEDS,
    ProposalStatus,
    ReviewStages,
    StageVerdict,
)
from orga.workflows.phases.review_stages import ANSWER_STAGE_PASSES, CALL_STAGE_PASSES
from orga.workflows.types.setup import Setup
from orga.workflows.types.state import AgentState
from orga.workflows.types.tool_calls.gate import Decision

CRITICS: tuple[StageVerdict, ...] = ("accepted", "revise", "skipped", "asked", "ended")
WORDS: tuple[StageVerdict, ...] = (*get_args(Decision), "yes", "no", *CRITICS)
BOTH = pytest.mark.parametrize("stages", [CALL_STAGES, ANSWER_STAGES], ids=["calls", "answers"])


def test_the_needs_of_stages_are_setup_fields_and_their_results_state_fields() -> None:
    assert (STAGE_NEEDS, STAGE_FIELDS) == (("critics",), ("critiques",))
    assert set(STAGE_NEEDS) <= Setup.model_fields.keys()
    assert set(STAGE_FIELDS) <= AgentState.model_fields.keys()


def test_the_loop_has_a_pass_for_each_stage_of_the_table() -> None:
    assert [stage.name for stage in CALL_STAGES] == ["approval", "budget", "critics", "confirmation"]
    assert [stage.name for stage in ANSWER_STAGES] == ["approval", "check", "critics"]
    assert list(CALL_STAGE_PASSES) == [stage.name for stage in CALL_STAGES]
    assert list(ANSWER_STAGE_PASSES) == [stage.name for stage in ANSWER_STAGES]


@given(st.lists(st.sampled_from(WORDS), max_size=8))
@BOTH
def test_no_proposal_is_executed_after_a_final_no_of_gate_person_or_critic(
    stages: ReviewStages, words: list[StageVerdict]
) -> None:
    statuses = ProposalStatuses[str](stages, ["1.0"])
    applied = [word for word in words if statuses.apply_verdict("1.0", word)]
    by_gate = [word for word in applied if word in GATE_TRANSITIONS]
    if not statuses.missing_verdict_text("1.0"):
        assert by_gate[-1] == "allow"
        assert applied[-1] in {"allow", "accepted"}
        assert not {"deny", "invalid", "no", "revise", "skipped", "ended"}.intersection(applied)
    for index, word in enumerate(applied):
        if word == "approval":
            assert applied[index + 1 : index + 2] in ([], ["yes"], ["no"])


@BOTH
@pytest.mark.parametrize("status", ["denied", "rejected", "ended"])
def test_no_verdict_follows_a_final_no(stages: ReviewStages, status: ProposalStatus) -> None:
    assert [word for word in WORDS if next_status(stages, status, word) is not None] == []


def test_only_calls_are_confirmed() -> None:
    assert (next_status(CALL_STAGES, "reviewed", "allow"), next_status(ANSWER_STAGES, "reviewed", "allow")) == (
        "confirmed",
        None,
    )
    for stages, late in ((CALL_STAGES, True), (ANSWER_STAGES, False)):
        statuses = ProposalStatuses[str](stages, ["1"])
        statuses.apply_verdict("1", "allow")
        statuses.record_pause()
        assert statuses.needs_confirmation("1") is late


def test_a_call_needs_confirmation_after_a_pause_until_it_is_judged_again() -> None:
    statuses = ProposalStatuses[str](CALL_STAGES, ["1.0", "1.1", "1.2"])
    statuses.apply_verdict("1.0", "allow")
    statuses.apply_verdict("1.1", "allow")
    statuses.apply_verdict("1.2", "deny")
    statuses.record_pause()
    assert [statuses.needs_confirmation(place) for place in ("1.0", "1.1", "1.2")] == [True, True, False]
    statuses.apply_verdict("1.0", "allow")
    statuses.begin_judging("1.1")
    assert [statuses.needs_confirmation(place) for place in ("1.0", "1.1")] == [False, False]
    assert (statuses.status_of("1.1"), statuses.missing_verdict_text("1.0")) == ("proposed", "")


def test_executable_proposals_were_allowed() -> None:
    assert EXECUTABLE_STATUSES <= LET_THROUGH_STATUSES
