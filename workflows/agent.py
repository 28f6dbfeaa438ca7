"""AgentWorkflow: observe, reason, gate, act, until there is a reason to stop.

`Lifecycle` prepares the setup, calls the loop here, and then makes a result of the ending or begins the next segment.
Signals and updates arrive at any time (`workflows/lifecycle.py`, and its base `workflows/phases/control/handlers.py`).

ARCHITECTURE.md follows a task through the phases of an iteration. No review stage permits a call that the gate has not
allowed. A call that waits for a person is judged once more after the approval. A model call may use all the time that
is left. If it ends without a reply, and the clock was stopped or extended meanwhile, the next iteration asks again. Any
other failure of a model call stops the run. A reply that is neither calls nor an answer gets feedback, and the model
may repair it. Every call gets one outcome, even a refused call.

A pause holds the run at the next checkpoint: before each dead letter that is sent again, before the inbox is read,
before the gate, between the stages, and after each iteration. An abort and the deadline interrupt any wait, even a
pause. Before act, they raise `Interrupted`: each call of the current reply gets the outcome "not run", and a running
model call leaves no trace. Within act, nothing is raised: a call that is cut short gets an outcome that says so. After
the deadline, people may still give more time. The run then continues without the interrupted reply.

When the history is long enough (`is_continue_as_new_due`), the run continues as new (`ContinueAsNew`). It does so
between two iterations, or during a wait for a resume or for people that the next segment can take over
(`may_continue_as_new`). The state carries the question and the reply that waits (`pending`). The next segment passes
this reply through the gate and the stages again, before it checks any limit. A run whose history is too long and whose
state is too large to be carried ends with a result.
"""

from functools import partial
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError

from orga.workflows.decisions import observe
from orga.workflows.decisions.begin import first_state
from orga.workflows.decisions.observe import ClassifiedReply
from orga.workflows.decisions.recall import learnings_text
from orga.workflows.decisions.result import agent_result, fallback_output, with_gathered_text
from orga.workflows.decisions.tool_calls.calls import not_run_outcome
from orga.workflows.lifecycle import Lifecycle, segment_start, state_to_begin_with
from orga.workflows.phases import act, gate, reason
from orga.workflows.phases.agent_run import Run, next_stop
from orga.workflows.phases.control import visibility
from orga.workflows.phases.control.run import ContinueAsNew, Interrupted
from orga.workflows.phases.control.visibility import enter_phase, pause_checkpoint, phase_span, wait_if_paused
from orga.workflows.phases.delegation import report_pauses_to_parent
from orga.workflows.phases.knowledge import persist_learnings, recall_context
from orga.workflows.phases.prepare import hydrate
from orga.workflows.phases.recovery import resolve_repeated_calls
from orga.workflows.phases.review_stages import conclude_reply, pass_review_stages
from orga.workflows.types.control import Stop
from orga.workflows.types.conversation import latest_turn
from orga.workflows.types.input import AgentInput
from orga.workflows.types.state import AgentState
from orga.workflows.types.status import AgentResult

T = TypeVar("T", bound=AgentResult)


