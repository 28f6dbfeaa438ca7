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
from orga.client.journal.events import LiveActivity, RunEvent
from orga.client.journal.reading import read_journal
from orga.client.journal.run_view import RunView
from orga.client.journal.timeline_reader import timelines_of
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
    """A turn of a session has begun, or a run that has a task."""

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
    had: str = ""
    """The text of earlier steps. `text` may begin differently after a failed attempt."""

    @property
    def new(self) -> str:
        """The part of `text` after `had`. It is the whole `text` if that does not continue `had`."""
        return self.text[len(self.had) :] if self.text.startswith(self.had) else f"\n\n{self.text}"


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
"""Why a turn ended if a person ended it."""
FAILED = {"error", "failed", "terminated"}
"""Why a turn ended if it could not go on. All other reasons except `completed` are limits."""

Step = Begun | Text | CallMade | CallBegun | CallEnded | Delegated | TurnProgress | Waiting | Over

_PLAN_EVENTS = (on.PlanMade, on.PlanAdjusted, on.StepExecuted, on.StepEvaluated, on.StepOverridden)
_TEXTS_FOR_PEOPLE = {"reason", ANSWER_PROMPT}
"""The model calls whose text is for people."""


@dataclass
class _Stream:
    """The text of a model call, collected from its live activity. That shows only the end, and may skip parts."""

    attempt: int = 0
    text: str = ""
    had: str = ""
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
        return self.text.startswith(self.had)


@dataclass
class TurnFold:
    """Makes steps of a run's journal entries and live activities. It must take all entries from the first one on."""

    run_id: str
    turn: int | None
    """The first turn of a session to show. None: the whole run, with all its turns."""
    last: int | None = None
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
    _open: dict[str, list[tuple[str, str]]] = field(default_factory=dict[str, list[tuple[str, str]]])
    """By run: place and call id of each call that has no outcome yet."""
    _answer: str = ""
    """The last reply of the run itself that was an answer."""

    def take(self, entry: JournalEntry) -> Iterator[Step]:
        self.newest = entry
        viewed = self.view.take(entry)
        event, run = viewed.event, entry.run
        is_begun = isinstance(event, on.TurnStarted) and event.turn == self.turn
        is_ended = isinstance(event, on.Terminated)  # a session may end before the turn begins
        if self.turn is None or (not run and (is_begun or is_ended)):
            self._is_reached = True
        if not self._is_reached or self.is_over:
            return
        yield from self._steps(entry, event)
        is_plan = isinstance(event, _PLAN_EVENTS)
        if not run and (is_plan or isinstance(event, on.ObservationsCollected)):
            yield TurnProgress(entry, is_plan)

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
                is_last = isinstance(event, on.Terminated) or event.turn == (self.last or self.turn)
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
                had, stream.had = stream.had, stream.text.rstrip()  # the journal's text may lack the spaces at its end
                yield Text(run, iteration, stream.had, is_thinking, had=had)

    def _take_reply(self, run: str, iteration: int, event: on.ReasoningComplete) -> Iterator[Step]:
        thinking = self._streams.pop((run, iteration, True), _Stream())
        reply = self._streams.pop((run, iteration, False), _Stream())
        if not event.is_for_people and not event.calls:
            return
        yield Text(run, iteration, thinking.text, is_thinking=True, is_whole=True, had=thinking.had)
        text = reply.text
        if not event.calls:
            text = "\n".join(action.respond for action in event.actions if action.respond)
            self._answer = self._answer if run else text
        yield Text(run, iteration, text, is_whole=True, is_answer=not event.calls, had=reply.had)
        self._open[run] = [(f"{iteration}.{n}", call.call_id) for n, call in enumerate(event.calls)]
        for n, call in enumerate(event.calls):
            arguments = to_json(call.arguments, inf_nan_mode="strings").decode()
            yield CallMade(run, iteration, f"{iteration}.{n}", call.tool or "", arguments)

    def _place(self, run: str, call_id: str) -> str:
        return next((place for place, call in self._open.get(run, []) if call == call_id), "")

    def _end_calls(self, run: str, iteration: int, outcomes: Iterable[on.RecordedCall]) -> Iterator[CallEnded]:
        """End the calls of a reply. A call without a recorded outcome was denied."""
        open_calls = self._open.pop(run, [])
        for outcome in outcomes:
            for place, call_id in open_calls:
                if call_id == outcome.call_id:
                    open_calls.remove((place, call_id))
                    yield CallEnded(run, iteration, place, outcome.outcome, outcome.error or outcome.outcome)
                    break
        for place, _ in open_calls:
            yield CallEnded(run, iteration, place, "denied", "denied")

    def _end(self, event: on.TurnEnded | on.Terminated, iteration: int, *, is_last: bool) -> Iterator[Step]:
        self.is_over = is_last
        for run in list(self._open):
            for place, _ in self._open.pop(run):
                yield CallEnded(run, iteration, place, "not_run", event.reason)
        if is_last or self.turn is None:
            open_turn = self.view.turn.number if self.view.turn and not self.view.turn.reason else 0
            turn = event.turn if isinstance(event, on.TurnEnded) else open_turn
            reply = "" if self.view.calls else self._answer
            yield Over(event.reason, event.detail, self._answer, event.usage, turn, reply)
        self._answer = ""


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
    if not follow and fold.pause_s is not None:
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
            if isinstance(event, JournalEntry) and fold.newest and event.sequence <= fold.newest.sequence:
                raise OrgaError(f"run {run.id!r} was rewound meanwhile. Open it again")
            for step in fold.take_live(event) if isinstance(event, LiveActivity) else fold.take(event):
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
    if isinstance(step, Over) and step.reason != "completed" and isinstance(run, SessionHandle):
        with suppress(OrgaError):  # without a worker, the last reply is shown
            return replace(step, output="".join(each.output for each in await run.turns() if each.turn == step.turn))
    is_known_or_partial = isinstance(step, Text) and (step.is_answer or not step.is_whole)
    if is_known_or_partial or not isinstance(step, CallEnded | Text):
        return step
    with suppress(OrgaError):  # the server may no longer have the history of a delegate
        record = await timelines_of(run.client).record(step.run or run.id, step.iteration)
        if isinstance(step, CallEnded):
            call = next((each for each in record.calls if each.id == step.place), None)
            if call is None:
                return step
            text = call.result.head if call.result else call.failure or call.reason
            return replace(step, text=text or step.text)
        whole = record.thinking if step.is_thinking else record.reply
        if whole is not None and whole.head.startswith(step.text):
            return replace(step, text=whole.head)
    return step
