"""A run's decisions as the loop makes them, next to a plain model of the expected facts."""

from datetime import datetime

from orga.workflows.decisions import observe
from orga.workflows.decisions.compaction import compaction, ready_summary, with_summary
from orga.workflows.decisions.conversation import message_budget, reference_and_seen, with_calibration, with_frame_size
from orga.workflows.decisions.limits import stop_reason
from orga.workflows.decisions.tool_calls import calls, dispatch
from orga.workflows.types.context import HashedMessages, MessageRef
from orga.workflows.types.messages import Message, Reply, ToolCall
from orga.workflows.types.models.usage import ToolCallCounts, UsageTotals
from orga.workflows.types.tool_calls.gate import Verdict
from orga.workflows.types.tool_calls.recovery import Outcome, OutcomeStatus
from tests.support.values.core import a_state, at

NAMES = ("look", "save")
NOT_RUN: frozenset[OutcomeStatus] = frozenset({"denied", "invalid", "not_run"})
FAILED: frozenset[OutcomeStatus] = frozenset({"failed", "cancelled"})


class ModelledRun:
    """Every attribute except `state` belongs to the model."""

    def __init__(self) -> None:
        """Start before the first iteration."""
        super().__init__()
        self.state = a_state()
        self.seconds: float = 0.0
        self.running_s: float = 0.0
        self.usage = UsageTotals()
        self.counts = ToolCallCounts()
        self.iterations = 0
        self.inbox: list[str] = []
        self.streaks: dict[str, int] = {}
        self.base = HashedMessages()
        self.messages_read: dict[int | str, Message] = {}

    @property
    def now(self) -> datetime:
        """The workflow's time."""
        return at(self.seconds)

    @property
    def stands_still(self) -> bool:
        """True while its clock is paused."""
        return self.state.paused or bool(self.state.questions)

    @property
    def may_reason(self) -> bool:
        """True if the loop would continue."""
        state = self.state
        is_ready = state.stop is None and not self.stands_still
        return is_ready and stop_reason(state, state.config, self.now) is None

    def reasoned(self, reply: Reply) -> None:
        """Read the inbox, compact and continue as new. Another process with only the references must find the same."""
        self.state = with_frame_size(observe.with_inbox_drained(self.state))
        messages = self.state.conversation.messages
        taken = len(self.inbox) - len(self.state.inbox)
        assert taken or not self.inbox
        guidance = zip(messages[len(messages) - taken :], self.inbox[:taken], strict=True)
        assert all(message.text.endswith(text) for message, text in guidance)
        self.inbox = self.inbox[taken:]
        plan = compaction(self.state.conversation, self.state.config.context_strategy, message_budget(self.state))
        if plan.summary_tokens and ready_summary(self.state.conversation, plan.drop) is None:
            self.state = with_summary(self.state, plan.drop, plan.summary_tokens, None)
        conversation = self.state.conversation
        summary = ready_summary(conversation, plan.drop)
        reference, seen = reference_and_seen(conversation, plan.drop, plan.mask, summary)
        self.base = reference.apply_to(self.base, self._found)
        assert self.base.messages == seen.messages
        self.state = with_calibration(self.state, seen, reply.usage.input_tokens)
        self.state = observe.with_reply(self.state, reply, seen)
        self.iterations += 1
        self.messages_read[self.iterations] = reply.message()
        self.usage = self.usage.plus(reply.usage, reply.cost_usd)

    def _found(self, news: MessageRef) -> Message:
        assert news.summary is None
        return news.shown(news.message or self.messages_read[news.result or news.reply or 0])

    def carried_out(self, index: int, call: ToolCall, verdict: Verdict, fate: OutcomeStatus, size: int) -> Outcome:
        """Return the outcome of a judged call, after informing its circuit."""
        if verdict.decision != "allow":
            return calls.refused_outcome(call, verdict)
        assert self.state.setup is not None
        spec = self.state.setup.tool(call.name)
        assert spec is not None
        try:
            self.state = dispatch.with_admitted_call(self.state, spec, self.now)
        except dispatch.CircuitOpen as refusal:
            return calls.answered_unrun_outcome(call, str(refusal))
        if fate == "cancelled":
            self.state = dispatch.with_circuit_released(self.state, spec)
            return calls.cancelled_outcome(call, spec)
        if fate == "failed":
            self.state = dispatch.with_circuit_failure(self.state, spec, self.now)
            return calls.failed_outcome(call, f"no {size}")
        self.state = dispatch.with_circuit_success(self.state, spec)
        place = f"{self.iterations}.{index}"
        outcome = Outcome(call=call, status="ok", text="r" * size, result=place)
        self.messages_read[place] = outcome.message()
        return outcome

    def count(self, ended: tuple[Outcome, ...]) -> None:
        """Count these calls in the model."""
        statuses = [outcome.status for outcome in ended]
        not_run = sum(status in NOT_RUN for status in statuses)
        counts = self.counts
        self.counts = ToolCallCounts(
            proposed=counts.proposed + len(ended),
            run=counts.run + len(ended) - not_run,
            denied=counts.denied + statuses.count("denied"),
            invalid=counts.invalid + statuses.count("invalid"),
            not_run=counts.not_run + statuses.count("not_run"),
            failed=counts.failed + sum(outcome.status in FAILED for outcome in ended),
        )
