"""What the journal of a goal tells of its plan, its steps and its decisions, as lines for people."""

from collections.abc import Callable, Mapping
from typing import Any

from orga.client.cli.counting import counted
from orga.client.cli.line import Line
from orga.client.cli.terminal_text import on_one_line

Data = dict[str, Any]


def _planned(data: Data) -> list[Line]:
    steps: list[Data] = data.get("steps", [])
    named = f" of pipeline {_text(data, 'pipeline')}" if data.get("pipeline") else ""
    lines = [Line(f"plan{named}: {counted(len(steps), 'step')}")]
    return lines + [
        Line(f"  {_text(step, 'id')} {_text(step, 'skill')}: {_text(step, 'goal')}{_needs(step)}") for step in steps
    ]


def _needs(step: Data) -> str:
    needs: list[Any] = step.get("depends_on") or []
    return f" (after {on_one_line(', '.join(map(str, needs)))})" if needs else ""


def _executed(data: Data) -> list[Line]:
    is_ok = data.get("status") == "ok"
    why = f": {_text(data, 'error')}" if data.get("error") else ""
    mark = "✓" if is_ok else "✗"
    return [Line(f"{mark} {_text(data, 'step')} {_text(data, 'status')}{why}", "good" if is_ok else "bad")]


def _evaluated(data: Data) -> list[Line]:
    told = f"{_text(data, 'step')} scored {data.get('score')}: {_text(data, 'quality')}"
    return [Line(f"  {told}", "bad" if data.get("quality") == "failed" else "good")]


def _decided(data: Data) -> list[Line]:
    sure = f", confidence {data['confidence']}" if "confidence" in data else ""
    why = f": {_text(data, 'reason')}" if data.get("reason") else ""
    return [Line(f"decides ({_text(data, 'by')}{sure}): {_text(data, 'action')}{why}")]


def _asked(data: Data) -> list[Line]:
    return [Line(f"? asks: {_text(data, 'question')}   answer it: orga answer ID TEXT", "person")]


def _answered(data: Data) -> list[Line]:
    by = f" by {_text(data, 'by')}" if data.get("by") else ""
    return [Line(f"answered{by}: {_text(data, 'answer')}", "person")]


def _overridden(data: Data) -> list[Line]:
    return [Line(f"by the operator's word {_text(data, 'step')} is {_text(data, 'skill')}", "person")]


def _compressed(data: Data) -> list[Line]:
    lost = ", ".join(map(str, data.get("lost") or ()))
    why = f": {on_one_line(lost)} would be lost" if lost else ""
    how = "" if data.get("taken") else f", kept as it was{why}"
    return [Line(f"memory: {data.get('before')} bytes to {data.get('after')}{how}")]


def _delivered(data: Data) -> list[Line]:
    return [Line(f"✓ delivered to {_text(data, 'name')} ({_text(data, 'kind')})", "good")]


def _undelivered(data: Data) -> list[Line]:
    where = f"{_text(data, 'name')} ({_text(data, 'kind')})"
    return [Line(f"✗ not delivered to {where}: {_text(data, 'error')}", "bad")]


def _text(data: Data, key: str) -> str:
    return on_one_line(str(data.get(key, "")))


GOAL_TELLERS: Mapping[str, Callable[[Data], list[Line]]] = {
    "PlanMade": _planned,
    "PlanAdjusted": _planned,
    "StepExecuted": _executed,
    "StepEvaluated": _evaluated,
    "DecisionMade": _decided,
    "QuestionAsked": _asked,
    "QuestionAnswered": _answered,
    "MemoryCompressed": _compressed,
    "StepOverridden": _overridden,
    "Delivered": _delivered,
    "DeliveryFailed": _undelivered,
}
