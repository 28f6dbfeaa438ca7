"""Turns the journal and the live activities of a run into steps that front ends show: texts, calls, questions, the end.

The steps are those of one turn of a session, or of a whole run. Whoever reads the same turn again gets the same steps.
So a front end that lost its connection can continue: it skips the steps that its client has.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace

from pydantic_core import to_json

from orga.client.errors import NoAnswer, OrgaError
from orga.client.frontends.reach import OpenWait, open_waits
from orga.client.journal import event_types as on
from orga.client.journal.event_types import ANSWER_PROMPT
from orga.client.journal.reading import read_journal
from orga.client.journal.run_view import RunView
from orga.client.journal.timeline_reader import timelines_of
from orga.client.journal.timeline_records import IterationRecord
from orga.client.journal.watcher import LiveActivity, RunEvent
from orga.client.runs.agents import AgentHandle
from orga.client.runs.sessions import SessionHandle
from orga.workflows.types.models.usage import UsageTotals
from orga.workflows.types.status import JournalEntry

QUIET_S = 0.2
"""Seconds without news, after which the list of open questions is complete. A run asks all its questions at once."""
AGAIN_S = 30.0
"""Seconds until the open questions are read again."""


@dataclass(frozen=True)
class Begun:
    """A turn of a session has begun, or a run with a task, outside of sessions."""

    turn: int
    """0 for a run that is no session."""
    message: str


@dataclass(frozen=True)
class Text:
    """The known part of a reply, or of the thinking before it."""

    run: str
    """The delegated run that writes it, or "" for the run itself."""
    iteration: int
    text: str
    is_thinking: bool = False
    is_whole: bool = False
    is_answer: bool = False
    shown: str = ""
    """The text that earlier steps have shown. `text` may begin differently after a failed attempt."""

    @property
    def new(self) -> str:
        """The part of `text` after `shown`. It is the whole `text` if that does not continue `shown`."""
        return self.text[len(self.shown) :] if self.text.startswith(self.shown) else f"\n\n{self.text}"


@dataclass(frozen=True)
class CallMade:
    run: str
    iteration: int
    place: str
    """The call's activity id, such as `7.0`: its iteration and its index in the reply."""
    tool: str
    arguments: str
    """JSON."""


@dataclass(frozen=True)
class CallBegun:
    """A call is allowed, and runs now."""

    run: str
    place: str


@dataclass(frozen=True)
class CallEnded:
    run: str
    iteration: int
    place: str
    outcome: str
    """`ok`, `failed`, `cancelled`, `unfinished`, `not_run`, or `denied`."""
    text: str


@dataclass(frozen=True)
class Delegated:
    run: str
    """The run that delegates."""
    place: str
    child: str
    """The delegated run."""
    agent: str
    reason: str = ""
    """Why the delegated run ended, or "" while it works."""


@dataclass(frozen=True)
class TurnProgress:
    """An iteration of the run itself, or its plan, has changed."""

    entry: JournalEntry
    is_plan: bool


@dataclass(frozen=True)
class Waiting:
    """All questions that are open after a moment without news."""

    waits: list[OpenWait]


@dataclass(frozen=True)
class Over:
    """The turn or the run has ended."""

    reason: str
    detail: str
    output: str
    usage: UsageTotals
    turn: int = 0
    """0 if the run has ended outside of a turn."""
    reply: str = ""
    """The last reply, if it was an answer."""

    @property
    def new_output(self) -> str:
        """The output, unless the last reply was the same text."""
        return "" if self.output == self.reply else self.output


CANCELLED = {"interrupted", "aborted"}
"""Reasons of a turn that a person has ended."""
FAILED = {"error", "failed", "terminated"}
"""Reasons of a turn that could not go on. All other reasons except `completed` are limits."""

Step = Begun | Text | CallMade | CallBegun | CallEnded | Delegated | TurnProgress | Waiting | Over

_PLAN_EVENTS = (on.PlanMade, on.PlanAdjusted, on.StepExecuted, on.StepEvaluated, on.StepOverridden)
_TEXTS_FOR_PEOPLE = {"reason", ANSWER_PROMPT}
"""The model calls whose text is for people."""


@dataclass
class _Stream:
    """The text of a model call, collected from its live activity, which shows only the end and may skip parts."""

    attempt: int = 0
    text: str = ""
    shown: str = ""
    """The text that steps have shown, perhaps that of an earlier attempt."""

    def add(self, attempt: int, tail: str, length: int) -> bool:
        """Add the new part of the text. Return True if the text has no gaps and continues the text of the steps.

        Otherwise only the journal can show the text, once it is whole.

        Args:
            tail: The end of the text.
            length: The length of the whole text.
        """
        if attempt != self.attempt:
            self.attempt, self.text = attempt, ""
        new = length - len(self.text)
        if not 0 < new <= len(tail):
            return False
        self.text += tail[-new:]
        return self.text.startswith(self.shown)


