"""AgentWorkflow: observe, reason, gate, act, until there is a reason to stop.

`Lifecycle` runs what stands here: ahead of it the setup is prepared, behind it an ending becomes a result, or the next
run goes on. Signals and updates come in at any time (`workflows/lifecycle.py`).

Once, ahead of the first iteration, what the task refers to is looked up. Then, each time:

- Is there a reason to stop: an answer that was let through and after which no guidance came, an abort, a failure, what
  repeats itself, a limit? At a limit a person may be asked to raise it, where the config says so.
- Observe: what people sent becomes part of the conversation; what the last calls brought is there already.
- Recall: where the run has knowledge, and the talk has come to other words, what may concern it is looked up.
- Reason: one model call; ahead of it one for a summary, where the conversation outgrew its budget, and a second one,
  with less, where it was too long for the provider. Its reply is classified: calls, an answer, or what is neither and
  is told to the model, which may repair it. A call may take all the time that the run has left: where no reply came of
  it, and there is time after all because the clock stood still or was extended, the next iteration asks again. Any
  other failure is a reason to stop. Text that stands beside calls is gathered, for a run that ends without an answer.
- Gate: each call, or the answer, gets a verdict. Then it passes the stages that `decisions/stages.py` lists, from
  people's approval to a last confirmation. No stage lets through what the gate has not allowed: what the gate holds for
  a person is judged once more after their yes. The model reads why a call or an answer was turned down.
- Act: what is left runs side by side, each call as an activity, as a child workflow, or by the loop itself (`saga`,
  `terminate` and the like). Every call gets one outcome, also one that was turned down. Of an answer, and of a reply to
  repair, only what it concludes is taken in.

A pause holds the run at the next checkpoint: ahead of each dead letter that is sent again, of the inbox, and of the
gate, between the stages, and behind each iteration. An abort and the deadline cut short whatever is waited for, a pause
too. Ahead of act `Interrupted` is raised there: each call of a reply that is at hand is answered as not run, and of a
model call that was under way nothing is kept. Within act it is raised no more: a call that is cut short has that as its
outcome. Behind the deadline people may still give more time; the run then goes on without that reply.

When the history has grown enough (`is_due`) the run continues as new (`RollOver`): between two iterations, or where it
waits for a resume or for people, if the next run can wait on (`may_roll_over`). The question goes along, and so does a
reply that is held up (`pending`), which passes the gate and its stages from the beginning there, ahead of any limit. A
run that has outgrown its history and cannot be carried on ends with a result.
"""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

from temporalio import workflow

from orga.workflows.decisions import observe
from orga.workflows.decisions.begin import first_state
from orga.workflows.decisions.continue_as_new import with_paused_reply
from orga.workflows.decisions.learnings import learnings_text
from orga.workflows.decisions.limits import can_retry_model_call
from orga.workflows.decisions.observe import ClassifiedReply
from orga.workflows.decisions.result import agent_result, fallback_output, with_gathered_text, with_output
from orga.workflows.decisions.tool_calls.calls import not_run_outcome
from orga.workflows.lifecycle import Lifecycle, state_to_begin_with
from orga.workflows.phases import act, gate, reason
from orga.workflows.phases.control import visibility
from orga.workflows.phases.control.run import ContinueAsNew, Interrupted, event_time
from orga.workflows.phases.control.visibility import enter_phase, pause_checkpoint, phase_span, wait_if_paused
from orga.workflows.phases.delegation import report_pauses_to_parent
from orga.workflows.phases.knowledge import persist_learnings, recall_context
from orga.workflows.phases.prepare import hydrate
from orga.workflows.phases.recovery import resolve_stuck_steps
from orga.workflows.phases.review_stages import conclude_reply, pass_review_stages
from orga.workflows.phases.run import Run, next_stop
from orga.workflows.types.control import Stop
from orga.workflows.types.conversation import latest_turn
from orga.workflows.types.input import AgentInput
from orga.workflows.types.status import AgentResult

T = TypeVar("T", bound=AgentResult)


