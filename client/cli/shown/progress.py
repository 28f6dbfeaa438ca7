"""The progress of a run as a viewer sees it: combined from journal entries, pending calls and status."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from orga.client.cli.shown.narration import call_text
from orga.client.journal import event_types as on
from orga.client.journal.event_types import JournalEvent
from orga.client.journal.run_view import EVENT_PHASES, ViewedEntry, is_paused_after
from orga.client.journal.watcher import LiveActivity
from orga.client.runs.needed_worker import NeededWorker
from orga.workflows.types.limits import Budgets
from orga.workflows.types.models.usage import UsageTotals
from orga.workflows.types.names import OWN_ACTIVITIES, PROMPT_ACTIVITIES
from orga.workflows.types.questions import ShownQuestion
from orga.workflows.types.sessions.session_result import SessionStatus
from orga.workflows.types.status import AgentStatus
from orga.workflows.types.tool_calls.delegation import Child


@dataclass(frozen=True)
class PendingActivity:
    """An activity that runs or waits for its next attempt."""

    activity_id: str
    name: str
    attempt: int = 1
    failure: str = ""
    text: str = ""
    """The tail of what a model has written so far."""
    thinking: str = ""
    """The tail of a model's thinking so far."""
    since: datetime | None = None
    """Start of this attempt; None while it waits for a worker or for its retry."""
    retry_at: datetime | None = None
    took_s: float | None = None
    """Seconds that a finished call took. It is shown until all calls of its iteration are over."""

    def sort_key(self) -> list[tuple[int, str]]:
        """Return the key that sorts calls in the order of the reply."""
        return [(int(part) if part.isdecimal() else 0, part) for part in self.activity_id.split(".")]


@dataclass(frozen=True)
class PendingCalls:
    """The calls that the server reports as running, combined with those that the journal records."""

    running: tuple[PendingActivity, ...] = ()
    ended: tuple[PendingActivity, ...] = ()
    """Calls that have ended, but whose outcomes the journal does not record yet."""
    calls: tuple[tuple[str, str], ...] = ()
    """The reply's calls as text, by activity id."""
    observed_iteration: int = 0
    """The last iteration whose outcomes the journal records. An older answer of the server may still have its calls."""

    def with_event(self, event: JournalEvent, iteration: int) -> "PendingCalls":
        if isinstance(event, on.ReasoningComplete):
            calls = tuple((f"{iteration}.{index}", call_text(call)) for index, call in enumerate(event.calls))
            return replace(self, calls=calls, ended=())
        if isinstance(event, on.ObservationsCollected):
            running = tuple(call for call in self.running if not _is_call_up_to(call, iteration))
            observed = max(self.observed_iteration, iteration)
            return replace(self, running=running, ended=(), observed_iteration=observed)
        return replace(self, running=(), ended=()) if isinstance(event, on.Terminated) else self

    def with_activities(self, activities: tuple[PendingActivity, ...], now: datetime) -> "PendingCalls":
        """Return the calls after a look at the server. A call that is gone has ended since the last look."""
        running = tuple(call for call in activities if not _is_call_up_to(call, self.observed_iteration))
        ids = {call.activity_id for call in running}
        gone = [call for call in self.running if call.activity_id not in ids and call.name not in OWN_ACTIVITIES]
        newly_ended = tuple(replace(call, took_s=_elapsed_s(call, now)) for call in gone)
        ended_before = tuple(call for call in self.ended if call.activity_id not in ids)
        return replace(self, running=running, ended=(*ended_before, *newly_ended))

    def activity_text(self, activity: PendingActivity) -> str:
        """Return the call with its first argument. A fallback or another call outside the reply shows only its name."""
        text = dict(self.calls).get(activity.activity_id.partition(".r")[0], "")
        return text if text.split(" ")[0] == activity.name else activity.name


def _is_call_up_to(activity: PendingActivity, iteration: int) -> bool:
    """Return whether it is a call of this or an earlier iteration. A requeued dead letter (`.q`) is sent later."""
    number, _, _ = activity.activity_id.partition(".")
    is_call = activity.name not in OWN_ACTIVITIES and ".q" not in activity.activity_id
    return is_call and number.isdecimal() and int(number) <= iteration


def _elapsed_s(activity: PendingActivity, now: datetime) -> float:
    return max((now - activity.since).total_seconds(), 0.0) if activity.since else 0.0


_STATUS_ONLY_PHASES = {"waiting", "hydrating", "reviewing", "idle"}
"""Phases that only the run's own status reports."""


class DelegateStatus(NamedTuple):
    run_id: str
    status: AgentStatus


class QuestionKey(NamedTuple):
    run_id: str
    """The run that asks."""
    question_id: str


