"""A second kind of workflow: a list of errands, some with an approval. It knows nothing of agents.

The control core makes it steerable: its handlers, questions, clock, watches and continue-as-new.
"""

import asyncio
from datetime import timedelta
from typing import Any, Self, TypedDict, Unpack

from temporalio import workflow

from orga.workflows.decisions.control.interventions import with_reopened_end, with_run_over
from orga.workflows.decisions.control.questions import shown_question
from orga.workflows.phases.control import visibility
from orga.workflows.phases.control.ask_people import announce_end, ask_people
from orga.workflows.phases.control.handlers import ControlHandlers
from orga.workflows.phases.control.lifetime import (
    ResetWatch,
    RunWatches,
    continue_as_new,
    run_to_completion,
)
from orga.workflows.phases.control.run import ContinueAsNew, ControlledRun, Interrupted, event_time
from orga.workflows.phases.control.visibility import enter_phase, pause_checkpoint, wait_if_paused
from orga.workflows.types.control import Clock, Control, ControlTerms, Stop
from orga.workflows.types.questions import Item, Question
from orga.workflows.types.record import Record, replace_fields


class ErrandChanges(TypedDict, total=False):
    """The arguments of `with_errand`."""

    todo: tuple[str, ...]
    done: tuple[str, ...]
    heard: tuple[str, ...]


class Errands(Record):
    """The state that only this workflow has."""

    todo: tuple[str, ...] = ()
    """`buy …` needs an approval, `ask …` is a question with choices, and anything else takes a moment."""
    seconds: float = 60.0
    roll_over_events: int = 3_500
    expires_s: float = 60.0
    notify: bool = False
    done: tuple[str, ...] = ()
    heard: tuple[str, ...] = ()

    def with_errand(self, **changes: Unpack[ErrandChanges]) -> Self:
        """Return the state with these changes."""
        return replace_fields(self, changes)


class ErrandState(Errands, Control):
    """Its state: its own part, and the control part that any workflow has."""

    @property
    def name(self) -> str:
        """The workflow's name for people."""
        return "errands"

    @property
    def timeout_s(self) -> float:
        """Seconds on its clock."""
        return self.seconds

    @property
    def terms(self) -> ControlTerms:
        """The terms of control."""
        kinds = ("approval", "escalation", "ended") if self.notify else ()
        return ControlTerms(kinds, search_attributes=True, roll_over_events=self.roll_over_events)


class ErrandRun(ControlledRun[ErrandState]):
    """It has no own fields, because those of the core are enough."""


def with_inbox_read(state: ErrandState) -> ErrandState:
    """Read what people sent. Context is another errand, and guidance is recorded."""
    further = tuple(item.text for item in state.inbox if item.kind == "add_context")
    heard = tuple(item.text for item in state.inbox if item.kind == "steer")
    state = state.with_errand(todo=(*state.todo, *further), heard=(*state.heard, *heard))
    return state.with_control(inbox=(), inbox_bytes=0)


def with_step(state: ErrandState, errand: str, outcome: str) -> ErrandState:
    """Record a finished errand, and note it for the journal."""
    state = state.with_errand(done=(*state.done, f"{errand}: {outcome}")).with_control(iteration=state.iteration + 1)
    return state.with_note("ErrandRun", errand=errand, outcome=outcome)


@workflow.defn(name="Errands")
class ErrandsWorkflow(ControlHandlers[ErrandRun]):
    """Runs errands."""

    @workflow.init
    def __init__(self, given: Any, carried: Any = None) -> None:
        """Start, or continue with the carried state."""
        now, origin = event_time(), workflow.info().original_execution_run_id
        begun: dict[str, Any] = {"origin": origin, "clock": Clock(started_at=now), **(given or {})}
        self._run = ErrandRun(ErrandState.model_validate(begun if carried is None else carried))
        self._resets = ResetWatch(self._run)
        self._watches = RunWatches(self._run)

    @workflow.run
    async def run(self, given: Any, carried: Any = None) -> dict[str, Any]:
        """Run to the end."""
        return await run_to_completion(self._run, self._loop())

    @workflow.query
    def stands(self) -> dict[str, Any]:
        """Return the run's state."""
        state = self._run.state
        waiting = [shown_question(each).model_dump(mode="json") for each in state.open_questions]
        return {"phase": state.phase, "waiting": waiting, "done": state.done, "elapsed_s": self._elapsed_s()}

    def _elapsed_s(self) -> float:
        return self._run.state.clock.elapsed_seconds(self._run.now)

    async def _loop(self) -> dict[str, Any]:
        run = self._run
        while True:
            self._watches.start()
            try:
                stop = await self._until_stopped()
            except ContinueAsNew:
                await self._watches.stop()
                continue_as_new(run.state)
            run.change_state(with_run_over)
            await self._watches.stop()
            run.change_state(ErrandState.with_control, stop=stop)
            visibility.show_end(run, stop.reason)
            await announce_end(run, stop)
            run.change_state(with_reopened_end)
            if run.state.stop is not None:
                state = run.state
                return {"done": state.done, "heard": state.heard, "stop": stop, "elapsed_s": self._elapsed_s()}
            visibility.show_reopened(run)

    async def _until_stopped(self) -> Stop:
        run = self._run
        try:
            await wait_if_paused(run, may_continue_as_new=True)
            run.change_state(with_inbox_read)
            while len(run.state.done) < len(run.state.todo):
                errand = run.state.todo[len(run.state.done)]
                await pause_checkpoint(run, may_continue_as_new=True)
                enter_phase(run, "running")
                run.change_state(with_step, errand, await self._outcome(errand))
                visibility.show_progress(run)
                run.change_state(with_inbox_read)
                if run.is_continue_as_new_due:
                    raise ContinueAsNew
        except Interrupted:
            state = run.state
            return state.stop or Stop("aborted", state.aborted or "")
        return Stop("completed")

    async def _outcome(self, errand: str) -> str:
        run = self._run
        what = errand.partition(" ")[0]
        if what == "buy":
            item = Item(
                approval_id=f"yes-{run.state.iteration}",
                call={"call_id": "c", "name": "buy", "arguments": {"what": errand}},
                expires_at=run.now + timedelta(seconds=run.state.expires_s),
            )
            question = Question(
                question_id=f"buy-{run.state.iteration}", kind="approval", since=run.now, text=errand, items=(item,)
            )
            answer = (await ask_people(run, question, may_continue_as_new=True)).items[0].answer
            return "bought" if answer and answer.approved else f"not bought, {answer and answer.reason}"
        if what == "ask":
            question = Question(
                question_id=f"ask-{run.state.iteration}",
                kind="escalation",
                since=run.now,
                text=errand,
                choices=("retry", "skip"),
            )
            decided = (await ask_people(run, question, may_continue_as_new=True)).resolution
            return decided.choice if decided else "nobody said"
        walk = asyncio.create_task(run.wait_for_event(workflow.sleep(timedelta(milliseconds=50))))
        await run.wait_for_result(walk, run.is_interrupted)
        return "done"
