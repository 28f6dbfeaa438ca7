"""Actions of people on a run: `POST /runs/{id}/actions`.

Every action has an `id` from its sender. An action that is sent again under its id has no second effect:

- A signal carries the id to the run, which remembers it.
- The ids of updates, messages and forks are derived from it. The server or the run remembers them.
- A rewind has it in the reason of its reset.

Ids of two senders never clash, because the sender's name always counts, too.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import AfterValidator, Field, Strict
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowExecutionStatus

from orga.client.console.doors import Role
from orga.client.console.problems import Problem, error_text, invalid
from orga.client.console.routes import Call, Routes, derived_id, json_response
from orga.client.errors import OrgaError, Refused, RunEnded
from orga.client.history.chain import page_from_end
from orga.client.history.values import RunConverters, intervention_arguments, run_converters
from orga.client.past.fork import fork, read_ended_run, requeue_in_fork
from orga.client.past.rewind import execute_rewind, has_rewound, plan_rewind
from orga.client.runs.agents import AgentHandle
from orga.client.runs.exchange import Exchange
from orga.client.runs.sessions import SessionHandle
from orga.client.server.versions import may_be_served
from orga.workflows.types.control import NOTES_MEMO
from orga.workflows.types.json_text import as_object, as_objects
from orga.workflows.types.limits import BudgetExtension
from orga.workflows.types.names import AGENT_WORKFLOW, GOAL_WORKFLOW, SESSION_WORKFLOW
from orga.workflows.types.questions import Choice
from orga.workflows.types.record import CheckedInput, Record, replace_fields
from orga.workflows.types.sessions.session_input import WhenBusy
from orga.workflows.types.text import clean_text

ROUTES = Routes()

TAKEN_S = 5.0
"""Seconds to wait until the run has taken an intervention."""
FIRST_PAUSE_S, LAST_PAUSE_S = 0.01, 0.2
"""Seconds between two reads of the history. The pause grows from the first value to the last."""
LATEST_EVENTS = 200
"""Events at the end of a history that are searched for an intervention."""

State = Literal["applied", "received", "refused"]

Text = Annotated[str, Field(min_length=1, max_length=50_000), AfterValidator(clean_text)]
Reason = Annotated[str, Field(max_length=2_000), AfterValidator(clean_text)]


class ActionAnswer(Record):
    """The outcome of an action."""

    id: str = ""
    state: State
    detail: str = ""
    run: str | None = None
    """The run that an action has started, such as a fork."""
    is_pending: bool = Field(default=False, exclude=True)
    """True if the action takes effect only when a worker takes it."""

    def with_id(self, action_id: str) -> Self:
        return replace_fields(self, {"id": action_id})


_APPLIED = ActionAnswer(state="applied")
_RECEIVED = ActionAnswer(state="received")


@dataclass(frozen=True)
class Target:
    """The run of an action, and the action's sender and id."""

    client: Client
    run_id: str
    workflow_type: str
    is_live: bool
    by: str
    action_id: str

    @property
    def handle(self) -> AgentHandle:
        return AgentHandle(self.client, self.run_id)

    @property
    def exchange(self) -> Exchange:
        return Exchange(self.client, self.run_id)

    @property
    def sender(self) -> dict[str, str]:
        return {"by": self.by, "id": self.action_id}

    def require_type(self, *types: str) -> None:
        if self.workflow_type not in types:
            raise Problem(409, f"run {self.run_id!r} is a {self.workflow_type}, which has no such action")

    def new_run_id(self, kind: str) -> str:
        """Return the id of a run that the action starts. A repeated action has the same id."""
        return f"{kind}-{derived_id(self.run_id, self.by, self.action_id)}"

    async def signal(self, name: str, argument: Mapping[str, Any] = MappingProxyType({})) -> ActionAnswer:
        """Send a signal, and wait until the run has taken it."""
        sender = {"id": self.action_id} if "approver" in argument else self.sender  # `approver` is the sender
        await self.exchange.signal(name, {**sender, **argument})
        if not await self._is_served():
            return ActionAnswer(
                state="received", detail="no worker is running; it counts when one starts", is_pending=True
            )
        return await _wait_until_taken(self)

    async def decide(self, name: str, argument: dict[str, Any], done: ActionAnswer = _APPLIED) -> ActionAnswer:
        """Send a decision, and return `done` once the run has taken it.

        It is an update, which the run checks before it records it. Without a worker, it is a signal.
        """
        if not await self.takes_updates():
            return await self.decide_by_signal(name, argument, done)
        update_id = derived_id(name, self.by, self.action_id)
        try:
            await self.exchange.update(name, argument, update_id=update_id)
        except (Refused, RunEnded):
            if not await self.exchange.is_accepted(update_id):
                raise
        return done

    async def takes_updates(self) -> bool:
        """Return whether the action can be an update: a worker may answer it, and it was not sent as a signal before.

        A repeated signal stays a signal, so that the run recognises its id.
        """
        return await self._is_served() and not (await _read_traces(self)).is_sent

    async def _is_served(self) -> bool:
        return await may_be_served(self.client, await self.handle.describe())

    async def decide_by_signal(self, name: str, argument: dict[str, Any], done: ActionAnswer) -> ActionAnswer:
        """Send a decision as a signal. It takes effect when a worker takes it."""
        outcome = await self.signal(name, argument)
        if outcome.state == "refused":
            raise Refused(outcome.detail)
        return outcome if outcome.is_pending else done


