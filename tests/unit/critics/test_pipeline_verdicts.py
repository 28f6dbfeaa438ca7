"""A critic's verdicts on drafts, and when the work goes back to the director."""

from typing import Any

import pytest

from orga.workflows.decisions.goals.pipelines import best_draft_number, convergence, parsed_draft_verdict
from orga.workflows.decisions.goals.replies import UnusableReply
from orga.workflows.types.goals.pipelines import Pipeline

ESSAY: dict[str, Any] = {
    "kind": "director_critic",
    "director": "writer",
    "critic": "reviewer",
    "rubric": {"clear": {"weight": 0.25}, "true": {"weight": 0.75}},
}


def essay(**more: Any) -> Pipeline:
    return Pipeline.model_validate({**ESSAY, **more}, extra="forbid")


@pytest.mark.parametrize(
    ("text", "score"),
    [
        pytest.param('{"scores": {"clear": 1, "true": 0.6}, "feedback": "x"}', 0.7, id="by weight"),
        pytest.param('I say:\n```json\n{"clear": 0, "true": 1}\n```', 0.75, id="in words and fences, flat"),
        pytest.param(
            '{"scores": {"clear": "80%", "true": "4/5", "wit": 9}}', 0.8, id="other number forms, and an unknown score"
        ),
        pytest.param('{"scores": {"clear": 0, "true": 0}}', 0.0, id="nothing at all"),
    ],
)
def test_a_verdict_is_read_tolerantly_and_scored_by_weight(text: str, score: float) -> None:
    assert parsed_draft_verdict(text, essay()).score == pytest.approx(score)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("fine!", "give one JSON object", id="words"),
        pytest.param('{"scores": {"clear": 1}}', "is missing: true", id="a score is missing"),
        pytest.param('{"scores": {"clear": true, "true": 1}}', "is missing: clear", id="a boolean"),
        pytest.param('{"scores": {"clear": 4, "true": 1}}', "from 0 to 1, not clear 4", id="of another scale"),
        pytest.param('{"scores": {"clear": -1, "true": 1}}', "not clear -1", id="below zero"),
        pytest.param('{"scores": {"clear": NaN, "true": 1}}', "give one JSON object", id="no number"),
    ],
)
def test_an_invalid_verdict_is_reported_with_the_reason(text: str, says: str) -> None:
    with pytest.raises(UnusableReply, match=says):
        parsed_draft_verdict(text, essay())


def test_the_director_gets_scores_and_feedback() -> None:
    text = '{"scores": {"clear": 1, "true": 0.6}, "feedback": "say when"}'
    assert parsed_draft_verdict(text, essay()).remarks == "The draft has 0.7 of 0.7 (clear 1, true 0.6).\nsay when"
    assert parsed_draft_verdict(text, essay(fixed_rounds=2)).remarks.startswith("The draft has 0.7 (clear")


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        pytest.param([], 0, id="none"),
        pytest.param([0.2, 0.9, 0.5], 2, id="the highest"),
        pytest.param([0.4, 0.4], 2, id="the latest of equal ones"),
    ],
)
def test_the_best_draft_is_found(scores: list[float], best: int) -> None:
    assert best_draft_number(scores) == best


@pytest.mark.parametrize(
    ("more", "scores", "what", "why"),
    [
        pytest.param({}, [0.7], "done", "score 0.7, 0.7 is needed", id="the threshold counts as reached"),
        pytest.param({}, [0.699], "again", "score 0.699, 0.7 is needed", id="just below it"),
        pytest.param({}, [0.1, 0.2], "again", "", id="two of three rounds"),
        pytest.param({}, [0.1, 0.6, 0.2], "stuck", "in 3 rounds; the best has 0.6", id="three rounds"),
        pytest.param({"max_rounds": 1}, [0.1], "stuck", "in 1 rounds", id="one round"),
        pytest.param({"max_rounds": 1}, [0.9], "done", "", id="one round that is enough"),
        pytest.param({"max_rounds": 7}, [0.1] * 6, "again", "", id="no break without adaptive_break"),
        pytest.param(
            {"fixed_rounds": 2}, [0.9], "again", "round 1 of 2", id="fixed rounds continue after a good score"
        ),
        pytest.param({"fixed_rounds": 2}, [0.9, 0.1], "done", "round 2 of 2", id="fixed rounds end after a bad score"),
        pytest.param({"adaptive_break": True}, [0.3], "again", "", id="no break in the first round"),
        pytest.param(
            {"adaptive_break": True}, [0.3, 0.31], "stuck", "no longer improve: 0.31 after 0.3", id="stagnation"
        ),
        pytest.param({"adaptive_break": True}, [0.3, 0.32], "again", "", id="just enough of an improvement"),
        pytest.param(
            {"adaptive_break": True}, [0.3, 0.2], "stuck", "no longer improve: 0.2 after 0.3", id="it gets worse"
        ),
        pytest.param({"adaptive_break": True}, [0.3, 0.71], "done", "", id="the threshold wins over stagnation"),
        pytest.param(
            {"adaptive_break": {"min_rounds": 3}, "max_rounds": 5}, [0.3, 0.3], "again", "", id="before min_rounds"
        ),
        pytest.param(
            {"adaptive_break": {"min_rounds": 3}, "max_rounds": 5},
            [0.5, 0.3, 0.4],
            "stuck",
            "0.4 after 0.5",
            id="worse than the best",
        ),
        pytest.param(
            {"adaptive_break": {"min_improvement": 0.2}},
            [0.3, 0.45],
            "stuck",
            "",
            id="a larger improvement is required",
        ),
    ],
)
def test_the_scores_determine_the_next_step(more: dict[str, Any], scores: list[float], what: str, why: str) -> None:
    found = convergence(essay(**more), scores)
    assert found.what == what
    assert why in found.why
