"""Renders a run's status, plan and outcome as lines."""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus

from orga.client.cli.shown.decisions import commands_text, expiry_text, held_call_table, held_calls, requeue_command
from orga.client.cli.shown.progress import budgeted_usage, open_circuits
from orga.client.cli.shown.text import age, count_text, hanging_lines, terminal_line
from orga.client.journal import event_types as on
from orga.client.journal.event_types import read_event
from orga.client.journal.reading import read_journal
from orga.client.journal.watcher import LiveActivity
from orga.client.runs.agents import AgentHandle
from orga.client.runs.listing import read_summary
from orga.workflows.decisions.result import call_counts_text, call_summary, usage_text
from orga.workflows.types.limits import LIMITS, Budgets
from orga.workflows.types.models.tiers import Tier
from orga.workflows.types.recall import Recollection
from orga.workflows.types.sessions.session_result import SessionStatus, TurnResult
from orga.workflows.types.status import AgentResult, AgentStatus
from orga.workflows.types.text import full_field_text
from orga.workflows.types.tool_calls.delegation import Child
from orga.workflows.types.workplace import Workplace

if TYPE_CHECKING:
    from orga.workflows.types.goals.pursuit import GoalResult, GoalStatus


def as_goal_result(ended: AgentResult | TurnResult) -> "GoalResult | None":
    if getattr(ended, "kind", "") != "goal":
        return None
    from orga.workflows.types.goals.pursuit import GoalResult

    return ended if isinstance(ended, GoalResult) else None


def as_goal_status(status: AgentStatus) -> "GoalStatus | None":
    if getattr(status, "kind", "") != "goal":
        return None
    from orga.workflows.types.goals.pursuit import GoalStatus

    return status if isinstance(status, GoalStatus) else None


MAX_LIVE_STEPS = 8
"""Steps that a live view shows: the last ones."""

_MARKS = {"done": "✓", "failed": "✗", "open": "·"}

Plan = dict[str, Any]


def step_lines(plan: Plan | None, most: int | None = None) -> list[str]:
    """Return a line for each step, or only for the last `most` steps. Without a plan there are none."""
    steps: list[dict[str, Any]] = (plan or {}).get("steps", [])
    shown = steps if most is None else steps[-most:]
    before = [f"… {len(steps) - len(shown)} steps before"] if len(shown) < len(steps) else []
    return before + [_step_line(step) for step in shown]


def plan_lines(plan: Plan | None) -> list[str]:
    trend, pipeline = trend_line(plan), pipeline_name(plan)
    return [
        *([f"pipeline   {pipeline}"] if pipeline else []),
        *(f"step       {line}" for line in step_lines(plan)),
        *([f"scores     {trend}"] if trend else []),
    ]


def pipeline_name(plan: Plan | None) -> str:
    """Return the pipeline that the plan comes from; "" if the model made the plan."""
    return terminal_line(str((plan or {}).get("pipeline", "")), 60)


def trend_line(plan: Plan | None) -> str:
    """Return the trend of the latest rounds' scores; "" if there are too few."""
    trend, average, slope = ((plan or {}).get(key) for key in ("trend", "average", "slope"))
    if not trend or average is None:
        return ""
    return f"{str(trend).lower()}{f' ({slope:+.2f} a round)' if slope else ''}, {average:.2f} on average"


def _step_line(step: dict[str, Any]) -> str:
    score, status = step.get("score"), str(step.get("status"))
    score_text = f"  {score:.2f} {step.get('quality')}" if score is not None else ""
    error = f"  {terminal_line(str(step['error']), 60)}" if step.get("error") else ""
    text = terminal_line(f"{step.get('id')} {step.get('skill')}: {step.get('goal')}", 60)
    return f"{_MARKS.get(status, status)} {text}{score_text}{error}"


