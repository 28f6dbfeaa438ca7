"""The reader's turns of a goal: its searches and reads as steps of a plan, scored by what they brought."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic_core import to_json

from orga.activities.adapters.models.reader.answer import answer_to, is_answered
from orga.activities.adapters.models.reader.evidence import Evidence, evidence_of
from orga.activities.adapters.models.reader.held_names import with_held_names
from orga.activities.adapters.models.reader.plan import next_calls
from orga.activities.adapters.models.reader.question import Question, question_of
from orga.activities.adapters.models.reader.searches import in_words
from orga.activities.adapters.models.reader.synonyms import with_synonyms
from orga.activities.adapters.models.reader.toolbox import Toolbox, toolbox_of
from orga.activities.ports import ModelRequest
from orga.workflows.types.goals.turns import turn_asked_for
from orga.workflows.types.messages import Message, ToolCall
from orga.workflows.types.text import undelimited

_STEP = re.compile(r"^(?:\[goal_evaluate\] )?- (\S+): ", re.MULTILINE)
_MOST = re.compile(r"at most (\d+) of")
_CHARS_PER_TOKEN = 4

_UNSURE, _SURE = 0.6, 0.8
"""Of its decisions: it cannot tell whether more reading would help."""

_FOUND = {"completeness": 4, "usability": 4, "goal_progress": 4}
_SOME = {"completeness": 3, "usability": 3, "goal_progress": 2}
_NOTHING = {"relevance": 2, "completeness": 2, "usability": 2, "goal_progress": 2}


class _Standing:
    """What the reader knows of the goal by now."""

    def __init__(self, request: ModelRequest) -> None:
        self.request = request
        self.messages = request.messages
        self.evidence: Evidence = evidence_of([m for m in request.messages if m.role in {"assistant", "tool"}])
        asked = with_synonyms(question_of(_people(request.messages)))
        self.question: Question = with_held_names(asked, self.evidence)
        self.toolbox: Toolbox = toolbox_of(request.tools)

    @property
    def asked(self) -> str:
        """The message that asks for this turn."""
        return next((m.text for m in reversed(self.messages) if m.role == "user" and turn_asked_for(m.text)), "")

    @property
    def is_answered(self) -> bool:
        """Whether what was found until now answers."""
        return is_answered(self.question, self.evidence)

    def next_calls(self) -> tuple[ToolCall, ...]:
        """Return what would be looked up next."""
        turn = sum(1 for message in self.messages if message.calls)
        return next_calls(self.question, self.evidence, self.toolbox, turn)


def goal_text(request: ModelRequest) -> str | None:
    """Return what the reader says where a turn of a goal is asked for; None where none is."""
    latest = next((m for m in reversed(request.messages) if m.role == "user" and turn_asked_for(m.text)), None)
    says = _TURNS.get(turn_asked_for(latest.text)) if latest is not None else None
    return None if says is None else says(_Standing(request))


def _people(messages: Sequence[Message]) -> list[Message]:
    """Return the goal and what people said since."""
    return [
        m
        for m in messages
        if m.role == "user" and not turn_asked_for(m.text) and not m.text.startswith("[Reply not usable]")
    ]


def _plan(standing: _Standing) -> str:
    steps = _steps(standing)
    return _json({"steps": steps} if steps else {"error": "the offline reader has no tool to search or read by"})


def _steps(standing: _Standing) -> list[dict[str, Any]]:
    found = _MOST.search(standing.asked)
    most = int(found[1]) if found else 4
    taken = sum(len(message.calls) for message in standing.messages)
    return [
        {
            "id": f"s{taken + n}",
            "goal": _purpose(call, standing.question),
            "skill": call.name,
            "arguments": call.arguments,
        }
        for n, call in enumerate(standing.next_calls()[:most], start=1)
    ]


def _purpose(call: ToolCall, question: Question) -> str:
    if query := call.arguments.get("query"):
        return f"look for {in_words(str(query), question)}"
    verbs = {"read_file": "read", "list_files": "see which files there are"}
    first, last = (call.arguments.get(name) for name in ("start_line", "end_line"))
    lines = f":{first}-{last}" if first and last else ""
    return f"{verbs.get(call.name, call.name)} {call.arguments.get('path') or ''}".strip() + lines


def _evaluate(standing: _Standing) -> str:
    results = [m for m in _latest_results(standing.messages) if not m.is_error]
    worth = _SOME if standing.next_calls() else _FOUND if standing.is_answered else _NOTHING
    judged = [
        {"id": step_id, **_scores(message, standing.question, worth)}
        for step_id, message in zip(_STEP.findall(standing.asked), results, strict=False)
    ]
    return _json({"steps": judged})


def _latest_results(messages: Sequence[Message]) -> list[Message]:
    start = max((index for index, message in enumerate(messages) if message.calls), default=len(messages))
    return [message for message in messages[start:] if message.role == "tool"]


def _scores(message: Message, question: Question, worth: Mapping[str, int]) -> dict[str, Any]:
    """Return what a result is scored; where it is worth nothing, however near its words come."""
    said = undelimited(message.text).strip()
    if not said or worth is _NOTHING:
        return {**_NOTHING, "quality": "partial", "summary": "nothing that answers" if said else "nothing"}
    lines = said.count("\n") + 1
    told = f"{lines} line{'' if lines == 1 else 's'}"
    quality = "good" if worth is _FOUND else "partial"
    return {**worth, "relevance": _relevance(said, question), "quality": quality, "summary": told}


def _relevance(said: str, question: Question) -> int:
    """Return 3 for a text with no word of the question, 5 for one with all of them."""
    text = said.casefold()
    held = [any(root in text for root in term.stems) for term in question.terms]
    return 3 + round(2 * sum(held) / len(held)) if held else 4


def _decide(standing: _Standing) -> str:
    if steps := _steps(standing):
        told = "more can be looked up"
        return _json({"action": "adjust", "confidence": _UNSURE, "reason": told, "steps": steps})
    if standing.is_answered:
        return _json({"action": "done", "confidence": _SURE, "reason": "nothing more to look up"})
    why = "nothing that was found answers" if standing.evidence.succeeded else "no tool brought anything"
    return _json({"action": "stuck", "confidence": _SURE, "reason": why})


def _compress(standing: _Standing) -> str:
    kept = standing.asked.partition("Kept in mind:\n")[2]
    return _json({"memory": kept[: len(kept) // 2]})


def _summary(standing: _Standing) -> str:
    room = standing.request.max_output_tokens * _CHARS_PER_TOKEN
    return answer_to(standing.question, standing.evidence, standing.toolbox, room)[:room]


def _json(value: dict[str, Any]) -> str:
    return to_json(value).decode()


_TURNS: Mapping[str, Callable[[_Standing], str]] = {
    "goal_plan": _plan,
    "goal_evaluate": _evaluate,
    "goal_decide": _decide,
    "goal_compress": _compress,
    "goal_summary": _summary,
}
"""Its plans have all arguments, so that it is never asked to prepare calls."""
