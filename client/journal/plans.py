"""The plan of a goal, folded from its journal: which steps there are, what became of each, where the scores go.

It has the keys of the plan that a live goal tells of itself (`ShownPlan`), as far as a journal knows them.
"""

from collections.abc import Callable
from typing import Any

from orga.workflows.types.status import JournalEntry

Data = dict[str, Any]


class PlanFold:
    """Takes in the entries of one goal, in order."""

    def __init__(self) -> None:
        self._steps: dict[str, Data] = {}
        self._rounds: set[str] = set()
        """By the turn that they are the calls of."""
        self._scores: dict[int, list[float]] = {}
        """By the turn that judged them."""
        self._pipeline = ""

    @property
    def plan(self) -> Data | None:
        """The plan; None of a run that has none, or none yet."""
        if not self._steps:
            return None
        from orga.workflows.decisions.goals.progress import score_trend  # what only goals need is loaded for them alone

        trend = score_trend([sum(each) / len(each) for each in self._scores.values()])
        return {
            "rounds": len(self._rounds),
            "steps": list(self._steps.values()),
            **({"trend": trend.word, "average": trend.average, "slope": trend.slope} if trend else {}),
            **({"pipeline": self._pipeline} if self._pipeline else {}),
        }

    def feed(self, entry: JournalEntry) -> None:
        """Take in the next entry."""
        if take_in := _HANDLERS.get(entry.event):
            take_in(self, entry)

    def _replace_plan(self, entry: JournalEntry) -> None:
        """Take in a plan: it stands in place of all that was open."""
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
        if isinstance(score, (int, float)) and "by" not in entry.data:  # a critic's scores are of another scale
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
