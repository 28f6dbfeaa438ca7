"""Folds the plan of a goal from its journal: the steps, their outcomes, and the trend of the scores.

It has the keys of the plan that a live goal shows (`ShownPlan`), as far as the journal has their values.
"""

from collections.abc import Callable
from typing import Any

from orga.workflows.types.status import JournalEntry

Data = dict[str, Any]


class PlanFold:
    """Folds the entries of one goal in order."""

    def __init__(self) -> None:
        self._steps: dict[str, Data] = {}
        self._rounds: set[str] = set()
        """The rounds, by the turn whose calls they are."""
        self._scores: dict[int, list[float]] = {}
        """Scores, by the turn that gave them."""
        self._pipeline = ""

    @property
    def plan(self) -> Data | None:
        """The plan, or None if there is none yet."""
        if not self._steps:
            return None
        from orga.workflows.decisions.goals.progress import score_trend  # imported here because only goals need it

        trend = score_trend([sum(each) / len(each) for each in self._scores.values()])
        return {
            "rounds": len(self._rounds),
            "steps": list(self._steps.values()),
            **({"trend": trend.word, "average": trend.average, "slope": trend.slope} if trend else {}),
            **({"pipeline": self._pipeline} if self._pipeline else {}),
        }

    def feed(self, entry: JournalEntry) -> None:
        """Add the next entry."""
        if handle := _HANDLERS.get(entry.event):
            handle(self, entry)

    def _replace_plan(self, entry: JournalEntry) -> None:
        """Replace all open steps by those of a new plan."""
        self._pipeline = str(entry.data.get("pipeline", self._pipeline))
        over = {step_id: step for step_id, step in self._steps.items() if step["status"] != "open"}
        steps: list[Data] = entry.data.get("steps") or []
        self._steps = over | {str(step.get("id")): {**step, "status": "open"} for step in steps}

    def _record_execution(self, entry: JournalEntry) -> None:
        is_ok, place = entry.data.get("status") == "ok", str(entry.data.get("place", ""))
        self._rounds.add(place.partition(".")[0])
        self._update_step(
            entry, status="done" if is_ok else "failed", output=place, error=str(entry.data.get("error", ""))
        )

    def _record_evaluation(self, entry: JournalEntry) -> None:
        score, quality = entry.data.get("score"), entry.data.get("quality")
        self._update_step(entry, score=score, quality=quality, **({"status": "failed"} if quality == "failed" else {}))
        if isinstance(score, (int, float)) and "by" not in entry.data:  # a critic's scores have another scale
            self._scores.setdefault(entry.iteration, []).append(score)

    def _record_override(self, entry: JournalEntry) -> None:
        self._update_step(entry, goal="by a person's word", status="open")

    def _update_step(self, entry: JournalEntry, **changes: Any) -> None:
        step_id = str(entry.data.get("step"))
        known = self._steps.get(step_id, {"id": step_id, "goal": "", "skill": ""})
        skill = {"skill": entry.data["skill"]} if "skill" in entry.data else {}
        self._steps[step_id] = {**known, **skill, **changes}


_HANDLERS: dict[str, Callable[[PlanFold, JournalEntry], None]] = {
    "PlanMade": PlanFold._replace_plan,
    "PlanAdjusted": PlanFold._replace_plan,
    "StepExecuted": PlanFold._record_execution,
    "StepEvaluated": PlanFold._record_evaluation,
    "StepOverridden": PlanFold._record_override,
}
