"""A plan before people: what approves it, and what sends it back."""

import pytest

from orga.workflows.decisions.goals.review import is_yes, with_plan_to_review, with_reviewed
from tests.support.values.goals import a_goal, a_plan_step

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
def test_what_approves_a_plan(answer: str) -> None:
    assert is_yes(answer)


@pytest.mark.parametrize("answer", listed(SAYS_MORE))
def test_what_says_more_than_yes_approves_nothing(answer: str) -> None:
    assert not is_yes(answer)


@pytest.mark.parametrize(("answer", "stage"), [("Yes, please.", "execute"), ("yes, but skip step 2", "plan")])
def test_a_plan_is_carried_out_or_goes_back_with_the_words(answer: str, stage: str) -> None:
    state = with_plan_to_review(a_goal(a_plan_step("a"), config={"plan_review": "always"}))
    assert state.pursuit.stage == "review"
    assert state.setup is not None
    after = with_reviewed(state, answer, state.setup)
    assert after.pursuit.stage == stage
    told = [message.text for message in after.conversation.messages[1:]]
    assert [answer in text for text in told] == ([] if stage == "execute" else [True])