TrueOrFalse = Annotated[bool, Strict()]
"""A bool. Texts such as "no" are refused."""


class RunAction(CheckedInput):
    """The fields of every action."""

    wait_key: ClassVar[str] = ""
    """The field with the id of the wait that the action decides."""
    is_start: ClassVar[bool] = False
    """True if it starts a run, which the doors limit."""

    id: str = Field(pattern=r"^[!#-\[\]-~]{1,64}$")
    """Your id for the action: up to 64 printable ASCII characters without spaces, quotation marks and backslashes. An
    action that is sent again under the same id has no second effect."""
    kind: str

    async def send(self, to: Target) -> ActionAnswer:
        """Carry out the action."""
        return await to.signal(self.kind)


class PauseOrResume(RunAction):
    """Stop before the next phase, or continue after a pause."""


class Guide(RunAction):
    """Guide the next reasoning step, or add information that the agent keeps."""

    text: Text

    async def send(self, to: Target) -> ActionAnswer:
        return await to.signal(self.kind, {"text": self.text})


class Abort(RunAction):
    """Cancel running calls and end the run."""

    reason: Reason = ""

    async def send(self, to: Target) -> ActionAnswer:
        return await to.signal("abort", {"text": self.reason})


class OverrideStep(RunAction):
    """Replace the next step of a goal's plan."""

    skill: Annotated[str, Field(min_length=1, max_length=200), AfterValidator(clean_text)]
    input: dict[str, Any] | str
    """The arguments of the call, or a text for an agent."""

    async def send(self, to: Target) -> ActionAnswer:
        to.require_type(GOAL_WORKFLOW)
        given = clean_text(self.input) if isinstance(self.input, str) else self.input
        return await to.signal("override_step", {"skill": self.skill, "input": given})


class AnswerQuestion(RunAction):
    """Answer a question."""

    wait_key = "question_id"
    question_id: str = Field(default="", max_length=1_000)
    """Empty: the only open question."""
    text: Text

    async def send(self, to: Target) -> ActionAnswer:
        named = {"question_id": self.question_id} if self.question_id else {}
        return await to.decide("answer", {"text": self.text, "by": to.by, **named})


class ApproveOrDeny(RunAction):
    """Approve one held call, or deny it. The model reads the reason of a denial."""

    wait_key = "approval_id"
    approval_id: str = Field(min_length=1, max_length=200)
    """The id of the held call."""
    reason: Reason = ""
    arguments: dict[str, Any] | None = None
    """All arguments of the call, if the approval changes them."""

    async def send(self, to: Target) -> ActionAnswer:
        decision: dict[str, Any] = {"approval_id": self.approval_id, "approver": to.by, "reason": self.reason}
        if self.arguments is not None:
            decision["arguments"] = self.arguments
        return await to.decide(self.kind, decision)


class Resolve(RunAction):
    """Decide an escalation, or end a run at its budget."""

    wait_key = "escalation_id"
    escalation_id: str = Field(min_length=1, max_length=1_000)
    """The id of the escalation or of the budget question."""
    choice: Choice
    result: Annotated[str, AfterValidator(clean_text)] = ""
    """The result to continue with, for the choice `result`."""
    reason: Reason = ""

    async def send(self, to: Target) -> ActionAnswer:
        decision = {"escalation_id": self.escalation_id, "choice": self.choice, "result": self.result}
        return await to.decide("resolve_escalation", {**decision, "by": to.by, "reason": self.reason})


