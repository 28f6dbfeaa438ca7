"""`orga status`: the state of a run, from its query or, without a worker, from its history and journal."""

from collections.abc import AsyncIterable, Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowExecutionStatus

from orga.client.cli.interrupts import run_interruptible
from orga.client.cli.options import ConfigFile, Json, RunId
from orga.client.cli.session import CliContext, run_context
from orga.client.cli.shown.decisions import held_call_text
from orga.client.cli.shown.progress import Progress
from orga.client.cli.shown.status_text import plan_lines, run_outcome, status_lines
from orga.client.cli.shown.text import on_one_line, write_json, write_note, write_result
from orga.client.config.workplace import recorded_workplace, worker_command
from orga.client.errors import NoAnswer
from orga.client.journal.reading import read_journal
from orga.client.runs.failing_tasks import FailingTask, failing_task
from orga.client.server.pollers import may_be_polled
from orga.client.workers.routing import is_version_missing, pinned_version
from orga.workflows.types.questions import QUESTION_ANSWERED, QUESTION_ASKED
from orga.workflows.types.status import AgentStatus, JournalEntry
from orga.workflows.types.text import full_field_text

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
        self._update_step(entry, goal="set by a person", status="open")

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


@dataclass(frozen=True)
class HistoryStatus:
    """The state of a run as folded from its journal."""

    progress: Progress
    last: JournalEntry | None
    asked: tuple[JournalEntry, ...]
    """Questions to people that nobody has decided."""
    plan: dict[str, Any] | None = None
    failing: FailingTask | None = None
    """The failing workflow task, if workers are there but cannot continue the run."""

    @property
    def failure_text(self) -> str:
        """The reason for reading the history if a workflow task fails, with the remedy; else ""."""
        return (
            f"{self.failing.problem_line}; this is the state in the history. {self.failing.remedy}"
            if self.failing
            else ""
        )

    @property
    def termination(self) -> dict[str, Any] | None:
        """Reason and detail of the run's end, or None."""
        ended = self.last if self.last is not None and self.last.event == "Terminated" else None
        return {key: ended.data.get(key) for key in ("reason", "detail")} if ended else None

    def json_fields(self) -> dict[str, Any]:
        return {
            "from": "history",
            "agent": self.progress.agent,
            "phase": self.progress.phase,
            "paused": self.progress.paused,
            "iteration": self.progress.iteration,
            "tokens": self.progress.tokens,
            "waiting": [{"kind": _question_kind(entry), **entry.data} for entry in self.asked],
            **({"plan": self.plan} if self.plan else {}),
            "termination": self.termination,
            "task_fails": {**asdict(self.failing), "way_out": self.failing.remedy} if self.failing else None,
        }

    def lines(self) -> list[str]:
        progress, ended = self.progress, self.termination
        lines = [
            f"phase      {'paused' if progress.paused else progress.phase}",
            f"agent      {full_field_text(progress.agent)}",
            f"round      {self.plan['rounds']}" if self.plan else f"iteration  {progress.iteration}",
            f"spent      {progress.tokens} tokens",
            *plan_lines(self.plan),
        ]
        for entry in self.asked:
            question = _question_text(entry.data)
            kind, asked_id = full_field_text(_question_kind(entry)), full_field_text(str(entry.data.get("id")))
            lines.append(f"waits      {kind} {asked_id}: {question}")
        if self.failing:
            lines.append(f"stuck      {on_one_line(self.failing.problem_line, 600)}")
        if ended:
            lines.append(f"ended      {ended['reason']} {on_one_line(ended['detail'] or '', 600)}".rstrip())
        return lines


def _question_kind(entry: JournalEntry) -> str:
    return str(entry.data.get("kind", "answer"))


def _question_text(data: dict[str, Any]) -> str:
    return held_call_text(data) if data.get("kind") == "call" else on_one_line(str(data.get("question", "")), 300)


async def history_status(entries: AsyncIterable[JournalEntry]) -> HistoryStatus:
    """Fold the journal of a run. Questions of its delegates are not included."""
    progress, last, plan = Progress(), None, PlanFold()
    asked: dict[str, JournalEntry] = {}
    async for entry in entries:
        progress = progress.with_entry(entry)
        if entry.run:
            continue
        last = entry
        plan.feed(entry)
        if entry.event in {"ApprovalRequested", QUESTION_ASKED}:
            asked[str(entry.data.get("id"))] = entry
        elif entry.event in {"ApprovalResolved", QUESTION_ANSWERED}:
            asked.pop(str(entry.data.get("id")), None)
    is_over = last is not None and last.event == "Terminated"
    return HistoryStatus(progress, last, () if is_over else tuple(asked.values()), plan.plan)


def status(run: RunId, json: Json = False, config: ConfigFile = None) -> int:
    """If the run has ended, its whole answer is shown too.

    Only a worker can query a run. Without one, the command reads the history, and --json has "from": "history". It
    does the same if the run's workflow task fails, so that no worker can continue it, and shows the cause and the
    remedy.

    Example: orga status ID --json
    """
    return run_interruptible(_status(run, config, as_json=json))


async def _status(named: str, config: Path | None, *, as_json: bool) -> int:
    async with run_context(named, config) as (here, run_id):
        described = await here.run(run_id).describe()
        failing, version = await failing_task(here.client, described), pinned_version(described)
        is_left = not failing and await is_version_missing(here.client, described.task_queue, version)
        answer = None if failing or is_left else await _query_status(here, run_id, described.task_queue)
        if answer is None:
            start = worker_command(await recorded_workplace(described))
            past = replace(await history_status(read_journal(here.client, run_id)), failing=failing)
            nobody = f"no worker of version {version.to_canonical_string()}" if is_left and version else "no worker"
            if described.status == WorkflowExecutionStatus.RUNNING:
                write_note(
                    past.failure_text
                    or f"{nobody} answers, so this is the state in the history; start one with: {start}"
                )
            shown, lines = past.json_fields(), past.lines()
        else:
            shown, lines = answer.model_dump(mode="json"), status_lines(run_id, answer)
        if version is not None:
            name = version.to_canonical_string()
            shown["version"] = name
            lines.insert(2, f"version    {on_one_line(name)}")
        outcome = await run_outcome(here.client, described)
    if as_json:
        write_json(shown | outcome.json_fields())
    else:
        write_result(*outcome.lines_around(lines))
    return 0


async def _query_status(here: CliContext, run_id: str, task_queue: str) -> AgentStatus | None:
    if not await may_be_polled(here.client, task_queue):
        return None
    try:
        return await here.run(run_id).status()
    except NoAnswer:
        return None
