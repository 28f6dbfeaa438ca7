"""The state of a run fits a payload at any size, and the model's input stays near its budget."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import to_json

from orga.activities.adapters.agents.offered_tools import MAX_OFFERED_BYTES as MAX_TOOLS_BYTES
from orga.activities.prepare import MAX_SETUP_BYTES
from orga.activities.replies import MAX_CALLS, calls_byte_limit, normalised_reply
from orga.workflows.decisions import observe
from orga.workflows.decisions.begin import initial_state
from orga.workflows.decisions.compaction import compaction
from orga.workflows.decisions.continue_as_new import MAX_CARRIED_BYTES, can_continue_as_new, continue_as_new_state
from orga.workflows.decisions.control import interventions
from orga.workflows.decisions.control.interventions import should_continue_as_new
from orga.workflows.decisions.conversation import (
    MAX_NEWS_BYTES,
    MIN_NEWS_BYTES,
    estimated_bytes,
    full_digest,
    message_budget,
    message_json_bytes,
    message_size,
    reference_and_seen,
    with_frame_size,
    with_message,
)
from orga.workflows.decisions.hydration import Reference, Resolved, with_hydration
from orga.workflows.decisions.tool_calls import recovery, repeated_calls
from orga.workflows.types.context import ContextRef, HashedMessages, MessageRef, messages_digest
from orga.workflows.types.control import Intervention, InterventionKind
from orga.workflows.types.input import AgentInput, LoopConfig
from orga.workflows.types.messages import Message, Reply, ToolCall
from orga.workflows.types.questions import Question, Resolution
from orga.workflows.types.setup import Setup
from orga.workflows.types.state import AgentState
from orga.workflows.types.tool_calls.recovery import DeadLetter, Outcome, tool_message
from orga.workflows.types.tool_calls.tools import ToolSpec
from tests.support.values.core import T0, a_setup, a_spec, a_state, user
from tests.support.values.turns import are_paired

PAYLOAD_BYTES = 2_000_000
LETTERS = ["x", '"', "\n", "é", "😀", "\x01"]
"""One byte, two in JSON, two in UTF-8, four, six in JSON."""

config_budgets = st.sampled_from([500, 4_000, 32_000, 10**8])


class Sized:
    """A run with parts of given sizes, driven by the decisions alone. Results are stored as in a history."""

    def __init__(self, setup: Setup, run_input: AgentInput) -> None:
        self.state = initial_state(run_input, "run 1", T0).model_copy(update={"setup": setup})
        self.replies: dict[int, Reply] = {}
        self.results: dict[str, Outcome] = {}
        self.base = HashedMessages()
        self.most_sent = 0
        """Bytes of the messages of the largest request."""

    def iterate(self, reply: Reply, results: list[str]) -> None:
        """Run one iteration: ask the model, and give its calls these results."""
        self._ask()
        state = self.state
        earlier = state.conversation.messages
        reply = normalised_reply(reply, earlier, calls_byte_limit(state.config.max_output_tokens))
        assert len(reply.model_dump_json(exclude_unset=True).encode()) < PAYLOAD_BYTES
        state = observe.with_reply(state, reply, state.conversation)
        self.replies[state.iteration] = reply
        outcomes: list[Outcome] = []
        for index, call in enumerate(reply.calls):
            place = f"{state.iteration}.{index}"
            text = results[index % len(results)]
            outcomes.append(Outcome(call=call, status="ok", text=text, result=place))
            self.results[place] = outcomes[-1]
        self.state = observe.with_outcomes(state, reply, tuple(outcomes), [])

    def _ask(self) -> None:
        """Check that the resolved references give exactly the conversation of the run."""
        self.state = with_frame_size(observe.with_inbox_drained(self.state))
        conversation = self.state.conversation
        plan = compaction(conversation, self.state.config.context_strategy, message_budget(self.state))
        context, seen = reference_and_seen(conversation, plan.drop, plan.mask)
        wire = context.model_dump_json(exclude_unset=True)
        assert len(wire.encode()) < PAYLOAD_BYTES
        self.base = ContextRef.model_validate_json(wire).apply_to(self.base, self._message)
        assert self.base.messages == seen.messages
        assert are_paired(seen.messages)
        self.most_sent = max(self.most_sent, sum(message_size(m) for m in seen.messages))
        self.state = self.state.model_copy(update={"conversation": seen})

    def _message(self, news: MessageRef) -> Message:
        if news.message is not None:
            return news.message
        if news.reply is not None:
            return news.shown(self.replies[news.reply].message())
        found = self.results[news.result or ""]
        return news.shown(tool_message(found.call, found.text, is_error=False))

    def roll_over(self) -> AgentState:
        """Continue as new through the wire format."""
        written = continue_as_new_state(self.state.model_copy(update={"notes": ()}), "run 1")
        wire = written.model_dump_json(exclude_unset=True).encode()
        assert len(wire) <= MAX_CARRIED_BYTES
        assert should_continue_as_new(self.state, 10_000, 10**8, True)
        assert can_continue_as_new(self.state)
        self.state = AgentState.model_validate_json(wire)
        self.base = HashedMessages().plus(self.state.conversation.messages)
        assert full_digest(self.state.conversation) == messages_digest(self.state.conversation.messages)
        assert are_paired(self.state.conversation.messages)
        assert self.state.conversation.messages[0].text == self.state.input.task
        return self.state


def proposing(count: int, size: int, letter: str = "x", text: int = 0) -> Reply:
    """Return a reply with `count` calls, each with an argument of `size` bytes of JSON."""
    inner = letter * max(size // (len(to_json(letter)) - 2), 0)
    calls = tuple(ToolCall(call_id=f"c{i}", name="read", arguments={"text": inner}) for i in range(count))
    return Reply.of(letter * text, calls=calls, finish="tool_calls")


def tools_of(size: int, count: int) -> tuple[ToolSpec, ...]:
    """Return tool definitions with this total size in bytes."""
    each = max(size // count - 300, 0)
    return tuple(
        a_spec("read" if i == 0 else f"tool_{i}", parameters={"type": "object", "description": "d" * each})
        for i in range(count)
    )


def full(letter: str = "x", **config: Any) -> Sized:
    """Return a run in which every part has its maximum size."""
    each = len(to_json(letter)) - 2
    limits = LoopConfig(max_output_tokens=100_000, **config)
    schema = {"type": "object", "description": "s" * 49_000}
    setup = a_setup(*tools_of(MAX_TOOLS_BYTES, 10), instructions="i" * 95_000, config=limits, output_schema=schema)
    assert MAX_SETUP_BYTES * 0.95 < len(setup.model_dump_json(exclude_unset=True)) <= MAX_SETUP_BYTES
    run_input = AgentInput(
        task="t" + letter * (199_000 // each),
        instructions="i" * 200_000,
        trusted_context={"known": "t" * 99_000},
        output_schema=schema,
        tools=tuple(f"tool_{i:04}" * 15 for i in range(300)),
        config=limits,
    )
    return Sized(setup, run_input)


@pytest.mark.parametrize(
    ("letter", "strategy", "budget"),
    [
        *((letter, "sliding_window", 32_000) for letter in LETTERS),
        ("x", "none", 10**8),
        ("é", "observation_masking", 500),
    ],
)
def test_a_state_with_every_part_at_its_maximum_is_carried(letter: str, strategy: str, budget: int) -> None:
    run = full(letter, context_strategy=strategy, context_token_budget=budget)
    for number in range(2):
        kinds: tuple[InterventionKind, ...] = ("steer", "add_context")
        for kind in kinds:
            for _ in range(300):
                guidance = Intervention(kind=kind, text=interventions.signal_text((letter * 12_000,)))
                run.state = interventions.with_guidance(run.state, guidance)
        run.iterate(proposing(MAX_CALLS, 10_000, letter, text=400_000), [letter * 490_000])
        run.state = _burdened(run.state, letter, number)
        run.roll_over()
        assert run.state.dead_letters
        assert run.state.conversation.messages[-1].role == "tool"


def _burdened(state: AgentState, letter: str, number: int) -> AgentState:
    """Return the state with everything else that a run may know, each at its maximum size."""
    for index in range(210):
        call = ToolCall(call_id=f"l{index}", name="read", arguments={"text": f"{number}{index}" + letter * 5_000})
        letter_id = f"{number}.{index}"
        dead = DeadLetter(letter_id=letter_id, call=call, key="k" * 64, error=letter * 500, at=T0)
        state = recovery.with_dead_letter(state, dead)
        state = repeated_calls.with_failed_call(state, call, letter * 10_000, T0)
    with_cache = a_spec("read", recovery={"strategy": "cached_result"})
    call = ToolCall(call_id="k", name="read", arguments={"n": number})
    state = recovery.with_succeeded_call(state, with_cache, call, letter * 20_000, T0)
    answer = Reply.of(letter * 600_000)
    state = state.model_copy(update={"inbox": state.inbox or (Intervention(kind="steer", text="more"),)})
    return observe.with_answer(state, answer).model_copy(update={"conversation": state.conversation})


@settings(max_examples=60)
@given(
    calls=st.integers(1, 40),
    arguments=st.sampled_from([0, 100, 3_000, 31_000, 190_000]),
    results=st.lists(st.sampled_from([0, 200, 19_000, 490_000]), min_size=1, max_size=4),
    guidance=st.lists(st.sampled_from([10, 20_000, 50_000]), max_size=10),
    task=st.sampled_from([10, 100_000, 199_000]),
    tools=st.sampled_from([1, 20, 200]),
    budget=config_budgets,
    letter=st.sampled_from(LETTERS),
)
def test_any_sizes_can_be_carried_and_every_request_rebuilt(
    calls: int,
    arguments: int,
    results: list[int],
    guidance: list[int],
    task: int,
    tools: int,
    budget: int,
    letter: str,
) -> None:
    limits = LoopConfig(context_token_budget=budget)
    setup = a_setup(*tools_of(300_000 if tools == 200 else 5_000, tools), config=limits)
    run = Sized(setup, AgentInput(task="t" * task, config=limits))
    for number in range(4):
        for size in guidance:
            run.state = interventions.with_guidance(run.state, Intervention(kind="add_context", text="g" * size))
        run.iterate(proposing(calls, arguments, letter), [letter * size for size in results])
        if number % 2:
            run.roll_over()


@pytest.mark.parametrize(
    ("reply", "results"),
    [
        pytest.param(proposing(31, 31_000), ["ok"], id="31 calls of 31 kB"),
        pytest.param(proposing(3, 10), ["r" * 490_000], id="3 results of 490 kB"),
        pytest.param(proposing(32, 10), ["r" * 490_000], id="32 results of 490 kB"),
        pytest.param(proposing(32, 4_000), ["r" * 20_000], id="calls and results of ordinary sizes, many of them"),
        pytest.param(proposing(1, 10, text=290_000), ["ok"], id="a long text next to a call"),
        pytest.param(proposing(1, 190_000), ["ok"], id="one call of 190 kB"),
    ],
)
@pytest.mark.parametrize("budget", [8_000, 32_000])
def test_the_input_of_the_model_stays_near_the_budget(reply: Reply, results: list[str], budget: int) -> None:
    limits = LoopConfig(context_token_budget=budget)
    run = Sized(a_setup(config=limits), AgentInput(task="the task", config=limits))
    for _ in range(5):
        run.iterate(reply, results)
    reply_bytes = calls_byte_limit(limits.max_output_tokens)
    assert run.most_sent <= max(estimated_bytes(budget) * 1.2, reply_bytes + 2 * MIN_NEWS_BYTES + 32 * 300)


@pytest.mark.parametrize("budget", [8_000, 32_000])
@pytest.mark.parametrize("kind", ["steer", "add_context"])
def test_guidance_stays_near_the_budget(kind: str, budget: int) -> None:
    limits = LoopConfig(context_token_budget=budget)
    run = Sized(a_setup(config=limits), AgentInput(task="the task", config=limits))
    for number in range(12):
        for _ in range(3):
            guidance = Intervention.model_validate({"kind": kind, "text": f"{number}" + "g" * 50_000})
            run.state = interventions.with_guidance(run.state, guidance)
        run.iterate(proposing(1, 10), ["ok"])
    assert run.most_sent <= estimated_bytes(budget) * 1.2 + 50_000


def test_long_results_share_the_room_and_short_ones_are_kept_whole() -> None:
    limits = LoopConfig(context_token_budget=8_000)
    run = Sized(a_setup(config=limits), AgentInput(task="the task", config=limits))
    run.iterate(proposing(4, 10), ["a" * 300, "b" * 90_000, "c" * 300, "d" * 90_000])
    texts = [m.text for m in run.state.conversation.messages if m.role == "tool"]
    assert (texts[0], texts[2]) == ("a" * 300, "c" * 300)
    assert abs(len(texts[1]) - len(texts[3])) < 50
    assert 10_000 < len(texts[1]) < 14_000
    assert "[cut: 90000 bytes in all" in texts[1]
    assert texts[1].endswith("ask for a smaller part]")


def test_results_that_fit_are_shown_whole() -> None:
    run = Sized(a_setup(), AgentInput(task="the task"))
    results = ["r" * 20_000] * 4
    run.iterate(proposing(4, 10), results)
    assert [m.text for m in run.state.conversation.messages if m.role == "tool"] == results


def test_all_news_for_one_model_call_fit_its_input() -> None:
    conversation = a_state().conversation
    for _ in range(100):
        conversation = with_message(conversation, user("\x01" * 100_000))
    assert sum(map(message_json_bytes, conversation.messages)) <= MAX_NEWS_BYTES + 100 * 2_000


def test_references_and_decisions_of_people_fit_the_news_limit() -> None:
    state = a_state()
    found = tuple(
        Resolved(reference=Reference(ref_type="url", value=f"u{i}"), status="resolved", tool="t", content="p" * 490_000)
        for i in range(100)
    )
    state = state.model_copy(update={"setup": a_setup(config=LoopConfig(context_token_budget=10**8)), "iteration": 1})
    state = with_hydration(state, found, 100_000)
    for number in range(40):
        call = ToolCall(call_id="c", name="read", arguments={"n": number})
        wait = repeated_calls.with_failed_call(state, call, "no", T0)
        given = Resolution(escalation_id="w", choice="result", result="g" * 100_000)
        state = wait.model_copy(update={})
        state = _given(state, given)
    assert state.conversation.unseen <= MAX_NEWS_BYTES + 100 * 2_000


def _given(state: AgentState, given: Resolution) -> AgentState:
    data = {"step_id": "s", "tool": "read"}
    asked = Question(question_id="w", kind="escalation", since=T0, text="?", data=data)
    return repeated_calls.with_resolved_repeated_call(state, asked.with_resolution(given))