class Complete(RunAction):
    """Give a call of a deferred tool its result, or its error."""

    wait_key = "idempotency_key"
    idempotency_key: str = Field(min_length=1, max_length=64)
    """The key of the call. It is the id of its wait."""
    result: Any = None
    """Any JSON."""
    error: Reason = ""
    """The error that the model gets instead of a result."""
    nothing_done: TrueOrFalse = False
    """The call failed and had no effect."""

    async def send(self, to: Target) -> ActionAnswer:
        given = self.model_dump(include={"idempotency_key", "result", "error", "nothing_done"}, exclude_defaults=True)
        return await to.decide("complete_tool_call", {**given, "by": to.by})


class Extend(BudgetExtension, RunAction):
    """Raise limits. The numbers are new totals."""

    async def send(self, to: Target) -> ActionAnswer:
        limits = self.model_dump(include=set(BudgetExtension.model_fields), exclude_none=True)
        if not limits:
            raise invalid([f"{next(iter(BudgetExtension.model_fields))}: give the new total of this or another limit"])
        return await to.decide("extend_budget", {**limits, "by": to.by})


class Requeue(RunAction):
    """Send a dead letter again. An ended run does so in a fork."""

    letter: str = Field(min_length=1, max_length=200)

    async def send(self, to: Target) -> ActionAnswer:
        if to.is_live:
            done = ActionAnswer(state="received", detail="it is sent again before the next reasoning step")
            return await to.decide("requeue", {"letter_id": self.letter, "by": to.by}, done)
        if to.workflow_type != AGENT_WORKFLOW:
            command = f"orga requeue {to.run_id} {self.letter}"
            raise Problem(409, f"only a machine with the channel's secrets can send it again. Run there: {command}")
        new_id = to.new_run_id("agent")
        if not await _exists(to.client, new_id):
            ended = await read_ended_run(to.client, to.run_id)
            await requeue_in_fork(to.client, ended, [self.letter], new_id=new_id, by=to.by)
        return ActionAnswer(state="applied", detail="a fork of the run sends it again", run=new_id)


class RewindRun(RunAction):
    """Continue from the end of an earlier iteration."""

    to_iteration: int = Field(ge=0, le=10**9)
    """The last iteration that is kept."""
    steer: Annotated[str, Field(max_length=50_000), AfterValidator(clean_text)] = ""
    keep_interventions: TrueOrFalse = True
    """Deliver again what people sent to the run after that iteration."""
    sure: TrueOrFalse = False
    """Rewind even if calls after that iteration had effects that nothing undoes."""

    async def send(self, to: Target) -> ActionAnswer:
        if await has_rewound(to.client, to.run_id, to.sender):
            return _APPLIED
        plan = await plan_rewind(to.client, to.run_id, self.to_iteration)
        if plan.irreversible_calls and not self.sure:
            errors = [{"where": "to_iteration", "detail": line} for line in plan.irreversible_calls]
            why = f"{len(errors)} irreversible calls would be discarded, and nothing undoes them"
            raise Problem(409, f'{why}. To rewind anyway, send it with "sure": true', errors=errors)
        keep = self.keep_interventions
        await execute_rewind(to.client, plan, steer=self.steer or None, keep_interventions=keep, sender=to.sender)
        return ActionAnswer(state="applied", detail=f"the run goes on from the end of iteration {self.to_iteration}")


class ForkRun(RunAction):
    """Start another run with the same past."""

    is_start = True
    to_iteration: int = Field(ge=0, le=10**9)
    """The last iteration that is shared."""
    task: Text | None = None
    changes: dict[str, Any] = {}
    """Keys of the input that differ, such as `model`, and `config` with the settings that differ."""

    async def send(self, to: Target) -> ActionAnswer:
        to.require_type(AGENT_WORKFLOW, GOAL_WORKFLOW)
        new_id = to.new_run_id("goal" if to.workflow_type == GOAL_WORKFLOW else "agent")
        if not await _exists(to.client, new_id):
            await fork(
                to.client,
                to.run_id,
                self.to_iteration,
                changes=self.changes,
                task=self.task,
                new_id=new_id,
                by=to.by,
            )
        return ActionAnswer(state="applied", detail=f"{new_id} shares its past", run=new_id)


