"""The goal as a workflow: plan, execute, evaluate, decide, until a final answer can be given.

- Plan: the model proposes steps, which may depend on each other; what is wrong with them is told to it.
- Execute: all steps that can be done now are calls of one reply. Gate, stages and act are the agent's own.
- Evaluate: the model scores what they brought; what that is worth follows from the scores.
- Decide: by rules where they settle it, else by the model: go on, change the plan, ask, end.
- Summarise: every ending brings what was found.

A goal is an agent's run with a pursuit: its turns are turns of one conversation. What is said at the head of
`workflows/agent.py` of pauses, aborts, the deadline and of continuing as new holds here, too.
"""

from typing import Any, NoReturn

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from orga.workflows.decisions import calls, limits, observe
from orga.workflows.decisions.control.interventions import reopened, with_over
from orga.workflows.decisions.control.questions import with_resolution
from orga.workflows.decisions.goals.begin import first_goal, pursued
from orga.workflows.decisions.goals.endings import goal_result, goal_status, goal_stop
from orga.workflows.decisions.goals.pursue import with_guidance_seen
from orga.workflows.decisions.goals.questions import answer_in
from orga.workflows.decisions.roll_over import carried
from orga.workflows.handlers import Handlers
from orga.workflows.phases import questions
from orga.workflows.phases.act import hydrate
from orga.workflows.phases.control import pace
from orga.workflows.phases.control.failures import failure_message, failure_text
from orga.workflows.phases.control.handlers import first_of
from orga.workflows.phases.control.lifetime import Resets, Watches, continue_as_new, run_to_an_end, tell_end
from orga.workflows.phases.control.pace import show_details, wait_if_paused, withdraw
from orga.workflows.phases.control.run import Interrupted, RollOver, event_time, wall_time
from orga.workflows.phases.failures import is_invalid_input, is_out_of_time
from orga.workflows.phases.goals.run import GoalRun
from orga.workflows.phases.goals.stages import STAGES
from orga.workflows.phases.goals.summary import bring_best_effort, summarise
from orga.workflows.phases.prepare import prepare_setup
from orga.workflows.phases.run import name_run, show_start
from orga.workflows.types.control import Stop
from orga.workflows.types.goals.input import GoalInput
from orga.workflows.types.goals.result import GoalResult, GoalStatus
from orga.workflows.types.record import InvalidInput


