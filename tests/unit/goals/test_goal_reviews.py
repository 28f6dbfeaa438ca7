"""The review of a plan by people: which answers approve it, and which send it back."""

from typing import Any

import pytest

from orga.workflows.decisions.goals.review import is_yes, with_plan_to_review, with_review_answer, with_unapproved_plan
from orga.workflows.types.goals.pursuit import GoalState, PlanStep
from orga.workflows.types.questions import Resolution
from tests.support.values.goals import a_goal, a_plan_step
from tests.support.values.pipelines import CHAIN, pipeline_state

APPROVES = """yes | YES | Yes. | Yes! | yes please | Yes, please. | y | ok | OK, do it | go ahead
Go ahead, please! | sure | Sure. | looks good | Looks good to me! | The plan looks good, go on.
approve | approved | I approve. | LGTM | ok thanks | yes, thank you | proceed
yes - go ahead and do it now | Yes, that is right | of course"""

SAYS_MORE = """yes, but skip step 2 | yes but not b | ok, except the last one | Yes, skip step 2
do it without a | no | No. | not yet | don't | do not do it | go away | yes? | OK, is that all?
looks good, use the report of 1999 | yes 2 | yesterday | go on with step 2 alone | please
is it ok | never | not ok | ok, no |  | ! | 👍"""


def listed(text: str) -> list[str]:
    return [each.strip() for line in text.splitlines() for each in line.split("|")]


@pytest.mark.parametrize("answer", listed(APPROVES))
def test_a_plain_approval_is_recognised(answer: str) -> None:
    assert is_yes(answer)


@pytest.mark.parametrize("answer", listed(SAYS_MORE))
def test_an_answer_with_more_than_an_approval_approves_nothing(answer: str) -> None:
    assert not is_yes(answer)


@pytest.mark.parametrize(("answer", "stage"), [("Yes, please.", "execute"), ("yes, but skip step 2", "plan")])
def test_a_plan_is_executed_or_sent_back_with_the_answer(answer: str, stage: str) -> None:
    state = with_plan_to_review(a_goal(a_plan_step("a"), config={"plan_review": "always"}))
    assert state.pursuit.stage == "review"
    assert state.setup is not None
    after = with_review_answer(state, answer, state.setup)
    assert after.pursuit.stage == stage
    reported = [message.text for message in after.conversation.messages[1:]]
    assert [answer in text for text in reported] == ([] if stage == "execute" else [True])


def held(*steps: PlanStep, **fields: Any) -> GoalState:
    """Return a goal whose plan waits for a person's approval."""
    return with_plan_to_review(a_goal(*steps, config={"plan_review": "always"}, **fields))


def long_plan() -> GoalState:
    """Return a held plan with more steps than can be shown. The last step is dangerous."""
    steps = [a_plan_step(f"s{n}").with_fields(goal="look around " * 40) for n in range(10)]
    return held(*steps, a_plan_step("wipe").with_fields(arguments={"path": "/prod"}))


def test_people_see_each_step_of_a_plan_with_its_arguments() -> None:
    question = held(a_plan_step("a").with_fields(arguments={"path": "a.md"}), a_plan_step("b", "open", None, "a"))
    assert question.pursuit.question.endswith('{"path":"a.md"}, b (read after a): g {"at":"b"}')


def test_a_plan_that_cannot_be_shown_in_full_needs_an_explicit_approval() -> None:
    state = long_plan()
    assert state.setup is not None
    question = state.pursuit.question
    assert "wipe" not in question
    assert question.endswith(", and 4 more")
    assert 'Read it with `orga conversation`, then answer "yes to all 11 steps"' in question
    again = with_review_answer(state, "Yes, please.", state.setup)
    assert (again.pursuit.stage, again.pursuit.questions) == ("review", state.pursuit.questions + 1)
    assert "too long to be shown here in full" in again.pursuit.question
    assert with_review_answer(again, "Yes to all 11 steps.", state.setup).pursuit.stage == "execute"


def test_an_unapproved_plan_is_not_executed_and_counts_as_unusable() -> None:
    state = held(a_plan_step("a"))
    for count in (1, 2):
        state = with_unapproved_plan(
            state, Resolution(escalation_id="q", choice="skip", reason="nobody answered in time")
        )
        assert (state.pursuit.stage, state.pursuit.unusable, state.pursuit.open_steps) == ("plan", count, ())
        reported = state.conversation.messages[-1].text
        assert "the plan was not approved: nobody answered in time" in reported
        state = with_plan_to_review(state.with_pursuit(steps=(a_plan_step("a"),)))
    assert with_unapproved_plan(state, Resolution(escalation_id="q", choice="skip")).pursuit.ending is not None


def test_a_pipeline_whose_plan_is_not_approved_ends() -> None:
    state = pipeline_state(CHAIN, config={"plan_review": "always"})
    after = with_unapproved_plan(state, Resolution(escalation_id="q", choice="skip", reason="nobody answered in time"))
    assert after.pursuit.ending == ("stuck", "the plan was not approved: nobody answered in time")
