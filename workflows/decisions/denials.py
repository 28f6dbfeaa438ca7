"""Denials that come again: the same one, iteration after iteration, means the model will not find another way."""

from collections.abc import Iterable

from workflows.types.gate import Verdict
from workflows.types.messages import ToolCall


def denial_streaks(streaks: dict[str, int], denied: Iterable[str]) -> dict[str, int]:
    """Return the streaks after one more iteration: a denial that did not come again is forgotten."""
    return {denial: streaks.get(denial, 0) + 1 for denial in denied}


def denial_of_call(call: ToolCall, verdict: Verdict) -> str:
    """Name a denial: the tool and the reason; other arguments do not make it another denial."""
    return f"{call.name}: {verdict.reason}"


def denial_of_answer(verdict: Verdict) -> str:
    """Name the denial of a final answer."""
    return f"final answer: {verdict.reason}"