class AgentLoop(Lifecycle[T]):
    """The loop of iterations, which runs of agents and turns of sessions share."""

    async def run_until_stop(self) -> Stop:
        run = self._run
        await wait_if_paused(run, may_continue_as_new=True)
        await hydrate(run)
        # questions of the previous segment about stopped calls; stages and limits ask theirs again by themselves
        if run.state.questions:
            await resolve_repeated_calls(run)
        if run.state.pending is not None:
            await self._run_iteration()
        while (stop := await next_stop(run)) is None:
            await self._run_iteration()
        return stop

    async def set_fallback_output(self, stop: Stop) -> None:
        """If the run ends without an answer, use the text gathered next to calls, if the gate allows it.

        Text that a review stage would have to judge is not used.
        """
        run = self._run
        text = fallback_output(run.state, stop.reason)
        if text and await gate.is_text_allowed(run, text):
            run.change_state(AgentState.with_task, output=text)

    async def _run_iteration(self) -> None:
        """Observe, reason, gate, act. Raise ContinueAsNew if it is due. A waiting reply is kept."""
        run, proposed = self._run, None
        try:
            proposed = reason.paused_reply(run) or await self._reason_phase()
            if proposed is None:
                return None
            await pause_checkpoint(run, may_continue_as_new=True)
            gated = await self._gate_phase(proposed.classified)
        except ContinueAsNew:
            if proposed is not None:
                run.change_state(AgentState.with_dialogue, pending=proposed.classified.reply)
            raise
        except Interrupted:
            # no call needs an outcome; while an abort is in doubt, the run waits
            if proposed is None:
                return await wait_if_paused(run)
            reply = proposed.classified.reply
            run.change_state(observe.with_unjudged_reply, reply, tuple(not_run_outcome(call) for call in reply.calls))
        else:  # calls have effects, so the reply is not judged again, however act ends
            await self._act_phase(gated)
        await wait_if_paused(run, may_continue_as_new=True)
        visibility.show_progress(run)
        if run.is_continue_as_new_due:
            raise ContinueAsNew
        return run.end_if_outgrown()

    async def _reason_phase(self) -> reason.ProposedReply | None:
        """Observe, and return the model's proposal, or None if there is no reply."""
        run = self._run
        if run.state.waiting_letters:
            await act.send_requeued_letters(run)
        await pause_checkpoint(run, may_continue_as_new=True)
        run.change_state(observe.with_inbox_drained, "reasoning")
        if run.config.uses_knowledge:
            await recall_context(run)
        enter_phase(run, "reasoning")
        with phase_span("reason", run.state.iteration + 1):
            proposed = await reason.propose_reply(run)
        if isinstance(proposed, ActivityError):
            await reason.end_without_reply(run, proposed)
            return None
        run.change_state(observe.with_reply, proposed.classified.reply, proposed.conversation)
        return proposed

    async def _gate_phase(self, classified: ClassifiedReply) -> gate.GatedReply:
        """Return the reply after the gate and its stages. A reply to repair skips them."""
        run = self._run
        if classified.kind not in {"calls", "answer", "cut_answer"}:
            repair = gate.answer_conclusion(observe.with_repair, classified)
            return gate.GatedReply(classified, (), run.paused_seconds(), conclusion=repair)
        enter_phase(run, "gating")
        with phase_span("gate", run.state.iteration):
            gated = await gate.judge_reply(run, classified)
        return await pass_review_stages(run, gated)

    async def _act_phase(self, gated: gate.GatedReply) -> None:
        """Carry out the allowed calls and add their outcomes, or apply the conclusion about an answer or a repair."""
        run = self._run
        if gated.conclusion is not None or not gated.reply.calls:
            return conclude_reply(run, gated)
        if all(each.permitted is not None for each in gated.results):
            run.change_state(with_gathered_text, gated.reply.text)
        await act.execute_reply(run, gated, "acting")
        return await resolve_repeated_calls(run)  # people decide about calls that failed repeatedly


@workflow.defn(name="AgentWorkflow", sandboxed=False)
class AgentWorkflow(AgentLoop[AgentResult]):
    """Runs one agent."""

    @workflow.init
    def __init__(self, *given: Any) -> None:
        """Take any arguments, so that bad input fails the run with a clear error, and not each workflow task."""
        start, parent_info = segment_start(given), workflow.info().parent
        parent = parent_info.workflow_id if parent_info else ""
        state, problem = state_to_begin_with(
            lambda: first_state(*start, parent=parent),
            lambda: first_state(AgentInput(task="(invalid input)"), None, None, start.origin, start.now),
        )
        watches = [partial(report_pauses_to_parent, parent)] if parent else []
        self.begin_run(Run(state), problem, *watches)

    @workflow.run
    async def run(self, *given: Any) -> AgentResult:
        return await self.run_to_result()

    async def finish_run(self, ended: AgentResult) -> AgentResult:
        if self._run.config.uses_knowledge:
            since = latest_turn(self._run.state.conversation.messages).start
            await persist_learnings(self._run, learnings_text(self._run.state, since))
        return ended

    def result(self, stop: Stop) -> AgentResult:
        return agent_result(self._run.state, stop, self._run.now)