@workflow.defn(name="GoalWorkflow")
class GoalWorkflow(Handlers):
    """Pursues one goal."""

    @workflow.init
    def __init__(self, *given: Any) -> None:
        """Take the input as any JSON: bad input fails the run with a clear error, and hangs nothing."""
        info, self._problem = workflow.info(), ""
        raw, state = (*given, None, None)[:2]
        now, origin = event_time(), info.original_execution_run_id
        try:
            first = first_goal(raw, state, info.continued_run_id, origin, now)
        except InvalidInput as error:
            self._problem = str(error)
            first = pursued(GoalInput(goal="(invalid input)"), origin, now)
        self._goal = self._run = GoalRun(first)
        self._resets = Resets(self._run)
        self._watches = Watches(self._run)

    @workflow.run
    async def run(self, *given: Any) -> GoalResult:
        """Pursue it to an ending, also when Temporal cancels it.

        Raises:
            ApplicationError: `InvalidInput`, not retryable, for input that no goal can start with.
        """
        if self._problem:
            raise ApplicationError(self._problem, type="InvalidInput", non_retryable=True)
        return await run_to_an_end(self._run, self._loop())

    @workflow.update
    def answer(self, *answer: Any) -> str:
        """Answer the question that is open: a text, or `{question_id, text, by}`; return its id."""
        decision = answer_in(self._goal.goal, first_of(answer))
        self._goal.change(with_resolution, decision, self._goal.heard())
        return decision.escalation_id

    @answer.validator
    def _answers_a_question(self, *answer: Any) -> None:
        self.refuse_when_over()
        answer_in(self._goal.goal, first_of(answer))

    @workflow.query
    def status(self) -> GoalStatus:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Where the goal stands, while it goes on by the clock of the worker that is asked."""
        is_over = self._run.state.is_over
        return goal_status(self._goal.goal, self._run.now if is_over else wall_time())

    async def _loop(self) -> GoalResult:
        run = self._goal
        if run.state.setup is None:
            await self._prepare()
        if run.state.setup is None:
            return self._end(self._stop_reason() or ("error", "nothing was prepared"))
        name_run(run.setup)
        while (ended := await self._run_until_stopped()) is None:
            pace.show_goes_on(run)
        return ended

    async def _prepare(self) -> None:
        """Find the setup, unless the goal ends before it has one."""
        run = self._goal
        try:
            setup = await prepare_setup(run)
        except Interrupted:
            return
        except ActivityError as error:
            if is_invalid_input(error):
                raise ApplicationError(failure_message(error), type="InvalidInput", non_retryable=True) from error
            run.change(observe.with_stop, "timeout" if is_out_of_time(error) else "error", failure_text(error))
            return
        run.prepare(setup)
        run.change(calls.with_definitions)
        show_start(run)

    async def _run_until_stopped(self) -> GoalResult | None:
        """Go on to an end, and tell it; None where guidance came before that was done."""
        run = self._goal
        self._watches.start()
        try:
            stop = await self._pursue_until_stop()
        except RollOver:
            run.end_if_outgrown()
            stop = run.state.stop or await self._roll_over()
        run.change(with_over)
        await self._watches.stop()
        await bring_best_effort(run, stop)
        ended = self._end(stop)
        await tell_end(run, stop)
        run.change(reopened)
        if run.state.stop is not None:
            return ended
        run.pursue(with_guidance_seen)
        return None

    async def _pursue_until_stop(self) -> Stop:
        run = self._goal
        await wait_if_paused(run, may_roll_over=True)
        await hydrate(run)
        if run.goal.pursuit.stage != "ask":
            await questions.resolve_stuck_steps(run)
        while True:
            pursuit = run.goal.pursuit
            stop = await self._ending()
            if stop is not None:
                if (ended := await summarise(run, stop)) is not None:
                    return ended
                continue
            try:
                await STAGES[pursuit.stage](run)
            except Interrupted:
                continue
            await wait_if_paused(run, may_roll_over=True)
            pace.show_progress(run)
            show_details(run)
            if run.is_due:
                raise RollOver
            run.end_if_outgrown()

    async def _ending(self) -> Stop | None:
        """Return how the goal ends now. A reply that the run before this one held up is taken up ahead of any limit."""
        run = self._goal
        if run.goal.pursuit.stage == "summarise":
            return run.goal.pursuit.ending
        return None if run.state.pending is not None else await self._limit_reached()

    async def _limit_reached(self) -> Stop | None:
        """Return how the goal ends now; at a limit a person may be asked first."""
        run = self._goal
        while (stop := self._stop_reason()) is not None and limits.is_asked_for(run.state, stop):
            declined = await questions.ask_for_budget(
                run, stop, lambda limit=stop: self._stop_reason() != limit, may_roll_over=True
            )
            if declined is not None:
                return declined
        withdraw(run, "budget")
        return stop

    def _stop_reason(self) -> Stop | None:
        state = self._goal.goal
        if state.stop is not None and state.aborted is None:
            return state.stop
        return goal_stop(state, self._run.now, counts_rounds=state.pursuit.stage == "execute")

    async def _roll_over(self) -> NoReturn:
        await self._watches.stop()
        continue_as_new(carried(self._goal.goal, workflow.info().run_id))

    def _end(self, stop: Stop) -> GoalResult:
        run = self._goal
        run.change(observe.with_stop, *stop)
        run.change(with_over)
        show_details(run)
        if run.state.setup is not None:
            pace.show_end(run, stop[0])
        return goal_result(run.goal, stop, run.now)
