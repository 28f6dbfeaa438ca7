"""The parts of the state that a run carries when it continues as new: the bytes of JSON that each may take, and why.

The bounds add up to less than a payload takes, whatever characters the texts contain. So any run can continue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pydantic_core import to_json

from orga.workflows.decisions.control.question_text import call_without_arguments
from orga.workflows.decisions.conversation import fair_shares
from orga.workflows.decisions.review_stages import STAGE_FIELDS
from orga.workflows.types.questions import Item, Question
from orga.workflows.types.state import AgentState
from orga.workflows.types.text import clip_json, json_prefix

MAX_CARRIED_BYTES = 1_900_000
"""Bytes of the state as JSON. The server refuses a payload of 2 MB."""

BEGIN_BYTES = 800_000
"""Bytes of everything known at the start, the task once, and its growth. See `decisions/begin.py`."""

REPLY_BYTES = 540_000
"""Bytes of the reply that waits for people, or of the window's minimum without the task. They are never both
complete.
"""

WINDOW_BYTES = 300_000
"""Bytes that the window keeps, without the task, before other parts are cut: the last message with its results."""

OUTPUT_BYTES = 50_000
SHORT_BYTES = 10_000
GUIDANCE_BYTES = 20_000
RESULTS_BYTES = 20_000
STEP_BYTES = 80
LINE_BYTES = 200
QUESTION_BYTES = 300
STREAK_BYTES = 450
"""Bytes of one text in a part that is cut."""

NO_APPROVERS = ("",)
"""Approvers of an item whose list is too long. Nobody can have that name. The next segment asks with the full list."""

PartCut = Callable[[AgentState], AgentState]


class CarriedPart(NamedTuple):
    """Fields of the state, and the bytes that they take together in a carried state."""

    fields: tuple[str, ...]
    most: int
    why: str
    """The reason why they stay within the bound."""
    cut: PartCut | None = None
    """Shortens the part if room is still short after the window was shrunk."""


def _without_results(state: AgentState) -> AgentState:
    return state.with_failures(results={}, values={})


def _with_light_questions(state: AgentState) -> AgentState:
    """Keep what a decision needs of each question, and a share of the results that people gave.

    Calls are referred to by their digest (`about`). The next segment judges them again, and asks about the same ones.
    """
    given = [len(to_json(each.resolution.result)) if each.resolution else 0 for each in state.questions]
    most = fair_shares(given, RESULTS_BYTES)
    return state.with_control(
        questions=tuple(_light_question(each, room) for each, room in zip(state.questions, most, strict=True))
    )


def _light_question(question: Question, room: int) -> Question:
    data, resolution = dict(question.data), question.resolution
    for key in ("arguments", "error"):
        if key in data:
            data[key] = json_prefix(str(data[key]), QUESTION_BYTES)
    if resolution is not None:
        by, reason = json_prefix(resolution.by, LINE_BYTES), json_prefix(resolution.reason, LINE_BYTES)
        resolution = resolution.with_texts(by, reason, json_prefix(clip_json(resolution.result, room), room))
    items = tuple(map(_light_item, question.items))
    return question.with_content(json_prefix(question.text, QUESTION_BYTES), data, items, resolution)


def _light_item(item: Item) -> Item:
    answer = item.answer
    if answer is not None:
        answer = answer.with_texts(json_prefix(answer.approver, LINE_BYTES), json_prefix(answer.reason, LINE_BYTES))
    return item.with_answer(answer).with_content(
        call_without_arguments(item.call),
        json_prefix(item.version, LINE_BYTES),
        json_prefix(item.reason, LINE_BYTES),
        item.approvers if len(to_json(item.approvers)) <= LINE_BYTES else NO_APPROVERS,
    )


def _with_light_steps(state: AgentState) -> AgentState:
    """Shorten the texts. A stopped step stays stopped."""
    steps = {
        key: step.with_texts(json_prefix(step.last_error, STEP_BYTES), json_prefix(step.stopped, STEP_BYTES))
        for key, step in state.steps.items()
    }
    return state.with_failures(steps=steps)


def _with_light_drafts(state: AgentState) -> AgentState:
    """Shorten an answer that is no longer final, and the texts for an ending without one."""
    data = state.data if len(to_json(state.data, inf_nan_mode="strings")) <= SHORT_BYTES else None
    gathered = state.gathered
    while len(to_json(gathered)) > SHORT_BYTES:
        gathered = (clip_json(gathered[0], SHORT_BYTES - 10),) if len(gathered) == 1 else gathered[1:]
    output = clip_json(state.output, OUTPUT_BYTES, "the conversation has all of it")
    return state.with_task(data=data, gathered=gathered, output=output)


def _with_light_inbox(state: AgentState) -> AgentState:
    most = fair_shares([len(to_json(item.text)) for item in state.inbox], GUIDANCE_BYTES)
    inbox = tuple(
        item
        if len(to_json(item.text)) <= room
        else item.with_cut(json_prefix(clip_json(item.text, room), room), item.size or len(item.text.encode()))
        for item, room in zip(state.inbox, most, strict=True)
    )
    return state.with_control(inbox=inbox, inbox_bytes=sum(len(item.text.encode()) for item in inbox))


def _with_light_streaks(state: AgentState) -> AgentState:
    return state.with_failures(
        denials={json_prefix(key, STREAK_BYTES): times for key, times in state.denials.items()},
        invalid={json_prefix(key, STREAK_BYTES): times for key, times in state.invalid.items()},
    )


def _with_light_draft(state: AgentState) -> AgentState:
    return state.with_dialogue(partial=clip_json(state.partial, OUTPUT_BYTES, "the conversation has all of it"))


CARRIED_PARTS = (
    CarriedPart(
        ("input", "setup", "taint", "breakers", "failures", "decided", *STAGE_FIELDS),
        BEGIN_BYTES,
        "refused at the start otherwise; only the setup holds instructions and schema, only the input the task",
    ),
    CarriedPart(
        ("pending", "conversation"),
        REPLY_BYTES,
        "a reply is bounded as it is recorded (`activities/replies.py`); the window takes what all else leaves",
    ),
    CarriedPart(
        ("recollection",),
        7_000,
        "the words and paths of one search, none longer than `MAX_TERM_CHARS` and `MAX_PATH_CHARS`",
    ),
    CarriedPart(("dead_letters",), 101_000, "none is kept beyond `MAX_LETTER_BYTES`: it is then an ordinary failure"),
    CarriedPart(
        ("results", "values"), 100, "kept in case; a policy has to expect that there is no value", _without_results
    ),
    CarriedPart(
        ("questions", "announced"),
        130_000,
        "one for the calls of one reply, which are in `pending`, or one for each stuck call",
        _with_light_questions,
    ),
    CarriedPart(("steps",), 64_000, "the newest `MAX_REPEATED_CALLS`; their texts are cut", _with_light_steps),
    CarriedPart(("output", "data", "gathered"), 72_000, "not final; cut", _with_light_drafts),
    CarriedPart(("inbox", "inbox_bytes", "unheard"), 66_000, "`MAX_INBOX_ITEMS`; the texts are cut", _with_light_inbox),
    CarriedPart(("intervention_ids", "pauses"), 9_000, "the newest `MAX_KEPT_IDS` and `MAX_KEPT_PAUSES`"),
    CarriedPart(("completions",), 3_700, "the newest `MAX_COMPLETIONS`"),
    CarriedPart(("denials", "invalid"), 34_000, "those of the last reply; cut", _with_light_streaks),
    CarriedPart(("partial",), 52_000, "finished first if that takes only some replies, else cut", _with_light_draft),
    CarriedPart(
        (
            *(
                "origin",
                "clock",
                "doing",
                "is_standing",
                "is_over",
                "last",
                "refused",
                "iteration",
                "usage",
                "tool_calls",
                "carried_by",
                "repairs",
                "thinking_cuts",
                "paused",
            ),
            *(
                "extended",
                "budget_questions",
                "hydrated",
                "calibration",
                "under_way",
                "over_budget",
                "told_held",
                "undecided",
            ),
            "forked_from",
        ),
        20_000,
        "numbers, ids, and two lines for people",
    ),
    CarriedPart(
        ("children", "aborted", "stop", "fork", "notes"), 100, "nothing: no run continues as new while it has any"
    ),
)
"""The parts in the order in which they are cut: the least important first."""