def status_lines(run_id: str, status: AgentStatus) -> list[str]:
    """Return the lines of a status. Each question for a person comes with the command that decides it."""
    budgets = status.budgets
    most_cost = "" if budgets.max_cost_usd is None else f", of {budgets.max_cost_usd:g} USD"
    lines = [
        f"phase      {'paused' if status.paused else status.phase}",
        f"agent      {full_field_text(status.agent)}, {full_field_text(status.model or 'model not chosen yet')}",
        *([f"folder     {folder_line(status.workplace)}"] if status.workplace else []),
        _iteration_line(status),
        *_turn_lines(status),
        f"spent      {usage_text(budgeted_usage(status))}, of {budgets.max_total_tokens} tokens{most_cost}",
        f"time       {budgets.timeout_s - budgets.time_s:.0f} of {budgets.timeout_s:.0f} s",
        f"tools      {call_counts_text(status.tool_calls)}",
        *([f"calls      {calls}"] if (calls := call_budgets(budgets)) else []),
        *([f"knowledge  {_recall_text(status.knowledge)}"] if status.knowledge else []),
        *plan_lines(status.plan),
        *_confidence_lines(status),
        *_question_lines(run_id, status),
    ]
    lines += [
        f"circuit    {full_field_text(tool)}: {status.breakers[tool].state.replace('_', ' ')}"
        for tool in open_circuits(status)
    ]
    lines += [_delegate_line(child) for child in status.children]
    lines += letter_lines(run_id, status, "letter     ")
    lines += [
        f"unread     {item.get('kind')}{f' (cut: {cut})' if (cut := item.get('cut')) else ''}: "
        f"{terminal_line(str(item.get('text')), 300)}"
        for item in status.unread_interventions
    ]
    lines += _tier_lines(status)
    if status.termination is not None:
        detail = terminal_line(status.termination.detail, 600)
        lines.append(f"ended      {status.termination.reason} {detail}".rstrip())
    return lines


def activity_lines(activities: Sequence[LiveActivity], now: datetime) -> list[str]:
    """Return a line for each activity in flight: since when it runs, or when and why it will be tried again."""
    return [f"in flight  {full_field_text(each.name)}: {_attempt_text(each, now)}" for each in activities]


def _attempt_text(live: LiveActivity, now: datetime) -> str:
    number = f"attempt {live.attempt}" if live.attempt > 1 else ""
    if live.since is not None:
        when = f"running for {age(live.since, now)}"
    elif live.retry_at is not None:
        when = f"in {age(now, live.retry_at)}"
    else:
        when = "no worker has begun it yet"
    failure = f"after: {terminal_line(live.failure, 300) or 'silence'}" if number else ""
    return ", ".join(part for part in (number, when, failure) if part)


def _turn_lines(status: AgentStatus) -> list[str]:
    """Return a session's current turn, and the usage of all its turns."""
    if not isinstance(status, SessionStatus):
        return []
    waiting = f", {status.queued} waiting" if status.queued else ""
    ends = ", then the session ends" if status.closing else ""
    return [
        f"turn       {status.turn or 'none'} of {status.turns}{waiting}{ends}",
        f"in all     {usage_text(status.usage)}",
    ]


def _recall_text(last: Recollection) -> str:
    if last.error:
        return f"nothing could be recalled: {terminal_line(last.error, 300)}"
    words = f" for: {terminal_line(' '.join(last.terms), 120)}" if last.terms else ""
    return f"{count_text(last.items, 'item')} recalled{words}"


def _tier_lines(status: AgentStatus) -> list[str]:
    """Return the tiers in effect. A goal prompt has its name in the configuration: without `goal_`."""
    if not status.tiers:
        return ["tiers      none, every prompt goes to that model"] if status.model else []
    return [
        f"tier       {full_field_text(what.removeprefix('goal_'))}: {_tier_text(tier)}"
        for what, tier in status.tiers.items()
    ]


def _tier_text(tier: Tier) -> str:
    why = " (the default model, as no tier is configured)" if tier.is_default else ""
    return f"{tier.name}, {terminal_line(', then '.join(tier.models), 600)}{why}"


def _iteration_line(status: AgentStatus) -> str:
    """Return what `max_iterations` counts: iterations, or for a goal its rounds. A round takes several prompts."""
    most = status.budgets.max_iterations
    if status.plan is not None:
        return f"round      {full_field_text(str(status.plan.get('rounds', 0)))} of {most}"
    done = most - status.budgets.iterations if isinstance(status, SessionStatus) else status.iteration
    return f"iteration  {done} of {most}"