class Send(RunAction):
    """Send a message to a session."""

    text: Text
    when_busy: WhenBusy = "enqueue"

    async def send(self, to: Target) -> ActionAnswer:
        to.require_type(SESSION_WORKFLOW)
        session = SessionHandle(to.client, to.run_id)
        message_id = derived_id(to.by, to.action_id)
        if await to.takes_updates():
            turn = await session.post(self.text, when_busy=self.when_busy, message_id=message_id, by=to.by)
            return ActionAnswer(state="received", detail=f"turn {turn}")
        message = {"text": self.text, "when_busy": self.when_busy, "message_id": message_id, "by": to.by}
        return await to.decide_by_signal("send", message, _RECEIVED)


class Interrupt(RunAction):
    """End the current turn of a session now."""

    reason: Reason = ""
    turn: int | None = Field(default=None, ge=1)

    async def send(self, to: Target) -> ActionAnswer:
        to.require_type(SESSION_WORKFLOW)
        return await to.decide("interrupt", {"why": self.reason, "turn": self.turn, "by": to.by})


class Close(RunAction):
    """End a session after the current turn."""

    async def send(self, to: Target) -> ActionAnswer:
        to.require_type(SESSION_WORKFLOW)
        return await to.signal("close")


@dataclass(frozen=True)
class Situation:
    """The facts that decide which actions make sense."""

    kind: str
    is_live: bool
    is_paused: bool
    wait_kinds: frozenset[str]
    has_plan: bool
    letters: int
    is_turn_open: bool


def _is_session(now: Situation) -> bool:
    return now.kind == "session"


def _is_agent_or_goal(now: Situation) -> bool:
    return now.kind != "session"


def _has_held_call(now: Situation) -> bool:
    return "approval" in now.wait_kinds


@dataclass(frozen=True)
class ActionRule:
    """The fields of a kind of action, the role that it needs, and when it makes sense."""

    model: type[RunAction]
    makes_sense: Callable[[Situation], bool] = lambda _: True
    why_not: str = ""
    """The reason to show when it makes no sense."""
    role: Role = "operator"
    """The role that it needs."""
    takes_ended: bool = False
    """True if it may make sense for a run that has ended."""

    def obstacle(self, now: Situation) -> str:
        """Return why it makes no sense now, or ""."""
        if not now.is_live and not self.takes_ended:
            return "the run has ended"
        return "" if self.makes_sense(now) else self.why_not


ACTIONS: Mapping[str, ActionRule] = {
    "pause": ActionRule(PauseOrResume, lambda now: not now.is_paused, "the run is paused already"),
    "resume": ActionRule(PauseOrResume, lambda now: now.is_paused, "the run is not paused"),
    "steer": ActionRule(Guide),
    "add_context": ActionRule(Guide),
    "answer": ActionRule(AnswerQuestion, lambda now: "answer" in now.wait_kinds, "no question is open"),
    "approve": ActionRule(ApproveOrDeny, _has_held_call, "no call is held", "approver"),
    "deny": ActionRule(ApproveOrDeny, _has_held_call, "no call is held", "approver"),
    "resolve": ActionRule(Resolve, lambda now: bool(now.wait_kinds & {"escalation", "budget"}), "no decision is open"),
    "complete": ActionRule(Complete, lambda now: "result" in now.wait_kinds, "no call waits for its result"),
    "override_step": ActionRule(OverrideStep, lambda now: now.has_plan, "the run has no plan"),
    "extend": ActionRule(Extend, role="approver"),
    "abort": ActionRule(Abort),
    "requeue": ActionRule(
        Requeue, lambda now: now.letters > 0, "there is no dead letter", "approver", takes_ended=True
    ),
    "rewind": ActionRule(
        RewindRun, _is_agent_or_goal, "messages of a session cannot be taken back", "admin", takes_ended=True
    ),
    "fork": ActionRule(ForkRun, _is_agent_or_goal, "a session cannot be forked", takes_ended=True),
    "send": ActionRule(Send, _is_session, "only a session takes messages"),
    "interrupt": ActionRule(Interrupt, lambda now: now.is_turn_open, "no turn is under way"),
    "close": ActionRule(Close, _is_session, "only a session can be closed"),
}


async def _exists(client: Client, run_id: str) -> bool:
    try:
        await AgentHandle(client, run_id).describe()
    except OrgaError:
        return False
    return True


