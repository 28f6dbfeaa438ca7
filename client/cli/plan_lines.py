"""The plan of a live goal, as its status tells it: the steps with their states and scores, and where the scores go."""

from typing import Any

from orga.client.cli.terminal_text import on_one_line

SHOWN = 8
"""Steps in a live view: the latest, with all that are open."""

_MARKS = {"done": "✓", "failed": "✗", "open": "·"}

Plan = dict[str, Any]


def step_lines(plan: Plan | None, most: int | None = None) -> list[str]:
    """Return a line for each step, or for the last `most`; none of a run that has no plan."""
    steps: list[dict[str, Any]] = (plan or {}).get("steps", [])
    shown = steps if most is None else steps[-most:]
    before = [f"… {len(steps) - len(shown)} steps before"] if len(shown) < len(steps) else []
    return before + [_step(step) for step in shown]


def plan_lines(plan: Plan | None) -> list[str]:
    """Return the lines of a status on a plan; none of a run that has no plan."""
    trend, pipeline = trend_line(plan), pipeline_name(plan)
    named = [f"pipeline   {pipeline}"] if pipeline else []
    return named + [f"step       {line}" for line in step_lines(plan)] + ([f"scores     {trend}"] if trend else [])


def pipeline_name(plan: Plan | None) -> str:
    """Return the pipeline whose plan it is; "" of one by the model."""
    return on_one_line(str((plan or {}).get("pipeline", "")), 60)


def trend_line(plan: Plan | None) -> str:
    """Return how the scores of the latest rounds go; "" where there are too few."""
    trend, average, slope = ((plan or {}).get(key) for key in ("trend", "average", "slope"))
    if not trend or average is None:
        return ""
    return f"{str(trend).lower()}{f' ({slope:+.2f} a round)' if slope else ''}, {average:.2f} on average"


def _step(step: dict[str, Any]) -> str:
    score, status = step.get("score"), str(step.get("status"))
    worth = f"  {score:.2f} {step.get('quality')}" if score is not None else ""
    error = f"  {on_one_line(str(step['error']), 60)}" if step.get("error") else ""
    named = f"{step.get('id')} {step.get('skill')}: {step.get('goal')}"
    return f"{_MARKS.get(status, status)} {on_one_line(named, 60)}{worth}{error}"