def _confidence_lines(status: AgentStatus) -> list[str]:
    """Return a live goal's confidence after its steps so far. After the end, the result has it."""
    goal = as_goal_status(status)
    if goal is None or goal.confidence is None or goal.termination is not None:
        return []
    return [f"confidence {goal.confidence:.2f}"]


def folder_line(workplace: Workplace) -> str:
    config = f", {workplace.config} (sha256:{workplace.digest})" if workplace.config else ", no orga.toml"
    return terminal_line(f"{workplace.root}{config}", 500)


def _delegate_line(child: Child) -> str:
    return (
        f"delegated  {full_field_text(child.agent)}: {terminal_line(child.task)} "
        f"({full_field_text(child.workflow_id)}{waiting_suffix(child)})"
    )


def waiting_suffix(child: Child) -> str:
    return ", waits for a person" if child.held else ""


def letter_lines(run_id: str, status: AgentStatus, head: str) -> list[str]:
    """Return two lines for each dead letter: the call and its error, and the command that sends it again."""
    is_over, lines = status.termination is not None, list[str]()
    for letter in status.dead_letters:
        call = terminal_line(call_summary(letter.call, None))
        failure = f"{full_field_text(letter.letter_id)} {call}: {terminal_line(letter.error, 200)}"
        is_due = letter.requeued and not is_over
        remedy = "will be sent again" if is_due else f"→ {requeue_command(run_id, letter, is_over=is_over)}"
        lines += [f"{head}{failure}", f"{' ' * len(head)}{remedy}"]
    return lines


_LIMITS_ELSEWHERE = {"max_iterations", "max_total_tokens", "max_cost_usd", "timeout_s"}
"""Limits that other lines of a status show."""


def call_budgets(budgets: Budgets) -> str:
    """Return how much of each limit of calls is used; "" if the run has none."""
    texts = list[str]()
    for limit in LIMITS:
        most = getattr(budgets, limit.key)
        if limit.key not in _LIMITS_ELSEWHERE and most is not None:
            used = most - (getattr(budgets, limit.rest) or 0)
            texts.append(f"{used} of {most} {limit.noun}")
    return ", ".join(texts)


def _question_lines(run_id: str, status: AgentStatus) -> list[str]:
    now, lines = datetime.now(UTC), list[str]()
    for wait in status.waiting:
        asked = (
            f"{wait.kind} {full_field_text(wait.wait_id)}, {age(wait.since, now)}: {terminal_line(wait.question, 300)}"
            f"{expiry_text(wait, now)}"
        )
        lines.append(f"waits      {asked}")
        if calls := held_calls(wait):
            lines += [f"           {line}" for line in held_call_table(calls, now)]
        lines.append(f"           → {commands_text(run_id, wait)}")
    return lines


TASK_CHARS = 600


@dataclass(frozen=True)
class RunOutcome:
    """The task and the answer of a live or ended run."""

    task: str
    answer: str | None = None
    """None while the run is live, and after it failed or was terminated."""
    confidence: float | None = None
    """The confidence of an ended goal; None for other runs."""

    def json_fields(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if key != "confidence" or value is not None}

    def lines_around(self, lines: list[str]) -> list[str]:
        """Return the lines of a status between the task and the answer."""
        answer = hanging_lines("answer     ", self.answer) if self.answer else []
        confidence = [] if self.confidence is None else [f"confidence {self.confidence:.2f}"]
        task = [f"task       {terminal_line(self.task, TASK_CHARS)}"] if self.task else []
        return [*task, *lines, *confidence, *answer]


async def run_outcome(client: Client, described: WorkflowExecutionDescription) -> RunOutcome:
    """Return the outcome of a run. It needs no worker."""
    if described.status != WorkflowExecutionStatus.COMPLETED:
        return RunOutcome(await _read_task(client, described))
    ended = await AgentHandle(client, described.id).result()
    goal = as_goal_result(ended)
    return RunOutcome(await _read_task(client, described), ended.output, goal.confidence if goal else None)


async def _read_task(client: Client, described: WorkflowExecutionDescription) -> str:
    """Return the task in full, or only its beginning if the server no longer keeps the start of a long run."""
    async with aclosing(read_journal(client, described.id)) as entries:
        async for entry in entries:
            event = read_event(entry)
            if isinstance(event, on.Started) and event.task:
                return event.task
            break
    return await read_summary(described)