async def _wait_until_taken(to: Target) -> ActionAnswer:
    """Wait until a worker has taken the signal, and return the outcome that the run has noted, if it has."""
    deadline, pause_s = monotonic() + TAKEN_S, FIRST_PAUSE_S
    while monotonic() < deadline:
        traces = await _read_traces(to)
        if traces.is_taken:
            return traces.noted or _RECEIVED
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 1.5, LAST_PAUSE_S)
    return ActionAnswer(state="received", detail="no worker has taken it yet; it counts when one does", is_pending=True)


class _Traces(NamedTuple):
    """The traces of an action at the end of a history."""

    is_sent: bool = False
    """True if these events contain its signal."""
    is_taken: bool = False
    """True if a worker has taken the latest such signal."""
    noted: ActionAnswer | None = None
    """The outcome that the run has noted."""


async def _read_traces(to: Target) -> _Traces:
    page = await page_from_end(to.client, to.run_id, size=LATEST_EVENTS)
    converters = run_converters(to.client, to.run_id)
    worker_event, signal_event, noted = 0, 0, None
    for event in page.history.events:  # newest first
        noted = noted or await _noted_outcome(event, converters, to)
        if event.event_type in _EVENTS_OF_WORKERS:
            worker_event = max(worker_event, event.event_id)
        elif not signal_event and await _is_signal_of(event, converters, to):
            signal_event = event.event_id
    return _Traces(is_sent=signal_event > 0, is_taken=worker_event > signal_event, noted=noted)


_EVENTS_OF_WORKERS = {
    EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW,
}


async def _is_signal_of(event: HistoryEvent, converters: RunConverters, to: Target) -> bool:
    """Return whether an event is the signal of this action. Other events have no signal arguments."""
    payloads = event.workflow_execution_signaled_event_attributes.input.payloads
    for argument in map(as_object, await intervention_arguments(converters.own_converter, payloads)):
        sender = argument.get("by", argument.get("approver"))
        if (sender, argument.get("id")) == (to.by, to.action_id):
            return True
    return False


async def _noted_outcome(event: HistoryEvent, converters: RunConverters, to: Target) -> ActionAnswer | None:
    """Return the outcome of the action that the run notes in this event, or None."""
    fields = event.workflow_properties_modified_event_attributes.upserted_memo.fields
    if NOTES_MEMO not in fields:
        return None
    [notes] = await converters.own_converter.decode([fields[NOTES_MEMO]])
    for note in as_objects(notes):
        data = as_object(note.get("data"))
        if (data.get("id"), data.get("by")) != (to.action_id, to.by):
            continue
        if note.get("event") == "InterventionRefused":
            return ActionAnswer(state="refused", detail=str(data.get("reason") or ""))
        if note.get("event") == "InterventionApplied":
            return ActionAnswer(state="applied", detail=f"in {data.get('phase')} of iteration {data.get('iteration')}")
    return None


_MODELS = {kind: rule.model for kind, rule in ACTIONS.items()}


@ROUTES.post("/runs/{id}/actions", ActionAnswer, role="operator", more_statuses=(202, 409), by_kind=_MODELS)
async def _act(call: Call[RunAction]) -> Any:
    """Act on a run: decide, steer, pause, abort, rewind, fork, send a message."""
    action, described = call.given, call.described
    call.console.doors.require(call.visitor, ACTIONS[action.kind].role, is_write=True)
    if action.is_start:
        call.console.doors.count_start(call.visitor)
    to = Target(
        client=call.client,
        run_id=described.id,
        workflow_type=described.workflow_type,
        is_live=described.status == WorkflowExecutionStatus.RUNNING,
        by=call.visitor.name,
        action_id=action.id,
    )
    try:
        outcome = await action.send(to)
    except Refused as error:
        if await _is_too_late(to, action):
            raise
        outcome = ActionAnswer(state="refused", detail=error_text(error))
    return json_response(outcome.with_id(action.id), 202 if outcome.is_pending else 200)


async def _is_too_late(to: Target, action: RunAction) -> bool:
    """Return whether a decision was refused because the run no longer waits for it."""
    if not action.wait_key:
        return False
    try:
        status = await to.handle.status()
    except OrgaError:
        return True
    wanted = getattr(action, action.wait_key)
    held = {item.approval_id for item in status.pending_approvals}
    open_ids = held | {asked.wait_id for asked in status.waiting}
    return bool(wanted) and wanted not in open_ids
