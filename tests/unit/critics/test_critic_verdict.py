"""A verdict is read strictly, and its score is computed from the dimensions."""

import json
import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.workflows.decisions.critique import parsed_assessment, summed_usage, weighted_score
from orga.workflows.types.critics import Critic
from orga.workflows.types.messages import Reply
from orga.workflows.types.models.usage import Usage
from tests.support.runs.critics import a_critic, verdict
from tests.support.values.strategies import LAW

SCORES = {"accuracy": 1, "tone": 0.5}


def verdict_text(scores: Any = SCORES, **fields: Any) -> str:
    return json.dumps({"scores": scores, "feedback": "", "approved": True, **fields})


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(verdict_text(), id="JSON alone"),
        pytest.param(f"```json\n{verdict_text()}\n```", id="in a fence"),
        pytest.param(f"  {verdict_text()}\n", id="space around it"),
    ],
)
def test_a_valid_verdict_is_scored(text: str) -> None:
    found = parsed_assessment(Reply.of(text), a_critic(), "model:m")
    assert (found.approved, found.score, found.dimensions) == (True, 0.8, {"accuracy": 1.0, "tone": 0.5})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("fine", "not JSON alone", id="no JSON"),
        pytest.param(f"Here it is: {verdict_text()}", "not JSON alone", id="words around it"),
        pytest.param(verdict_text() + verdict_text(), "not JSON alone", id="two verdicts"),
        pytest.param("[]", "valid dictionary", id="no object"),
        pytest.param(verdict_text({"accuracy": 1}), "scores: missing: tone", id="a dimension that is missing"),
        pytest.param(verdict_text({**SCORES, "style": 1}), "scores: unknown: style", id="an unknown dimension"),
        pytest.param(verdict_text({}), "scores: missing: accuracy, tone", id="no dimension"),
        pytest.param(verdict_text({**SCORES, "tone": 1.01}), "scores.tone: ", id="above 1"),
        pytest.param(verdict_text({**SCORES, "tone": -0.01}), "scores.tone: ", id="below 0"),
        pytest.param(verdict_text({**SCORES, "tone": True}), "scores.tone: ", id="a boolean"),
        pytest.param(verdict_text({**SCORES, "tone": "1"}), "scores.tone: ", id="a string"),
        pytest.param(verdict_text({**SCORES, "tone": None}), "scores.tone: ", id="null"),
        pytest.param(verdict_text().replace("0.5", "NaN"), "not JSON alone", id="NaN"),
        pytest.param(verdict_text().replace("0.5", "1e999"), "not JSON alone", id="infinity"),
        pytest.param(
            verdict_text().replace('"tone": 0.5', '"tone": 0.5, "tone": 1'),
            "is used twice",
            id="a score twice",
        ),
        pytest.param(verdict_text()[:-1] + ', "scores": {"accuracy": 1, "tone": 1}}', "is used twice", id="all twice"),
        pytest.param(verdict_text(approved="yes"), "approved: ", id="a label that is no boolean"),
        pytest.param(verdict_text(score=1.0), "score: unknown key", id="a total of its own"),
        pytest.param(json.dumps({"scores": SCORES}), "feedback: Field required", id="no feedback"),
    ],
)
def test_an_invalid_verdict_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        parsed_assessment(Reply.of(text), a_critic(), "model:m")


@pytest.mark.parametrize("finish", ["length", "refusal", "content_filter"])
def test_a_reply_that_ended_early_is_no_verdict(finish: Any) -> None:
    with pytest.raises(ValueError, match=f"ended early \\({finish}\\)"):
        parsed_assessment(verdict().model_copy(update={"finish": finish}), a_critic(), "model:m")


@pytest.mark.parametrize(
    ("scores", "threshold", "approved"),
    [
        pytest.param((0.7, 0.7), 0.7, True, id="at the threshold"),
        pytest.param((0.7, 0.69), 0.7, False, id="just below"),
        pytest.param((1.0, 0.25), 0.7, True, id="by the weights"),
        pytest.param((0.1, 0.6), 0.3, True, id="floats that do not add up exactly"),
        pytest.param((0.0, 0.0), 0.0, True, id="a threshold of 0 lets everything through"),
        pytest.param((1.0, 0.99), 1.0, False, id="a threshold of 1 needs a perfect score"),
    ],
)
def test_the_score_is_compared_with_the_threshold(
    scores: tuple[float, float], threshold: float, approved: bool
) -> None:
    for label in (True, False):
        found = parsed_assessment(verdict(*scores, approved=label), a_critic(threshold=threshold), "model:m")
        assert (found.approved, found.says_approved) == (approved, label)


@st.composite
def reviews(draw: st.DrawFn) -> tuple[Critic, dict[str, float]]:
    parts = draw(st.lists(st.integers(1, 100), min_size=1, max_size=20))
    weights = [part / sum(parts) for part in parts]
    rubric = {f"d{index}": {"weight": weight} for index, weight in enumerate(weights)}
    scores = {name: draw(st.floats(0, 1)) for name in rubric}
    return Critic.model_validate({"name": "q", "rubric": rubric}), scores


@given(reviews())
@LAW
def test_a_score_lies_between_the_lowest_and_the_highest_dimension(review: tuple[Critic, dict[str, float]]) -> None:
    critic, scores = review
    assert min(scores.values()) - 1e-6 <= weighted_score(critic, scores) <= max(scores.values()) + 1e-6
    assert 0 <= weighted_score(critic, scores) <= 1


@given(reviews(), st.integers(0), st.floats(0, 1))
@LAW
def test_a_better_dimension_never_lowers_a_score(review: tuple[Critic, dict[str, float]], nth: int, by: float) -> None:
    critic, scores = review
    name = sorted(scores)[nth % len(scores)]
    better = {**scores, name: min(scores[name] + by, 1.0)}
    assert weighted_score(critic, better) >= weighted_score(critic, scores)


@given(reviews())
@LAW
def test_the_order_of_dimensions_has_no_effect(review: tuple[Critic, dict[str, float]]) -> None:
    critic, scores = review
    turned = critic.model_copy(update={"rubric": dict(reversed(critic.rubric.items()))})
    assert weighted_score(turned, dict(reversed(scores.items()))) == weighted_score(critic, scores)


@given(st.text(max_size=200))
@LAW
def test_no_text_raises_any_other_error(text: str) -> None:
    """It is read in workflow code, where any other error would be retried forever."""
    with suppress(ValueError):
        parsed_assessment(Reply.of(text), a_critic(), "model:m")


def test_the_usage_of_both_attempts_is_summed() -> None:
    one = Usage(input_tokens=3, output_tokens=2, cached_input_tokens=1)
    assert summed_usage(None, one) == one
    assert summed_usage(one, one) == Usage(input_tokens=6, output_tokens=4, cached_input_tokens=2)
