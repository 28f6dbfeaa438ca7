"""A goal's phases as a table that fits a terminal: a row for each thing that a phase brought."""

from collections.abc import Sequence
from typing import Any

from pydantic_core import to_json

from orga.client.cli.terminal_text import on_one_line
from orga.client.journal.phases import OVERRIDE, GoalPhases, Phase

COLUMNS = 80
_HEADS = ("TURN", "PHASE", "TIME", "SCORE", "WHAT")

Data = dict[str, Any]
_Told = tuple[str, str]
"""A score, and what was scored or came to pass."""


def table(shown: GoalPhases) -> list[str]:
    """Return a head row, and the rows of all phases."""
    goals = _goals(shown.phases)
    cells = [_HEADS, *(row for phase in shown.phases for row in _rows(phase, goals))]
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEADS) - 1)]
    return [_line(row, widths) for row in cells]


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    turn, phase, time, score, what = row
    head = "  ".join((turn.rjust(widths[0]), phase.ljust(widths[1]), time.rjust(widths[2]), score.rjust(widths[3]), ""))
    return f"{head}{on_one_line(what, COLUMNS - len(head))}".rstrip()


def _rows(phase: Phase, goals: dict[str, str]) -> list[tuple[str, ...]]:
    told = _told(phase, goals) or [("", "-")]
    turn = str(phase.turn) if phase.phase != "ask" else ""
    heads = [(turn, phase.phase, length(phase.duration_s)), *[("", "", "")] * (len(told) - 1)]
    return [(*head, *line) for head, line in zip(heads, told, strict=True)]


def _told(phase: Phase, goals: dict[str, str]) -> list[_Told]:
    """Return what the phase heard, brought, decided and keeps in mind, and what went wrong."""
    return [
        *(("", _heard(each)) for each in phase.guidance),
        *(("", f"✗ {error}") for error in phase.errors),
        *(_executed(each, goals) for each in phase.executed),
        *(("", f"{each.get('step')} is now {each.get('skill')}, by the operator") for each in phase.overridden),
        *((f"{each.get('score'):.2f}", f"{each.get('step')} {each.get('quality')}") for each in phase.evaluated),
        *(("", line) for line in (_decided(phase.decision) if phase.decision else ())),
        *(("", _planned(each)) for each in phase.plan),
        *([("", f"? {phase.question.get('question')}")] if phase.question else []),
        *([("", f"! {_answered(phase.answer)}")] if phase.answer else []),
        *([("", f"memory: {phase.memory}")] if phase.memory else []),
        *(("", line) for line in (_compressed(phase.compressed) if phase.compressed else ())),
        *([("", f"answers: {_text(phase)}")] if phase.phase == "summarise" else []),
        *([("", "its JSON was repaired")] if phase.repaired else []),
    ]


def _goals(phases: Sequence[Phase]) -> dict[str, str]:
    return {str(step.get("id")): str(step.get("goal")) for phase in phases for step in phase.plan}


def _executed(step: Data, goals: dict[str, str]) -> _Told:
    is_ok, name = step.get("status") == "ok", str(step.get("step"))
    why = goals.get(name, "") if is_ok else f"{step.get('status')}: {step.get('error', '')}"
    return "", f"{'✓' if is_ok else '✗'} {name} {step.get('skill')}: {why}"


def _heard(said: Data) -> str:
    text = said.get("text")
    words = text if isinstance(text, str) else to_json(text).decode()
    if "refused" not in said:
        return f"heard {said.get('kind')}: {words}"
    return f"refused {said.get('kind')}: {said['refused'].removeprefix(f'{OVERRIDE}: ')}: {words}"


def _planned(step: Data) -> str:
    needs = ", ".join(map(str, step.get("depends_on") or ()))
    return f"{step.get('id')} {step.get('skill')}: {step.get('goal')}{f' (after {needs})' if needs else ''}"


def _decided(decision: Data) -> list[str]:
    sure = f", confidence {decision['confidence']}" if "confidence" in decision else ""
    why = [f"because: {decision['reason']}"] if decision.get("reason") else []
    return [f"{decision.get('action')} ({decision.get('by')}{sure})", *why]


def _answered(answer: Data) -> str:
    by = f"{answer['by']}: " if answer.get("by") else ""
    return f"{by}{answer.get('answer', '')}"


def _compressed(told: Data) -> list[str]:
    lost = ", ".join(map(str, told.get("lost") or ()))
    how = "" if told.get("taken") else ", kept as it was"
    why = [f"it would lose {lost}"] if lost else []
    return [f"memory: {told.get('before')} bytes to {told.get('after')}{how}", *why]


def _text(phase: Phase) -> str:
    return "".join(str(action.get("respond", "")) for action in phase.reply)


def length(seconds: float) -> str:
    """Return a duration as short as it can be read."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02} m" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02} h"
