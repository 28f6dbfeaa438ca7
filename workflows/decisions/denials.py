"""Denials that come again: the same one, iteration after iteration, means the model will not find another way."""

from collections.abc import Iterable, Sequence

from rapidfuzz.distance import Levenshtein

from orga.workflows.types.gate import Verdict
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.outcome import Outcome, OutcomeStatus
from orga.workflows.types.recovery import StepIteration
from orga.workflows.types.state import AgentState

MAX_COMPARED_CHARS = 500
"""The time to compare grows with the product of the lengths; what an error is about stands at its beginning."""


def similarity(one: str, other: str) -> float:
    """Return 1 - distance / length of the longer one: 1.0 for two empty texts, 0.0 when one is empty."""
    return Levenshtein.normalized_similarity(one[:MAX_COMPARED_CHARS], other[:MAX_COMPARED_CHARS])


EXACTLY = 1.0

NOTHING_ELSE = "no call of the reply was valid"


def alike_at(config: LoopConfig) -> float:
    """Return the similarity at which two reasons count as one: that of `step_iteration`, equality when it is off."""
    tracked = config.step_iteration or StepIteration()
    return tracked.similarity_threshold if tracked.enabled else EXACTLY


def with_streaks(state: AgentState, denied: Iterable[str] = (), invalid: Iterable[str] = ()) -> AgentState:
    """Return the state with both streaks of a run after one more iteration in which these were turned down."""
    alike = alike_at(state.config)
    return state.with_failures(
        denials=denial_streaks(state.denials, denied, alike), invalid=denial_streaks(state.invalid, invalid, alike)
    )


def denial_streaks(streaks: dict[str, int], denied: Iterable[str], threshold: float = EXACTLY) -> dict[str, int]:
    """Return the streaks after one more iteration: a denial that did not come again is forgotten.

    Denials of one tool whose reasons are alike, at `threshold` or more, are one denial; its newest wording stays.
    """
    after: dict[str, int] = {}
    for denial in denied:
        if not any(_is_same(denial, other, threshold) for other in after):
            before = [times for other, times in streaks.items() if _is_same(denial, other, threshold)]
            after[denial] = max(before, default=0) + 1
    return after


def denial_of_call(call: ToolCall, verdict: Verdict) -> str:
    """Name a denial: the tool and the reason; other arguments do not make it another denial."""
    return f"{call.name}: {verdict.reason}"


def repeated(outcomes: Sequence[Outcome], verdicts: Sequence[Verdict], status: OutcomeStatus) -> list[str]:
    """Name the calls among the outcomes that the gate turned down so, each once."""
    pairs = zip(outcomes, verdicts, strict=True)
    return list(dict.fromkeys(denial_of_call(o.call, v) for o, v in pairs if o.status == status))


def invalid_calls(outcomes: Sequence[Outcome], verdicts: Sequence[Verdict]) -> list[str]:
    """Name the invalid calls; a reply of nothing else is one more, for a model that invents another tool each time."""
    named = repeated(outcomes, verdicts, "invalid")
    is_all = bool(outcomes) and all(outcome.status == "invalid" for outcome in outcomes)
    return [*named, NOTHING_ELSE] if is_all else named


def denial_of_answer(verdict: Verdict) -> str:
    """Name the denial of a final answer."""
    return f"final answer: {verdict.reason}"


def _is_same(one: str, other: str, threshold: float) -> bool:
    (tool, _, reason), (other_tool, _, other_reason) = one.partition(": "), other.partition(": ")
    return one == other or (
        tool == other_tool and threshold < EXACTLY and similarity(reason, other_reason) >= threshold
    )
