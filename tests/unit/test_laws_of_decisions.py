"""The decisions of the loop in any order, without Temporal: a plain model beside the state says what must be true."""

from datetime import datetime
from math import isclose

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.core import a_setup, a_spec, a_state, at
from tests.support.turns import are_paired
from workflows.decisions import breakers, budget, dispatch, interventions, observe, outcomes, progress, waits
from workflows.decisions.calibration import message_budget, with_calibration, with_frame
from workflows.decisions.compaction import compaction
from workflows.decisions.conversation import full_digest, handed_over
from workflows.decisions.estimate import size_of, tokens_in
from workflows.decisions.limits import stop_reason
from workflows.decisions.replies import judged
from workflows.decisions.result import result, status
from workflows.decisions.roll_over import carried
from workflows.decisions.steps import with_resolved_step
from workflows.decisions.summary import ready_summary, with_summary
from workflows.types.breaker import BreakerOptions
from workflows.types.context import Chain, News
from workflows.types.digest import digest_of
from workflows.types.gate import Verdict
from workflows.types.input import LoopConfig
from workflows.types.messages import Message, Reply, ToolCall
from workflows.types.outcome import Outcome, OutcomeStatus
from workflows.types.state import AgentState, Intervention
from workflows.types.steps import StepIteration
from workflows.types.usage import ToolCallCounts, Usage, UsageTotals
from workflows.types.waits import Resolution

NAMES = ("look", "save")
NOT_RUN: frozenset[OutcomeStatus] = frozenset({"denied", "invalid", "not_run"})
FAILED: frozenset[OutcomeStatus] = frozenset({"failed", "cancelled"})

configs = st.builds(
    LoopConfig,
    max_iterations=st.sampled_from([4, 100, 100, 100]),
    max_total_tokens=st.sampled_from([3_000, 10**6, 10**6]),
    max_cost_usd=st.sampled_from([None, None, 0.5]),
    max_tool_calls=st.sampled_from([None, None, 9]),
    timeout_s=st.sampled_from([60.0, 10_000.0, 10_000.0]),
    context_token_budget=st.sampled_from([500, 900, 32_000]),
    context_strategy=st.sampled_from(["sliding_window", "observation_masking", "anchored_summary", "none"]),
    step_iteration=st.builds(
        StepIteration, max_reattempts=st.integers(1, 3), on_limit_reached=st.sampled_from(["skip_step", "escalate"])
    ),
)
fates: st.SearchStrategy[OutcomeStatus] = st.sampled_from(
    ["ok", "ok", "ok", "failed", "denied", "invalid", "cancelled"]
)
proposals = st.lists(
    st.tuples(st.sampled_from(NAMES), st.integers(0, 3), fates, st.integers(0, 900)), min_size=1, max_size=4
)
good_or_bad: st.SearchStrategy[OutcomeStatus] = st.sampled_from(["failed", "ok"])
stubborn = st.lists(
    st.tuples(st.sampled_from(NAMES), st.integers(0, 1), good_or_bad, st.just(600)),
    min_size=2,
    max_size=4,
)
"""The same again and again: steps get nowhere, circuits open, conversations outgrow their budget."""
usages = st.builds(Usage, input_tokens=st.sampled_from([0, 100, 500]), output_tokens=st.sampled_from([0, 100]))
"""Round, so that a limit is reached exactly."""
costs = st.sampled_from([None, 0.0, 0.1])