@dataclass
class TurnFold:
    """Makes steps of a run's journal entries and live activities. It must take all entries from the first one on."""

    run_id: str
    turn: int | None
    """The first turn of a session to show. None: the whole run, with all its turns."""
    last_turn: int | None = None
    """The last turn to show. None: only the first."""
    view: RunView = field(default_factory=RunView)
    is_over: bool = False
    pause_s: float | None = None
    """Seconds without news after which the open questions are read. None: there can be no open question."""
    newest: JournalEntry | None = None
    """The last entry that was taken."""
    _is_reached: bool = False
    """True once the first turn to show has begun."""
    _streams: dict[tuple[str, int, bool], _Stream] = field(default_factory=dict[tuple[str, int, bool], _Stream])
    """By run, iteration, and True for thinking."""
    _open: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    """By run and call id: the place of each call that has no outcome yet."""
    _answer: str = ""
    """The last reply of the run itself that was an answer."""

    def take(self, entry: JournalEntry) -> Iterator[Step]:
        self.newest = entry
        viewed = self.view.take(entry)
        event, run = viewed.event, entry.run
        if self.turn is None or (not run and self._begins_turn(event)):
            self._is_reached = True
        if not self._is_reached or self.is_over:
            return
        yield from self._steps(entry, event)
        is_plan = isinstance(event, _PLAN_EVENTS)
        if not run and (is_plan or isinstance(event, on.ObservationsCollected)):
            yield TurnProgress(entry, is_plan)

    def _begins_turn(self, event: on.JournalEvent) -> bool:
        """Return whether the first turn to show begins, or the session has ended before it."""
        return isinstance(event, on.Terminated) or (isinstance(event, on.TurnStarted) and event.turn == self.turn)

    def _steps(self, entry: JournalEntry, event: on.JournalEvent) -> Iterator[Step]:
        run = entry.run
        match event:
            case on.TurnStarted() if not run:
                yield Begun(event.turn, event.message)
            case on.Started(task=task) if task and not run:
                yield Begun(0, task)
            case on.ReasoningComplete():
                yield from self._take_reply(run, entry.iteration, event)
            case on.ToolsDispatched():
                yield from (CallBegun(run, self._place(run, call.call_id)) for call in event.tools)
            case on.ObservationsCollected():
                yield from self._end_calls(run, entry.iteration, event.outcomes)
            case on.DelegationStarted():
                yield Delegated(run, self._place(run, event.call_id), event.workflow_id, event.agent)
            case on.DelegationEnded():
                yield Delegated(run, "", event.workflow_id, "", event.reason or "ended")
            case on.ApprovalRequested() | on.QuestionAsked() | on.InterventionReceived(kind="delegate_held"):
                self.pause_s = QUIET_S
            case on.TurnEnded() | on.Terminated() if not run:
                is_last = isinstance(event, on.Terminated) or event.turn == (self.last_turn or self.turn)
                yield from self._end(event, entry.iteration, is_last=is_last)
            case _:
                pass

    def take_live(self, live: LiveActivity) -> Iterator[Text]:
        """Return the new text and thinking of a model call. `reason` of iteration 7 has the activity id `7`."""
        run = "" if live.run == self.run_id else live.run
        if live.name not in _TEXTS_FOR_PEOPLE or not live.activity_id.isdecimal() or not self._is_reached:
            return
        iteration = int(live.activity_id)
        if not run and iteration <= self.view.iteration:  # its reply is known already
            return
        tails = ((True, live.thinking, live.thinking_length), (False, live.text, live.text_length))
        for is_thinking, tail, length in tails:
            stream = self._streams.setdefault((run, iteration, is_thinking), _Stream())
            if stream.add(live.attempt, tail, length):
                text = stream.text.rstrip()  # the journal's text may lack the spaces at its end
                step = Text(run, iteration, text, is_thinking, shown=stream.shown)
                stream.shown = text
                yield step

    def _take_reply(self, run: str, iteration: int, event: on.ReasoningComplete) -> Iterator[Step]:
        thinking = self._streams.pop((run, iteration, True), _Stream())
        reply = self._streams.pop((run, iteration, False), _Stream())
        if not event.is_for_people and not event.calls:
            return
        yield Text(run, iteration, thinking.text, is_thinking=True, is_whole=True, shown=thinking.shown)
        text = reply.text
        if not event.calls:
            text = "\n".join(action.respond for action in event.actions if action.respond)
            if not run:
                self._answer = text
        yield Text(run, iteration, text, is_whole=True, is_answer=not event.calls, shown=reply.shown)
        self._open[run] = {call.call_id: f"{iteration}.{index}" for index, call in enumerate(event.calls)}
        for call in event.calls:
            arguments = to_json(call.arguments, inf_nan_mode="strings").decode()
            yield CallMade(run, iteration, self._place(run, call.call_id), call.tool or "", arguments)

    def _place(self, run: str, call_id: str) -> str:
        return self._open.get(run, {}).get(call_id, "")

    def _end_calls(self, run: str, iteration: int, outcomes: Iterable[on.RecordedCall]) -> Iterator[CallEnded]:
        """End the calls of a reply. A call without a recorded outcome was denied."""
        open_calls = self._open.pop(run, {})
        for outcome in outcomes:
            if place := open_calls.pop(outcome.call_id, ""):
                yield CallEnded(run, iteration, place, outcome.outcome, outcome.error or outcome.outcome)
        for place in open_calls.values():
            yield CallEnded(run, iteration, place, "denied", "denied")

    def _end(self, event: on.TurnEnded | on.Terminated, iteration: int, *, is_last: bool) -> Iterator[Step]:
        self.is_over = is_last
        for run in list(self._open):
            for place in self._open.pop(run).values():
                yield CallEnded(run, iteration, place, "not_run", event.reason)
        if is_last or self.turn is None:
            turn = event.turn if isinstance(event, on.TurnEnded) else self._unfinished_turn()
            reply = "" if self.view.calls else self._answer
            yield Over(event.reason, event.detail, self._answer, event.usage, turn, reply)
        self._answer = ""

    def _unfinished_turn(self) -> int:
        turn = self.view.turn
        return turn.number if turn and not turn.reason else 0