class AgentLoop(Lifecycle[T]):
    """Iterates: what runs of agents and turns of sessions share."""

    async def iterate_until_stop(self) -> Stop:
        """Iterate until there is a reason to stop, and return that.

        Raises:
            RollOver: The run is to continue as new.
        """
        run = self._run
        await wait_if_paused(run, may_roll_over=True)
        await hydrate(run)
        if run.state.questions:  # asked by the run before; stages and limits ask theirs on where these come up again
            await resolve_stuck_steps(run)
        if run.state.pending is not None:
            await self._run_iteration()
        while (stop := await next_stop(run)) is None:
            await self._run_iteration()
        return stop

    async def bring_gathered(self, stop: Stop) -> None:
        """Where it ends without an answer, bring the text gathered beside calls, if the gate lets it through.

        Nothing is brought that a stage would have to see.
        """
        run = self._run
        text = fallback_output(run.state, stop[0])
        if text and await gate.is_text_allowed(run, text):
            run.change(with_output, text)

    async def _run_iteration(self) -> None:
        """Observe, reason, gate, act. A reply that is interrupted ahead of act is answered as not run.

        Raises:
            RollOver: The run is to continue as new, with the reply where one is held up.
        """
        run, proposed = self._run, None
        try:
            proposed = self._paused_reply() or await self._reason_phase()
            if proposed is None:
                return None
            await pause_checkpoint(run, may_roll_over=True)
            gated = await self._gate_phase(proposed.classified)
        except ContinueAsNew:
            if proposed is not None:
                run.change(with_paused_reply, proposed.classified.reply)
            raise
        except Interrupted:
            if proposed is None:  # nothing to answer; while an abort waits for word of a reset, so does the run
                return await wait_if_paused(run)
            reply = proposed.classified.reply
            run.change(observe.with_unjudged_reply, reply, tuple(not_run_outcome(call) for call in reply.calls))
        else:  # what is done is done: however act ends, the reply is not put to the gate once more
            await self._act_phase(gated)
        await wait_if_paused(run, may_roll_over=True)
        visibility.show_progress(run)
        if run.is_due:
            raise ContinueAsNew
        return run.end_if_outgrown()

    def _paused_reply(self) -> reason.ProposedReply | None:
        """Return what the model had proposed when the run before this one continued as new."""
        run, reply = self._run, self._run.state.pending
        if reply is None:
            return None
        run.change(with_paused_reply, None)
        return reason.carried_proposal(run, reply)

    async def _reason_phase(self) -> reason.ProposedReply | None:
        """Observe, and return what the model proposes; None where it comes to no reply."""
        run = self._run
        if run.state.waiting_letters:  # dead letters that people want sent once more: gated, each behind a checkpoint
            await act.send_requeued_letters(run)
        await pause_checkpoint(run, may_roll_over=True)
        run.change(observe.with_inbox_drained)
        if run.config.uses_knowledge:
            await recall_context(run)
        enter_phase(run, "reasoning")
        with phase_span("reason", run.state.iteration + 1):
            proposed = await reason.propose_reply(run)
        if isinstance(proposed, reason.NoReply):
            is_asked_again = proposed.is_out_of_time and can_retry_model_call(run.state, run.now)
            if not is_asked_again:
                run.change(observe.with_stop_reason, "error", proposed.detail)
            await wait_if_paused(run)
            return None
        run.change(observe.with_reply, proposed.classified.reply, proposed.conversation)
        return proposed

    async def _gate_phase(self, classified: ClassifiedReply) -> gate.GatedReply:
        """Return the reply once it has passed the gate and its stages; one to repair has nothing for them."""
        run = self._run
        if classified.kind not in {"calls", "answer", "cut_answer"}:
            repair = gate.answer_conclusion(observe.with_repair, classified)
            return gate.GatedReply(classified, (), run.held_up_s(), conclusion=repair)
        enter_phase(run, "gating")
        with phase_span("gate", run.state.iteration):
            gated = await gate.judge_reply(run, classified)
        return await pass_review_stages(run, gated)

    async def _act_phase(self, gated: gate.GatedReply) -> None:
        """Carry out what is allowed, and take in what comes of it; of an answer or a repair what it concludes."""
        run = self._run
        if gated.conclusion is not None or not gated.reply.calls:
            return conclude_reply(run, gated)
        if all(each.permitted is not None for each in gated.results):
            run.change(with_gathered_text, gated.reply.text)
        await act.execute_reply(run, gated, "acting")
        return await resolve_stuck_steps(run)  # people decide about calls that failed again and again


@workflow.defn(name="AgentWorkflow", sandboxed=False)
class AgentWorkflow(AgentLoop[AgentResult]):
    """Runs one agent."""

    @workflow.init
    def __init__(self, *given: Any) -> None:
        """Take the input as any JSON, and any number of it: bad input fails the run with a clear error, hangs nothing.

        `given` is the input; with a state behind it in a run that continues another as new.
        """
        info, now = workflow.info(), event_time()
        before, parent = info.continued_run_id, info.parent.workflow_id if info.parent else ""
        (raw, carried), origin = (*given, None, None)[:2], info.original_execution_run_id
        state, problem = state_to_begin_with(
            lambda: first_state(raw, carried, before, origin, now, parent=parent),
            lambda: first_state(AgentInput(task="(invalid input)"), None, None, origin, now),
        )
        self.begin(Run(state), problem, *([partial(report_pauses_to_parent, parent)] if parent else []))

    @workflow.run
    async def run(self, *given: Any) -> AgentResult:
        """Run to an ending, also when Temporal cancels it.

        Raises:
            ApplicationError: `InvalidInput`, not retryable, for input that no run can start with.
        """
        return await self.live()

    async def run_until_stop(self) -> Stop:
        """Iterate until the run ends, and return how."""
        return await self.iterate_until_stop()

    async def bring(self, stop: Stop) -> None:
        """Bring what was gathered."""
        await self.bring_gathered(stop)

    async def finish(self, ended: AgentResult) -> AgentResult:
        """Store what the run has learnt."""
        if self._run.config.uses_knowledge:
            since = latest_turn(self._run.state.conversation.messages).start
            await persist_learnings(self._run, learnings_text(self._run.state, since))
        return ended

    def result(self, stop: Stop) -> AgentResult:
        """Return what has come of the task."""
        return agent_result(self._run.state, stop, self._run.now)
