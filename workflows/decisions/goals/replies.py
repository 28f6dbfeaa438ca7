"""A model's replies about plans, steps and the next action: read tolerantly, judged strictly.

A reply that cannot be used raises `UnusableReply`. The model gets its text as feedback.
"""

import json
import re
from collections.abc import Mapping
from math import isfinite
from typing import Any, Literal, NamedTuple, cast, get_args

from orga.workflows.types.goals.pursuit import MAX_MEMORY_CHARS, MAX_QUESTION_CHARS, MAX_SUMMARY_CHARS, Scores
from orga.workflows.types.goals.requests import GoalReply, goal_reply_object, steps_in_reply
from orga.workflows.types.messages import Reply
from orga.workflows.types.text import clean_text

Action = Literal["continue", "adjust", "ask_user", "done", "stuck"]

MIN_SCORE, MAX_SCORE = 1.0, 5.0

_NUMBER = re.compile(r"\s*(-?\d{1,9}(?:\.\d{1,9})?)\s*(%|/\s*5)?\s*")
_NUMBER_SCALES = {"%": 100, "/": 5}


class UnusableReply(ValueError):
    """A reply that cannot be used, with the reason."""


class GoalDecision(NamedTuple):
    action: Action
    confidence: float = 0.0
    reason: str = ""
    question: str = ""
    steps: Any = None
    """The steps that replace the open ones, as the model wrote them."""


class StepEvaluation(NamedTuple):
    scores: Scores
    label: str = ""
    summary: str = ""


def reply_object(reply: Reply, prompt: str = "") -> dict[str, Any]:
    """Return the JSON object in the reply to a prompt. Raise UnusableReply if there is none."""
    try:
        return goal_reply_object(prompt, reply.text)
    except ValueError as error:
        if isinstance(reply, GoalReply) and reply.called:
            called = f"you called {', '.join(reply.called)}, and this turn takes no calls: none was made"
            raise UnusableReply(f"{called}; answer with the JSON object that [{prompt}] asks for") from None
        raise UnusableReply(f"give one JSON object: {error}") from None


def bounded_line(value: object, most: int) -> str:
    """Return the model's text, cut to `most` characters. Other values become JSON, and null and false become ""."""
    if value is None or value is False:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return clean_text(text).strip()[:most]


def parsed_memory(answer: Mapping[str, Any], before: str) -> str:
    """Return the new memory, or the one before if the reply has none."""
    return bounded_line(answer.get("memory"), MAX_MEMORY_CHARS) or before


_SURROUNDING_CHARS = ".,;:!?()[]{}<>'\"`"
_NAME_CHARS = "/_@.#"
"""Characters that make a word a name: a path, an identifier, an address, a decimal."""


def lost_names(before: str, after: str) -> list[str]:
    """Return names that one memory has and the next lacks, in order: numbers, paths, addresses, identifiers."""
    after_folded = after.casefold()
    words = dict.fromkeys(word.strip(_SURROUNDING_CHARS) for word in before.split())
    named = [word for word in words if any(each.isdigit() or each in _NAME_CHARS for each in word)]
    return [word for word in named if word.casefold() not in after_folded]


def parsed_number(value: object, whole: float) -> float | None:
    """Return a model's number, or None if the value is none. A text may be a number (`"4"`) or a share of `whole`.

    With 5 as `whole`, the shares `"80%"` and `"4/5"` are 4.
    """
    if isinstance(value, str):
        found = _NUMBER.fullmatch(value)
        if found is None:
            return None
        amount = float(found[1])
        return amount * whole / _NUMBER_SCALES[found[2][0]] if found[2] else amount
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        known = float(value)
    except OverflowError:  # an integer of some hundred digits
        return None
    return known if isfinite(known) else None


def parsed_confidence(value: object) -> float:
    """Return a confidence from 0 to 1. A number from 2 to 100 is in percent, and a missing value means 0."""
    found = parsed_number(value, 1) or 0.0
    share = found / 100 if 2 <= found <= 100 else found
    return min(max(share, 0.0), 1.0)


def parsed_scores(answer: Mapping[str, Any]) -> Scores:
    """Return the scores, each from 1 to 5. Raise UnusableReply if one is missing."""
    source = cast("Mapping[str, Any]", answer["scores"]) if isinstance(answer.get("scores"), dict) else answer
    scores: dict[str, float] = {}
    missing: list[str] = []
    for name in Scores.model_fields:
        score = parsed_number(source.get(name), MAX_SCORE)
        if score is None:
            missing.append(name)
        else:
            scores[name] = min(max(score, MIN_SCORE), MAX_SCORE)
    if missing:
        raise UnusableReply(f"a number from 1 to 5 is missing: {', '.join(missing)}")
    return Scores.model_validate(scores)


def parsed_evaluations(answer: Mapping[str, Any], due: tuple[str, ...]) -> dict[str, StepEvaluation]:
    """Return the evaluation of each due step. Raise UnusableReply if an evaluation or a score is missing."""
    listed = answer.get("steps")
    items = cast("list[Any]", listed) if isinstance(listed, list) else [answer]
    objects = [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]
    by_id = {bounded_line(item.get("id"), 100): item for item in objects}
    if len(due) == 1 and len(objects) == 1:  # the only evaluation needs no id
        by_id = {due[0]: objects[0]}
    if missing := [step_id for step_id in due if step_id not in by_id]:
        raise UnusableReply(f"no evaluation of {', '.join(missing)}")
    return {step_id: _parsed_evaluation(step_id, by_id[step_id]) for step_id in due}


def _parsed_evaluation(step_id: str, item: Mapping[str, Any]) -> StepEvaluation:
    try:
        scores = parsed_scores(item)
    except UnusableReply as error:
        raise UnusableReply(f"{step_id}: {error}") from None
    return StepEvaluation(
        scores, bounded_line(item.get("quality"), 40), bounded_line(item.get("summary"), MAX_SUMMARY_CHARS)
    )


def parsed_goal_decision(answer: Mapping[str, Any]) -> GoalDecision:
    """Return the model's decision. Raise UnusableReply if its action is unknown, or its question or plan is missing."""
    action = bounded_line(answer.get("action"), 40).lower()
    if action not in get_args(Action):
        raise UnusableReply(f"action: one of {', '.join(get_args(Action))}, not {action!r}")
    reason = bounded_line(answer.get("reason"), MAX_SUMMARY_CHARS)
    question = bounded_line(answer.get("question"), MAX_QUESTION_CHARS)
    if action == "ask_user" and not question:
        raise UnusableReply("ask_user: a question is missing")
    steps = steps_in_reply(answer)
    if action == "adjust" and not isinstance(steps, list):
        raise UnusableReply("adjust: steps, a list of all steps still to be done, is missing")
    return GoalDecision(cast("Action", action), parsed_confidence(answer.get("confidence")), reason, question, steps)
