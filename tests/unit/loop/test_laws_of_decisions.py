"""The decisions of the loop in any order, without Temporal. A plain model next to the state predicts the result."""

from math import isclose

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from orga.workflows.decisions import limits, observe
from orga.workflows.decisions.continue_as_new import continue_as_new_state
from orga.workflows.decisions.control import interventions, questions
from orga.workflows.decisions.conversation import estimated_message_tokens, full_digest, message_size
from orga.workflows.decisions.limits import stop_reason
from orga.workflows.decisions.observe import classify_reply
from orga.workflows.decisions.result import agent_result, agent_status
from orga.workflows.decisions.tool_calls import dispatch
from orga.workflows.decisions.tool_calls.repeated_calls import refusal_names, with_resolved_repeated_call
from orga.workflows.types.context import HashedMessages, messages_digest
from orga.workflows.types.control import Intervention, Stop
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.models.usage import Usage
from orga.workflows.types.questions import Resolution
from orga.workflows.types.state import AgentState
from orga.workflows.types.tool_calls.breakers import BreakerOptions
from orga.workflows.types.tool_calls.gate import Verdict
from orga.workflows.types.tool_calls.recovery import OutcomeStatus
from tests.support.scenarios.draws import configs, costs, proposals, stubborn, usages
from tests.support.scenarios.modelled_run import NAMES, ModelledRun
from tests.support.values.core import a_setup, a_spec
from tests.support.values.turns import are_paired


