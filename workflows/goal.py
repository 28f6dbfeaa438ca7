"""The goal as a workflow: plan, execute, evaluate, decide, until there is a final answer.

- Plan: the model proposes steps, which may depend on each other. It gets feedback about their problems.
- Execute: all steps that are ready are calls of one reply. Gate, stages and act are those of an agent.
- Evaluate: the model scores the results of the steps. The quality of a step follows from its scores.
- Decide: by rules if they suffice, else by the model: continue, change the plan, ask, or end.
- Summarise: every ending reports the findings.

A goal is an agent's run with a `Pursuit`: its plan, the results of its steps, and its next stage. Its prompts are
iterations of one conversation. The rules at the top of `workflows/agent.py` for pauses, aborts, the deadline and
continue-as-new apply here, too.
"""

from typing import Any

from temporalio import workflow

from orga.workflows.decisions.control.interventions import sender_of, with_applied, with_refused_signal
from orga.workflows.decisions.goals.begin import first_goal, initial_goal_state
from orga.workflows.decisions.goals.endings import goal_result, goal_status, has_done_step
from orga.workflows.decisions.goals.override import with_override
from orga.workflows.decisions.goals.pursue import with_guidance_seen
from orga.workflows.lifecycle import Lifecycle, segment_start, state_to_begin_with
from orga.workflows.phases.agent_run import next_stop
from orga.workflows.phases.control import visibility
from orga.workflows.phases.control.handlers import first_argument
from orga.workflows.phases.control.run import ContinueAsNew, Interrupted, wall_time
from orga.workflows.phases.control.visibility import show_details, wait_if_paused
from orga.workflows.phases.goals.ending import deliver_answer, use_best_effort_answer, write_final_answer
from orga.workflows.phases.goals.goal_phases import GOAL_PHASES
from orga.workflows.phases.goals.goal_run import GoalRun
from orga.workflows.phases.knowledge import persist_learnings
from orga.workflows.phases.prepare import hydrate
from orga.workflows.phases.recovery import resolve_repeated_calls
from orga.workflows.types.control import Stop
from orga.workflows.types.goals.goal_input import GoalInput
from orga.workflows.types.goals.pursuit import GoalResult, GoalStatus


@workflow.defn(name="GoalWorkflow", sandboxed=False)
class GoalWorkflow(Lifecycle[GoalResult]):
    """Pursues one goal."""

    @workflow.init
    def __init__(self, *given: Any) -> None:
        """Take any arguments, as `AgentWorkflow` does."""
        start = segment_start(given)
        state, problem = state_to_begin_with(
            lambda: first_goal(*start),
            lambda: initial_goal_state(GoalInput(goal="(invalid input)"), start.origin, start.now),
        )
        self._goal = GoalRun(state)
        self.begin_run(self._goal, problem)

    @workflow.run
    async def run(self, *given: Any) -> GoalResult:
        return await self.run_to_result()

    @workflow.signal
    def override_step(self, *step: Any) -> None:
        """Carry out this step in place of the next one. The journal records why a step was refused."""
        self._run.record_intervention()
        given = first_argument(step)
        override = self.new_intervention("override_step", (sender_of(given),))
        if override is None:  # a repetition, by its id
            return
        try:
            self.refuse_if_over()
            self._goal.change_goal(with_override, given)
        except ValueError as error:
            self._run.change_state(with_refused_signal, "override_step", str(error), **override.sender)
        else:
            self._run.change_state(with_applied, override)

    @workflow.query
    def status(self) -> GoalStatus:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The goal's status. While it runs, times come from the clock of the worker that answers."""
        is_over = self._run.state.is_over
        return goal_status(self._goal.goal, self._run.now if is_over else wall_time())

    async def run_until_stop(self) -> Stop:
        run = self._goal
        await wait_if_paused(run, may_continue_as_new=True)
        await hydrate(run)
        await resolve_repeated_calls(run)
        while True:
            pursuit = run.goal.pursuit
            stop = await self._next_stop()
            if stop is not None:
                ended = await write_final_answer(run, stop)
                if ended is None:  # new guidance has resumed the goal
                    continue
                return ended
            try:
                await GOAL_PHASES[pursuit.stage](run)
            except Interrupted:
                continue
            await wait_if_paused(run, may_continue_as_new=True)
            visibility.show_progress(run)
            show_details(run)
            if run.is_continue_as_new_due:
                raise ContinueAsNew
            run.end_if_outgrown()

    async def _next_stop(self) -> Stop | None:
        """Return how the goal ends now, or None. A reply of the previous segment is handled before any limit."""
        run = self._goal
        if run.goal.pursuit.stage == "summarise":
            return run.goal.pursuit.ending
        return None if run.state.pending is not None else await next_stop(run)

    async def set_fallback_output(self, stop: Stop) -> None:
        await use_best_effort_answer(self._goal, stop)

    def resume_after_end(self) -> None:
        super().resume_after_end()
        self._goal.change_goal(with_guidance_seen)

    async def finish_run(self, ended: GoalResult) -> GoalResult:
        delivered = await deliver_answer(self._goal, ended)
        if has_done_step(ended):
            await persist_learnings(self._run, ended.output, confidence=ended.confidence)
        return delivered

    def result(self, stop: Stop) -> GoalResult:
        return goal_result(self._goal.goal, stop, self._run.now)