async def turn_steps(
    run: AgentHandle, fold: TurnFold, past: list[JournalEntry], *, follow: bool = True
) -> AsyncGenerator[Step]:
    """Yield the steps of a turn: first those of the past, then, if `follow` is True, live ones until it is over.

    `Waiting` is yielded when questions are open, and again every `AGAIN_S`. The consumer may stop after it.

    Args:
        past: The entries that the fold has not taken.

    Raises:
        OrgaError: The run was rewound meanwhile, or can no longer be read.
    """
    for entry in past:
        for step in fold.take(entry):
            yield await with_recorded_texts(run, step)
    may_ask = fold.pause_s is not None
    if may_ask and not follow:
        with suppress(NoAnswer):
            if waits := await open_waits(run):
                yield Waiting(waits)
    if fold.is_over or not follow:
        return
    events = run.events(fold.newest.cursor if fold.newest else None)
    async with aclosing(_with_pauses(events, fold)) as news:
        async for event in news:
            if event is None:
                with suppress(NoAnswer):  # no worker is running; the next pause asks again
                    waits = await open_waits(run)
                    fold.pause_s = AGAIN_S if waits else None
                    if waits:
                        yield Waiting(waits)
                continue
            newest = fold.newest.sequence if fold.newest else -1
            if isinstance(event, JournalEntry) and event.sequence <= newest:
                raise OrgaError(f"run {run.id!r} was rewound meanwhile. Open it again")
            steps = fold.take_live(event) if isinstance(event, LiveActivity) else fold.take(event)
            for step in steps:
                yield await with_recorded_texts(run, step)
            if fold.is_over:
                return
    yield Over("error", "the run has ended", "", UsageTotals())


async def read_past(run: AgentHandle) -> list[JournalEntry]:
    return [entry async for entry in read_journal(run.client, run.id)]


async def _with_pauses(events: AsyncGenerator[RunEvent], fold: TurnFold) -> AsyncGenerator[RunEvent | None]:
    """Yield the events, and None after each pause of `fold.pause_s` without an event."""
    upcoming: asyncio.Task[RunEvent] | None = None
    try:
        while True:
            upcoming = upcoming or asyncio.ensure_future(anext(events))
            await asyncio.wait({upcoming}, timeout=fold.pause_s)
            if not upcoming.done():
                yield None
                continue
            event, upcoming = upcoming.result(), None
            yield event
    except StopAsyncIteration:
        return
    finally:
        if upcoming is not None:
            upcoming.cancel()
            await asyncio.gather(upcoming, return_exceptions=True)
        await events.aclose()


async def with_recorded_texts(run: AgentHandle, step: Step) -> Step:
    """Return a step with its text from the history, if the journal lacks the text.

    It lacks the text of thinking, of a reply with calls, of a call's result, and of a turn that did not complete.
    """
    match step:
        case Over() if step.reason != "completed" and isinstance(run, SessionHandle):
            return await _with_output_of_turn(run, step)
        case CallEnded():
            return await _with_recorded_result(run, step)
        case Text() if step.is_whole and not step.is_answer:
            return await _with_recorded_text(run, step)
        case _:
            return step


async def _with_output_of_turn(session: SessionHandle, step: Over) -> Over:
    with suppress(OrgaError):  # without a worker, the last reply is shown
        outputs = {each.turn: each.output for each in await session.turns()}
        return replace(step, output=outputs.get(step.turn, ""))
    return step


async def _with_recorded_result(run: AgentHandle, step: CallEnded) -> CallEnded:
    record = await _recorded_iteration(run, step)
    for call in record.calls if record else ():
        if call.id == step.place:
            text = call.result.head if call.result else call.failure or call.reason
            return replace(step, text=text or step.text)
    return step


async def _with_recorded_text(run: AgentHandle, step: Text) -> Text:
    record = await _recorded_iteration(run, step)
    if record is None:
        return step
    whole = record.thinking if step.is_thinking else record.reply
    if whole is None or not whole.head.startswith(step.text):
        return step
    return replace(step, text=whole.head)


async def _recorded_iteration(run: AgentHandle, step: CallEnded | Text) -> IterationRecord | None:
    with suppress(OrgaError):  # the server may no longer have the history of a delegate
        return await timelines_of(run.client).record(step.run or run.id, step.iteration)
    return None