class LoopMachine(ModelledRun, RuleBasedStateMachine):
    """One run with any order of events."""

    @initialize(config=configs, threshold=st.integers(1, 3))
    def prepare(self, config: LoopConfig, threshold: int) -> None:
        circuit = BreakerOptions(failure_threshold=threshold, recovery_s=30)
        specs = [a_spec(name, effect="idempotent", breaker=circuit) for name in NAMES]
        self.state = self.state.model_copy(update={"setup": a_setup(*specs, config=config)})

    @precondition(lambda self: self.may_reason)
    @rule(wanted=proposals | stubborn, text=st.sampled_from(["", "t" * 500]), usage=usages, cost=costs)
    def call(
        self, wanted: list[tuple[str, int, OutcomeStatus, int]], text: str, usage: Usage, cost: float | None
    ) -> None:
        """One iteration: its calls end as given, unless they are turned away or their circuit is open."""
        calls = tuple(
            ToolCall(call_id=f"c{self.iterations}_{index}", name=name, arguments={"n": n})
            for index, (name, n, _, _) in enumerate(wanted)
        )
        reply = Reply.of(text, calls=calls, finish="tool_calls", usage=usage, cost_usd=cost)
        self.reasoned(reply)
        verdicts = tuple(_verdict(fate) for _, _, fate, _ in wanted)
        allowed = [index for index, verdict in enumerate(verdicts) if verdict.decision == "allow"]
        turned_down = dispatch.unstarted_outcomes(self.state, {index: calls[index] for index in allowed})
        ended = tuple(
            turned_down.get(index) or self.carried_out(index, call, verdicts[index], wanted[index][2], wanted[index][3])
            for index, call in enumerate(calls)
        )
        denied = refusal_names(ended, verdicts, "denied")
        self.state = observe.with_outcomes(self.state, reply, ended, denied)
        self.state = dispatch.with_attempts(self.state, ended, self.now)
        self.count(ended)
        names = {call.name for call, verdict in zip(calls, verdicts, strict=True) if verdict.decision == "deny"}
        self.streaks = {name: self.streaks.get(name, 0) + 1 for name in names}

    @precondition(lambda self: self.may_reason)
    @rule(wanted=stubborn)
    def call_again(self, wanted: list[tuple[str, int, OutcomeStatus, int]]) -> None:
        self.call(wanted, "t" * 300, Usage(input_tokens=500), 0.1)

    @precondition(lambda self: self.may_reason)
    @rule(wanted=stubborn, seconds=st.sampled_from([1.0, 31.0]))
    def call_later(self, wanted: list[tuple[str, int, OutcomeStatus, int]], seconds: float) -> None:
        self.call(wanted, "", Usage(input_tokens=300), None)
        self.let_time_pass(seconds)

    @precondition(lambda self: self.may_reason and self.state.repairs < 2)
    @rule(finish=st.sampled_from(["refusal", "content_filter", "stop"]), usage=usages, cost=costs)
    def say_nothing_of_use(self, finish: str, usage: Usage, cost: float | None) -> None:
        reply = Reply.model_validate({"text": "", "finish": finish, "usage": usage, "cost_usd": cost})
        self.reasoned(reply)
        self.state = observe.with_repair(self.state, classify_reply(reply))
        self.streaks = {}

    @precondition(lambda self: self.may_reason)
    @rule(reason=st.sampled_from(["far too long", "names a customer", "unkind words", "not in English"]), usage=usages)
    def answer_what_is_denied(self, reason: str, usage: Usage) -> None:
        reply = Reply.of("the answer", usage=usage)
        self.reasoned(reply)
        self.state = observe.with_denied_answer(self.state, reply, Verdict(decision="deny", reason=reason))
        self.streaks = {reason: self.streaks.get(reason, 0) + 1}

    @precondition(lambda self: self.may_reason and self.iterations > 15)
    @rule(guided=st.booleans(), usage=usages)
    def answer(self, guided: bool, usage: Usage) -> None:
        """It ends the run, unless guidance arrives during the reply."""
        reply = Reply.of("the answer", usage=usage)
        self.reasoned(reply)
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
        """Days pass while the run is paused or waits."""
        if self.stands_still:
            self.seconds += 86_400 * seconds
        else:
            self.running_s += seconds
            self.seconds += seconds

    @precondition(lambda self: self.state.questions)
    @rule(choice=st.sampled_from(["retry", "skip", "result"]))
    def decide(self, choice: str) -> None:
        """Answer the oldest question as `stuck` does."""
        asked = self.state.questions[0]
        decision = Resolution.model_validate({"escalation_id": asked.question_id, "choice": choice, "result": "42"})
        self.state = questions.with_resolution(self.state, decision, self.now)
        self.state = questions.without_question(self.state, asked.question_id, self.now)
        self.state = with_resolved_repeated_call(self.state, asked.with_resolution(decision))

    @rule(limit=st.sampled_from(["max_iterations", "max_total_tokens", "timeout_s", "max_tool_calls"]))
    def extend(self, limit: str) -> None:
        held = getattr(self.state.config, limit)
        if held is not None:
            raised = limits.parsed_extension(self.state, {limit: held + 100})
            self.state = limits.with_extension(self.state, raised)
            assert getattr(self.state.config, limit) == held + 100

    @precondition(lambda self: self.state.stop is None)
    @rule()
    def continue_as_new(self) -> None:
        """Check that the next segment reads what this one wrote, without references to the old history."""
        written = continue_as_new_state(self.state.model_copy(update={"notes": ()}), "this run")
        read = AgentState.model_validate_json(written.model_dump_json(exclude_unset=True))
        assert read == written
        assert (read.conversation.news, read.conversation.sent) == ((), len(read.conversation.messages))
        self.state = read
        self.base, self.messages_read = HashedMessages().plus(read.conversation.messages), {}

    @invariant()
    def counters_are_those_of_the_model(self) -> None:
        state = self.state
        assert (state.iteration, state.tool_calls) == (self.iterations, self.counts)
        assert state.usage.model_dump(exclude={"cost_usd"}) == self.usage.model_dump(exclude={"cost_usd"})
        assert isclose(state.usage.cost_usd or 0, self.usage.cost_usd or 0)

    @invariant()
    def every_call_has_its_result_and_the_task_comes_first(self) -> None:
        messages = self.state.conversation.messages
        assert are_paired(messages)
        assert (messages[0].text, messages[0].pinned) == ("count the files", True)

    @invariant()
    def the_conversation_knows_its_size_and_its_digest(self) -> None:
        conversation = self.state.conversation
        assert conversation.tokens == estimated_message_tokens(conversation.messages)
        assert conversation.size == sum(message_size(message) for message in conversation.messages)
        assert full_digest(conversation) == messages_digest(conversation.messages)

    @invariant()
    def the_clock_counts_neither_pauses_nor_waits(self) -> None:
        assert isclose(self.state.clock.elapsed_seconds(self.now), self.running_s, abs_tol=1e-6)
        assert (self.state.clock.stopped_at is not None) == self.stands_still

    @invariant()
    def guidance_waits_in_order(self) -> None:
        assert [item.text for item in self.state.inbox] == self.inbox
        assert self.state.inbox_bytes == sum(len(text) for text in self.inbox)

    @invariant()
    def a_limit_ends_the_run_at_the_limit_and_not_before(self) -> None:
        """The rule is written again in another form."""
        config, usage = self.state.config, self.usage
        is_reached = (
            max(self.streaks.values(), default=0) >= 3
            or self.iterations >= config.max_iterations
            or usage.total_tokens >= config.max_total_tokens
            or (config.max_cost_usd is not None and (usage.cost_usd or 0) >= config.max_cost_usd)
            or self.state.clock.elapsed_seconds(self.now) >= config.timeout_s
        )
        assert (stop_reason(self.state, config, self.now) is not None) == is_reached

    @invariant()
    def the_status_survives_json_and_its_budgets_are_not_negative(self) -> None:
        shown = agent_status(self.state, self.now)
        assert type(shown).model_validate_json(shown.model_dump_json()) == shown
        left = shown.budgets
        assert min(left.iterations, left.tokens, left.time_s, left.tool_calls or 0) >= 0
        assert agent_result(self.state, Stop("error", "now"), self.now).tool_calls == self.counts


def _verdict(fate: OutcomeStatus) -> Verdict:
    if fate == "denied":
        return Verdict(decision="deny", reason="not today")
    return Verdict(decision="invalid", reason="odd") if fate == "invalid" else Verdict(decision="allow")


TestAnyOrderOfDecisions = LoopMachine.TestCase
TestAnyOrderOfDecisions.settings = settings(max_examples=80, stateful_step_count=60)