@dataclass(frozen=True)
class Progress:
    run_id: str = ""
    agent: str = ""
    iteration: int = 0
    phase: str = "starting"
    paused: bool = False
    tokens: int = 0
    cost_usd: float | None = None
    spent_s: float = 0.0
    """Seconds of the run's clock at `spent_at`. The clock stops while the run is paused or waits for a person."""
    spent_at: datetime | None = None
    budgets: Budgets | None = None
    waiting: tuple[ShownQuestion, ...] = ()
    circuits: tuple[str, ...] = ()
    """Tools whose circuit is not closed."""
    children: tuple[Child, ...] = ()
    delegates: tuple[DelegateStatus, ...] = ()
    """The delegates, and all delegates below them."""
    dead_letters: int = 0
    plan: dict[str, Any] | None = None
    """A goal's plan, from its status."""
    pending_calls: PendingCalls = field(default_factory=PendingCalls)
    task_queue: str = ""
    needed_worker: NeededWorker = field(default_factory=NeededWorker)
    lacks_worker: bool = False
    starts_worker: bool = False
    """True if this command starts the missing worker."""

    def with_entry(self, viewed: ViewedEntry) -> "Progress":
        """Return the progress after the next journal entry. Entries of delegated runs do not change it."""
        entry, event, run = viewed.entry, viewed.event, viewed.run
        if entry.run:
            return self
        begins_turn = isinstance(event, on.TurnStarted)
        return replace(
            self,
            agent=run.agent,
            iteration=run.turn_iteration,
            phase=EVENT_PHASES.get(type(event), self.phase),
            paused=is_paused_after(event, before=self.paused),
            waiting=_undecided_questions(self.waiting, event),
            tokens=run.tokens,
            spent_s=0.0 if begins_turn else self.spent_s,
            spent_at=entry.timestamp if begins_turn else self.spent_at or entry.timestamp,
            pending_calls=self.pending_calls.with_event(event, entry.iteration),
        )

    def with_activity(self, live: LiveActivity, now: datetime) -> "Progress":
        activities = [each for each in self.pending_calls.running if each.activity_id != live.activity_id]
        if not live.is_over:
            activities.append(
                PendingActivity(
                    activity_id=live.activity_id,
                    name=live.name,
                    attempt=live.attempt,
                    failure=live.failure,
                    text=live.text,
                    thinking=live.thinking,
                    since=live.since,
                    retry_at=live.retry_at,
                )
            )
        return self.with_activities(tuple(activities), now)

    def with_activities(self, activities: tuple[PendingActivity, ...], now: datetime) -> "Progress":
        """Return the progress after a look at the server, which knows of a new phase before the journal does."""
        names = {activity.name for activity in activities}
        phase = self.phase
        if not PROMPT_ACTIVITIES.isdisjoint(names):
            phase = "reasoning"
        elif names - OWN_ACTIVITIES:
            phase = "acting"
        return replace(self, pending_calls=self.pending_calls.with_activities(activities, now), phase=phase)

    def with_status(self, status: AgentStatus, now: datetime) -> "Progress":
        """Return the progress after a look at the run's status, which has its limits, cost and clock."""
        is_from_status = bool({status.phase, self.phase} & _STATUS_ONLY_PHASES)
        return replace(
            self,
            phase=status.phase if is_from_status else self.phase,
            waiting=tuple(status.waiting),
            circuits=open_circuits(status),
            children=tuple(status.children),
            dead_letters=len(status.dead_letters),
            plan=status.plan,
            budgets=status.budgets,
            cost_usd=budgeted_usage(status).cost_usd,
            paused=status.paused,
            spent_s=status.budgets.timeout_s - status.budgets.time_s,
            spent_at=now,
        )

    def open_questions(self) -> dict[QuestionKey, ShownQuestion]:
        """Return the open questions that a person answers by typing, of this run and its delegates."""
        return {
            QuestionKey(run_id, wait.wait_id): wait
            for run_id, wait in self.all_waiting()
            if wait.kind == "answer" and not wait.resolution
        }

    def all_waiting(self) -> Iterator[tuple[str, ShownQuestion]]:
        """Yield everything that waits, with the id of the run that asks: this run or a delegate."""
        yield from ((self.run_id, wait) for wait in self.waiting)
        for run_id, status in self.delegates:
            yield from ((run_id, wait) for wait in status.waiting)

    def clock_s(self, now: datetime) -> float:
        if self.spent_at is None or self.paused or self.waiting:
            return self.spent_s
        return self.spent_s + max((now - self.spent_at).total_seconds(), 0.0)


def budgeted_usage(status: AgentStatus) -> UsageTotals:
    """Return the usage that the budgets count: that of the run, or in a session that of the current turn."""
    return status.turn_usage if isinstance(status, SessionStatus) else status.usage


def _undecided_questions(waiting: tuple[ShownQuestion, ...], event: JournalEvent) -> tuple[ShownQuestion, ...]:
    """Return the questions that this event leaves open. New ones come from the status, which has their data."""
    if isinstance(event, on.Terminated):
        return ()
    decided = event.id if isinstance(event, (on.ApprovalResolved, on.QuestionAnswered)) else None
    return tuple(wait for wait in waiting if wait.wait_id != decided)


def open_circuits(status: AgentStatus) -> tuple[str, ...]:
    """Return the tools whose circuit is not closed."""
    return tuple(sorted(tool for tool, breaker in status.breakers.items() if breaker.state != "closed"))