class LoopMachine(RuleBasedStateMachine):
    """One run. What stands in `self` beside `state` is the model."""

    def __init__(self) -> None:
        super().__init__()
        self.state = a_state()
        self.seconds = 0.0
        self.running_s = 0.0
        self.usage = UsageTotals()
        self.counts = ToolCallCounts()
        self.iterations = 0
        self.inbox: list[str] = []
        self.streaks: dict[str, int] = {}
        self.base = Chain()
        self.told: dict[int | str, Message] = {}

    @initialize(config=configs, threshold=st.integers(1, 3))
    def prepare(self, config: LoopConfig, threshold: int) -> None:
        circuit = BreakerOptions(failure_threshold=threshold, recovery_s=30)
        specs = [a_spec(name, effect="idempotent", breaker=circuit) for name in NAMES]
        self.state = self.state.model_copy(update={"setup": a_setup(*specs, config=config)})

    @precondition(lambda self: self._may_reason)
    @rule(wanted=proposals | stubborn, text=st.sampled_from(["", "t" * 500]), usage=usages, cost=costs)
    def call(
        self, wanted: list[tuple[str, int, OutcomeStatus, int]], text: str, usage: Usage, cost: float | None
    ) -> None:
        """One iteration: its calls meet these fates, unless they are turned down or their tool is left alone."""
        calls = tuple(
            ToolCall(call_id=f"c{self.iterations}_{index}", name=name, arguments={"n": n})
            for index, (name, n, _, _) in enumerate(wanted)
        )
        reply = Reply(text=text, calls=calls, finish="tool_calls", usage=usage, cost_usd=cost)
        self._reason(reply)
        verdicts = tuple(_verdict(fate) for _, _, fate, _ in wanted)
        allowed = [index for index, verdict in enumerate(verdicts) if verdict.decision == "allow"]
        down = dispatch.turned_down(self.state, [calls[index] for index in allowed])
        turned_down = {allowed[nth]: outcome for nth, outcome in down.items()}
        ended = tuple(
            turned_down.get(index) or self._ended(index, call, verdicts[index], wanted[index][2], wanted[index][3])
            for index, call in enumerate(calls)
        )
        denied = observe.denied_calls(ended, verdicts)
        self.state = observe.with_outcomes(self.state, reply, ended, denied)
        self.state = progress.with_attempts(self.state, ended, self.now)
        self._count(ended)
        names = {call.name for call, verdict in zip(calls, verdicts, strict=True) if verdict.decision == "deny"}
        self.streaks = {name: self.streaks.get(name, 0) + 1 for name in names}

    @precondition(lambda self: self._may_reason)
    @rule(wanted=stubborn)
    def call_again(self, wanted: list[tuple[str, int, OutcomeStatus, int]]) -> None:
        self.call(wanted, "t" * 300, Usage(input_tokens=500), 0.1)

    @precondition(lambda self: self._may_reason)
    @rule(wanted=stubborn, seconds=st.sampled_from([1.0, 31.0]))
    def call_later(self, wanted: list[tuple[str, int, OutcomeStatus, int]], seconds: float) -> None:
        self.call(wanted, "", Usage(input_tokens=300), None)
        self.let_time_pass(seconds)

    @precondition(lambda self: self._may_reason and self.state.repairs < 2)
    @rule(finish=st.sampled_from(["refusal", "content_filter", "stop"]), usage=usages, cost=costs)
    def say_nothing_of_use(self, finish: str, usage: Usage, cost: float | None) -> None:
        reply = Reply.model_validate({"text": "", "finish": finish, "usage": usage, "cost_usd": cost})
        self._reason(reply)
        self.state = observe.with_repair(self.state, judged(reply))
        self.streaks = {}

    @precondition(lambda self: self._may_reason)
    @rule(reason=st.sampled_from(["far too long", "names a customer", "unkind words", "not in English"]), usage=usages)
    def answer_what_is_denied(self, reason: str, usage: Usage) -> None:
        reply = Reply(text="the answer", usage=usage)
        self._reason(reply)
        self.state = observe.with_denied_answer(self.state, reply, Verdict(decision="deny", reason=reason))
        self.streaks = {reason: self.streaks.get(reason, 0) + 1}

    @precondition(lambda self: self._may_reason and self.iterations > 15)
    @rule(guided=st.booleans(), usage=usages)
    def answer(self, guided: bool, usage: Usage) -> None:
        """It ends the run, unless guidance comes while it is written."""
        reply = Reply(text="the answer", usage=usage)
        self._reason(reply)
        if guided:
            self.guide("wait", is_context=False)
        self.state = observe.with_answer(self.state, reply)
        self.streaks = {}
        assert (self.state.stop is None) == guided

    @rule(text=st.sampled_from(["left", "right", "g" * 300]), is_context=st.booleans())
    def guide(self, text: str, is_context: bool) -> None:
        guidance = Intervention(kind="add_context" if is_context else "steer", text=text)
        self.state = interventions.with_guidance(self.state, guidance)
        self.inbox.append(text)

    @precondition(lambda self: not self.state.paused and self.iterations % 3 == 0)
    @rule()
    def pause(self) -> None:
        self.state = interventions.with_pause(self.state, self.now)

    @precondition(lambda self: self.state.paused)
    @rule()
    def resume(self) -> None:
        self.state = interventions.with_resume(self.state, self.now)

    @rule(seconds=st.sampled_from([0.0, 0.5, 10.0, 29.9, 30.0]))
    def let_time_pass(self, seconds: float) -> None:
        """Days, while the run stands still."""
        if self._stands_still:
            self.seconds += 86_400 * seconds
        else:
            self.running_s += seconds
            self.seconds += seconds

    @precondition(lambda self: self.state.waits)
    @rule(choice=st.sampled_from(["retry", "skip", "result"]))
    def decide(self, choice: str) -> None:
        """Answer the oldest question, as `stuck` does."""
        asked = self.state.waits[0]
        decision = Resolution.model_validate({"escalation_id": asked.wait_id, "choice": choice, "result": "42"})
        self.state = waits.with_resolution(self.state, decision, self.now)
        self.state = waits.closed(self.state, asked.wait_id, self.now)
        self.state = with_resolved_step(self.state, asked.model_copy(update={"resolution": decision}))

    @rule(limit=st.sampled_from(["max_iterations", "max_total_tokens", "timeout_s", "max_tool_calls"]))
    def extend(self, limit: str) -> None:
        held = getattr(self.state.config, limit)
        if held is not None:
            raised = budget.extension(self.state, {limit: held + 100})
            self.state = budget.extended(self.state, raised)
            assert getattr(self.state.config, limit) == held + 100

    @precondition(lambda self: self.state.stop is None)
    @rule()
    def continue_as_new(self) -> None:
        """What the next run reads is what this one wrote; nothing points into the history that ends."""
        written = carried(self.state.model_copy(update={"notes": ()}), "this run")
        read = AgentState.model_validate_json(written.model_dump_json(exclude_unset=True))
        assert read == written
        assert (read.conversation.news, read.conversation.sent) == ((), len(read.conversation.messages))
        self.state = read
        self.base, self.told = Chain().plus(read.conversation.messages), {}

    @invariant()
    def counters_are_those_of_the_model(self) -> None:
        state = self.state
        assert (state.iteration, state.tool_calls) == (self.iterations, self.counts)
        assert state.usage.model_dump(exclude={"cost_usd"}) == self.usage.model_dump(exclude={"cost_usd"})
        assert isclose(state.usage.cost_usd or 0, self.usage.cost_usd or 0)

    @invariant()
    def every_call_has_its_result_and_the_task_stands_first(self) -> None:
        messages = self.state.conversation.messages
        assert are_paired(messages)
        assert (messages[0].text, messages[0].pinned) == ("count the files", True)

    @invariant()
    def the_conversation_knows_its_size_and_its_digest(self) -> None:
        conversation = self.state.conversation
        assert conversation.tokens == tokens_in(conversation.messages)
        assert conversation.size == sum(size_of(message) for message in conversation.messages)
        assert full_digest(conversation) == digest_of(conversation.messages)

    @invariant()
    def the_clock_counts_neither_pauses_nor_waits(self) -> None:
        assert isclose(self.state.clock.elapsed_s(self.now), self.running_s, abs_tol=1e-6)
        assert (self.state.clock.stopped_at is not None) == self._stands_still

    @invariant()
    def guidance_waits_in_order(self) -> None:
        assert [item.text for item in self.state.inbox] == self.inbox
        assert self.state.inbox_bytes == sum(len(text) for text in self.inbox)

    @invariant()
    def a_limit_ends_the_run_at_the_limit_and_not_before(self) -> None:
        """Written out once more, in other words."""
        config, usage = self.state.config, self.usage
        is_reached = (
            max(self.streaks.values(), default=0) >= 3
            or self.iterations >= config.max_iterations
            or usage.total_tokens >= config.max_total_tokens
            or (config.max_cost_usd is not None and (usage.cost_usd or 0) >= config.max_cost_usd)
            or self.state.clock.elapsed_s(self.now) >= config.timeout_s
        )
        assert (stop_reason(self.state, config, self.now) is not None) == is_reached

    @invariant()
    def what_is_shown_is_json_and_says_the_same(self) -> None:
        shown = status(self.state, self.now)
        assert type(shown).model_validate_json(shown.model_dump_json()) == shown
        left = shown.budgets
        assert min(left.iterations, left.tokens, left.time_s, left.tool_calls or 0) >= 0
        assert result(self.state, ("error", "now"), self.now).tool_calls == self.counts

    @property
    def now(self) -> datetime:
        return at(self.seconds)

    @property
    def _stands_still(self) -> bool:
        return self.state.paused or bool(self.state.waits)

    @property
    def _may_reason(self) -> bool:
        state = self.state
        is_ready = state.stop is None and not self._stands_still
        return is_ready and stop_reason(state, state.config, self.now) is None

    def _reason(self, reply: Reply) -> None:
        """Take the inbox in, compact, hand over: another process, which has the references alone, finds the same."""
        self.state = with_frame(interventions.taken_in(self.state))
        messages = self.state.conversation.messages
        guidance = zip(messages[len(messages) - len(self.inbox) :], self.inbox, strict=True)
        assert all(message.text.endswith(text) for message, text in guidance)
        self.inbox = []
        plan = compaction(self.state.conversation, self.state.config.context_strategy, message_budget(self.state))
        if plan.summary_tokens and ready_summary(self.state.conversation, plan.drop) is None:
            self.state = with_summary(self.state, plan.drop, plan.summary_tokens, None)
        conversation = self.state.conversation
        summary = ready_summary(conversation, plan.drop)
        reference, seen = handed_over(conversation, plan.drop, plan.mask, summary)
        self.base = reference.applied(self.base, self._found)
        assert self.base.messages == seen.messages
        self.state = with_calibration(self.state, seen, reply.usage.input_tokens)
        self.state = observe.with_reply(self.state, reply, seen)
        self.iterations += 1
        self.told[self.iterations] = reply.message()
        self.usage = self.usage.plus(reply.usage, reply.cost_usd)

    def _found(self, news: News) -> Message:
        assert news.summary is None
        return news.message or self.told[news.result or news.reply or 0]

    def _ended(self, index: int, call: ToolCall, verdict: Verdict, fate: OutcomeStatus, size: int) -> Outcome:
        """Return what became of a call that was judged, its circuit told of it."""
        if verdict.decision != "allow":
            return outcomes.refused(call, verdict)
        assert self.state.setup is not None
        spec = self.state.setup.tool(call.name)
        assert spec is not None
        self.state, refusal = breakers.admitted(self.state, spec, self.now)
        if refusal:
            return outcomes.turned_away(call, refusal)
        if fate == "cancelled":
            self.state = breakers.with_released(self.state, spec)
            return outcomes.cancelled(call, spec)
        if fate == "failed":
            self.state = breakers.with_failure(self.state, spec, self.now)
            return outcomes.failed(call, f"no {size}")
        self.state = breakers.with_success(self.state, spec)
        place = f"{self.iterations}.{index}"
        outcome = Outcome(call=call, status="ok", text="r" * size, result=place)
        self.told[place] = outcome.message()
        return outcome

    def _count(self, ended: tuple[Outcome, ...]) -> None:
        not_run = sum(outcome.status in NOT_RUN for outcome in ended)
        counts = self.counts
        self.counts = ToolCallCounts(
            proposed=counts.proposed + len(ended),
            run=counts.run + len(ended) - not_run,
            denied=counts.denied + not_run,
            failed=counts.failed + sum(outcome.status in FAILED for outcome in ended),
        )


def _verdict(fate: OutcomeStatus) -> Verdict:
    if fate == "denied":
        return Verdict(decision="deny", reason="not today")
    return Verdict(decision="invalid", reason="odd") if fate == "invalid" else Verdict(decision="allow")


TestAnyOrderOfDecisions = LoopMachine.TestCase
TestAnyOrderOfDecisions.settings = settings(max_examples=80, stateful_step_count=60, deadline=None)
