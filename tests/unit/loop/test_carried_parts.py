"""Any legal state of a run can be carried into its next segment."""

from dataclasses import replace
from hashlib import sha256
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import from_json, to_json

from orga.activities.adapters.models.kept_fields import block_part
from orga.activities.replies import normalised_reply
from orga.workflows.decisions.begin import BEGIN_BYTES, first_state
from orga.workflows.decisions.continue_as_new import (
    CARRIED_PARTS,
    MAX_CARRIED_BYTES,
    NO_APPROVERS,
    SPARE_BYTES,
    CarriedPart,
    can_continue_as_new,
    continue_as_new_state,
    is_within_payload_limit,
    oversized_parts_text,
    shortened_fields,
    state_bytes,
    with_end_if_outgrown,
)
from orga.workflows.decisions.control import questions
from orga.workflows.decisions.control.interventions import should_continue_as_new
from orga.workflows.decisions.control.questions import shown_question
from orga.workflows.decisions.conversation import full_digest, with_all_as_base, with_messages
from orga.workflows.decisions.fork import fork_state, with_past
from orga.workflows.decisions.limits import stop_reason
from orga.workflows.decisions.tool_calls import call_questions
from orga.workflows.types.context import messages_digest
from orga.workflows.types.control import Intervention, Stop
from orga.workflows.types.conversation import Conversation
from orga.workflows.types.messages import Message, Reply
from orga.workflows.types.parts import text_part
from orga.workflows.types.past import ForkedFrom, parse_fork
from orga.workflows.types.state import AgentState
from tests.support.values.core import T0, a_setup, a_state, at, conversation_of, user
from tests.support.values.goals import a_goal
from tests.support.values.largest import LETTERS, Sizes, held_verdict, largest
from tests.support.values.turns import are_paired

PAYLOAD_BYTES = 2_000_000

UNTOUCHED = ("setup", "taint", "breakers", "failures", "decided", "critiques", "pending", "dead_letters", "extended")
"""Fields about the permissions and promises of a run. They are always carried unchanged."""


def test_the_table_names_every_field_of_the_state_once() -> None:
    assert sorted(field for part in CARRIED_PARTS for field in part.fields) == sorted(AgentState.model_fields)
    assert all(part.why for part in CARRIED_PARTS)


def test_the_bounds_add_up_to_less_than_a_payload() -> None:
    assert sum(part.most for part in CARRIED_PARTS) + SPARE_BYTES <= MAX_CARRIED_BYTES < PAYLOAD_BYTES


def over_the_wire(state: AgentState) -> AgentState:
    sent = continue_as_new_state(state, "run 1").model_dump_json(exclude_unset=True).encode()
    assert len(sent) <= MAX_CARRIED_BYTES
    return first_state(None, from_json(sent), "run 1", "run 2", at(99))


def part_sizes(state: AgentState) -> list[tuple[CarriedPart, int]]:
    """Return the size of each part after it is cut. The window takes the rest."""
    light = continue_as_new_state(state, "run 1")
    light = light.model_copy(update={"conversation": Conversation()})
    for part in CARRIED_PARTS:
        light = part.cut(light) if part.cut else light
    written = [light.model_dump_json(include=set(part.fields), exclude_unset=True) for part in CARRIED_PARTS]
    return [(part, len(text.encode())) for part, text in zip(CARRIED_PARTS, written, strict=True)]


OF_A_QUESTION = {"question_id", "since", "kind", "choices"}
OF_AN_ITEM = {"approval_id", "about", "expires_at", "place"}


def check(state: AgentState) -> AgentState:
    """Continue as new twice. Return the state at the start of the next segment."""
    assert is_within_payload_limit(state)
    assert oversized_parts_text(state) == ""
    whole = state.with_dialogue(conversation=with_all_as_base(state.conversation)).with_control(carried_by="run 1")
    if state_bytes(whole) > MAX_CARRIED_BYTES:  # a smaller state is carried unchanged
        for part, size in part_sizes(state):
            assert size <= part.most, part.fields
    after = over_the_wire(state)
    for field in UNTOUCHED:
        assert getattr(after, field) == getattr(state, field), field
    same = {"trusted_context", "tools", "tenant", "lineage", "config", "agent", "model", "task"}
    assert after.input.model_dump(include=same) == state.input.model_dump(include=same)
    messages = after.conversation.messages
    assert messages[0].text == state.conversation.messages[0].text == state.input.task
    assert full_digest(after.conversation) == messages_digest(messages)
    assert are_paired(messages)
    for now, was in zip(after.questions, state.questions, strict=True):
        assert now.model_dump(include=OF_A_QUESTION) == was.model_dump(include=OF_A_QUESTION)
        assert (now.resolution and now.resolution.choice) == (was.resolution and was.resolution.choice)
        for item, before in zip(now.items, was.items, strict=True):
            assert item.model_dump(include=OF_AN_ITEM) == before.model_dump(include=OF_AN_ITEM)
            assert (item.answer and item.answer.approved) == (before.answer and before.answer.approved)
            assert item.approvers in (before.approvers, NO_APPROVERS)
    assert {key: bool(step.stopped) for key, step in after.steps.items()} == {
        key: bool(step.stopped) for key, step in state.steps.items()
    }
    assert list(after.denials.values()) == list(state.denials.values())
    assert [item.kind for item in after.inbox] == [item.kind for item in state.inbox]
    assert over_the_wire(after).model_dump(exclude={"conversation"}) == after.model_dump(exclude={"conversation"})
    return after


@pytest.mark.parametrize(
    ("letter", "held"), [*product(LETTERS, ["calls", "steps"]), *product("x\x01", ["answer", "nothing"])]
)
def test_the_largest_state_fits(letter: str, held: str) -> None:
    state = largest(Sizes(letter=letter, held=held))
    assert state_bytes(state) > MAX_CARRIED_BYTES + 300_000
    after = check(state)
    assert shortened_fields(state, after)
    if held in {"nothing", "steps"}:  # the model still has to read these results
        latest = [message for message in after.conversation.messages if message.role == "tool"]
        assert len(latest) == 32
        assert all(message.text for message in latest)


@pytest.mark.parametrize("tools", [1, 128, 400])
def test_many_tools_fit(tools: int) -> None:
    check(largest(Sizes(tools=tools)))


shares = st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0])


@settings(max_examples=12)
@given(
    st.builds(
        Sizes,
        letter=st.sampled_from(LETTERS),
        tools=st.sampled_from([1, 20, 128, 300]),
        begin=shares,
        held=st.sampled_from(["calls", "answer", "steps", "nothing"]),
        reply=shares,
        reply_part=shares,
        grown=shares,
    )
)
def test_any_legal_state_fits(sizes: Sizes) -> None:
    check(largest(sizes))


def test_the_window_is_cut_before_anything_else() -> None:
    sizes = Sizes(begin=0.3, held="nothing", reply=0.3, grown=0.4)
    state = largest(sizes).model_copy(update={"output": "", "data": None, "partial": ""})
    texts = [user(f"{number}" + "x" * 90_000, pinned=True) for number in range(15)]
    text_part = with_messages(Conversation(), (user(state.input.task, pinned=True), *texts))
    state = state.model_copy(update={"conversation": text_part})
    assert state_bytes(state) > MAX_CARRIED_BYTES
    after = over_the_wire(state)
    assert shortened_fields(state, after) == []
    assert 1 < len(after.conversation.messages) < len(state.conversation.messages)


def test_a_held_call_is_complete_again_when_the_question_is_repeated() -> None:
    """Until then, only carried approvers may decide. A made decision is kept and not asked for again."""
    state = largest(Sizes(letter="é"))
    after = check(state)
    assert after.pending is not None
    [light], [whole] = after.questions, state.questions
    assert [item.call["arguments"] for item in light.items] == [{}] * 32
    assert all(item.approvers == NO_APPROVERS for item in light.items)
    [changed] = [item.answer.arguments for item in light.items if item.answer and item.answer.arguments is not None]
    assert changed == next(item.answer.arguments for item in whole.items[1:] if item.answer)
    shown = shown_question(light).data["calls"]
    assert [call["arguments_digest"] for call in shown] == [
        f"sha256:{sha256(to_json(item.call['arguments'])).hexdigest()}" for item in whole.items if item.answer is None
    ]
    undecided = light.items[0].with_decision(None)
    decision = {"approval_id": undecided.approval_id, "approver": "0" + "é" * 20}
    again = after.with_control(questions=(light.with_items((undecided,)),))
    with pytest.raises(ValueError, match="may not decide this"):
        questions.parsed_decision(again, decision, T0)
    items = [
        call_questions.approval_item(after, f"8.{n}", call, held_verdict("é"), at(500), occasion="later")
        for n, call in enumerate(after.pending.calls)
    ]
    [asked] = questions.with_question(
        after, call_questions.approval_question(items, "approval-8", at(500)), at(500)
    ).questions
    before = {item.approval_id: item for item in whole.items}
    for item in asked.items:
        was = before[item.approval_id]
        assert item.with_decision(None) == was.with_decision(None)
        assert (item.answer is None) == (was.answer is None)
    assert len(shown_question(asked).data["calls"]) == 16


def test_a_different_call_at_the_place_of_a_held_one_is_asked_about_again() -> None:
    after = check(largest(Sizes()))
    assert after.pending is not None
    other = after.pending.calls[1].model_copy(update={"arguments": {"n": 1, "text": "another"}})
    assert after.questions[0].items[1].answer is not None
    assert (
        call_questions.approval_item(after, "8.1", other, held_verdict("x"), at(500), occasion="later").answer is None
    )


def test_a_fork_keeps_a_schema_that_only_the_first_segment_received() -> None:
    after = check(largest(Sizes()))
    assert after.input.output_schema is None
    fork_input = parse_fork({"fork": {"workflow_id": "w", "iteration": 7}})
    source = ForkedFrom(workflow_id="w", run_id="r", iteration=7)
    past = fork_state(
        after.model_copy(update={"input": after.input.model_copy(update={"task": "t"})}), source, fork_input, T0
    )
    assert after.setup is not None
    assert past.input.output_schema == after.setup.output_schema


def test_forks_of_forks_share_one_bounded_inbox() -> None:
    many = tuple(Intervention(kind="steer", text="s" * 1_000) for _ in range(400))
    past = a_state(inbox=many, inbox_bytes=400_000)
    fork = with_past(a_state(inbox=many[:100], inbox_bytes=100_000), past)
    assert (len(fork.inbox), fork.unheard) == (400, 100)
    assert fork.inbox_bytes == sum(len(item.text) for item in fork.inbox) <= 180_000
    assert [item.size for item in fork.inbox if len(item.text) < 1_000] == [1_000] * 300


def a_too_large_state() -> AgentState:
    setup = a_setup(instructions="i" * 2_000_000, roll_over_events=100)
    return a_state(setup=setup)


def test_a_state_that_is_too_large_ends_the_run_at_continue_as_new() -> None:
    state = a_too_large_state()
    assert state.setup is not None
    assert not should_continue_as_new(state, 99, 0, suggested=False)
    assert should_continue_as_new(state, 100, 0, suggested=False)
    ended = with_end_if_outgrown(state)
    assert ended.stop is not None
    reason, detail = ended.stop
    assert reason == "error"
    assert "cannot continue as new" in detail
    assert "input, setup, taint" in detail
    assert f"{BEGIN_BYTES} at most" in detail


@pytest.mark.parametrize(("memory_bytes", "fits"), [(1_000_000, True), (MAX_CARRIED_BYTES, False)])
def test_a_goal_whose_plan_exceeds_a_payload_ends_with_an_error(memory_bytes: int, fits: bool) -> None:
    goal = a_goal(memory="m" * memory_bytes)
    assert can_continue_as_new(goal) is fits
    stop = with_end_if_outgrown(goal).stop
    assert (
        stop is None
        if fits
        else stop is not None and stop.reason == "error" and "cannot continue as new" in stop.detail
    )


@pytest.mark.parametrize("fields", [{"aborted": "why"}, {"stop": Stop("completed")}])
def test_a_decided_ending_is_kept(fields: dict[str, Any]) -> None:
    state = a_too_large_state().model_copy(update=fields)
    assert state.setup is not None
    assert not should_continue_as_new(state, 100, 0, suggested=False)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"repairs": 1}, False, id="a few more replies finish it"),
        pytest.param({"repairs": 3}, True, id="guidance may continue it without end"),
        pytest.param({"repairs": 1, "paused": True}, True, id="a paused run cannot finish it"),
    ],
)
def test_a_continued_answer_is_finished_before_continue_as_new_if_that_ends(
    fields: dict[str, Any], expected: bool
) -> None:
    state = largest(Sizes(held="nothing")).model_copy(update={"paused": False, "questions": (), **fields})
    assert state.setup is not None
    assert should_continue_as_new(state, 10_000, 10**8, suggested=True)
    assert can_continue_as_new(state) is expected
    assert with_end_if_outgrown(state).stop is None


def test_an_answer_that_fits_does_not_delay_continue_as_new() -> None:
    state = a_state(setup=a_setup(), partial="p" * 500_000, repairs=1)
    assert should_continue_as_new(state, 10_000, 10**8, suggested=True)
    assert can_continue_as_new(state)


def test_a_denial_streak_that_was_cut_still_ends_the_run() -> None:
    state = largest(Sizes())
    state = state.model_copy(update={"denials": dict.fromkeys(state.denials, 3)})
    after = check(state)
    ending = stop_reason(after.model_copy(update={"aborted": None}), after.config, at(1))
    assert ending is not None
    assert ending.reason == "policy_denial"


def test_too_many_parts_and_impossible_counts_are_not_carried() -> None:
    parts = (part for n in range(2_000) for part in (block_part({"n": n}), text_part("t")))
    reply = normalised_reply(Reply(parts=tuple(parts)), ())
    assert (reply.blocks, len(reply.parts)) == ((), 1)
    huge = Reply.model_validate({"usage": {"input_tokens": 10**4_000}})
    assert normalised_reply(huge, ()).usage.input_tokens == 10**15


def test_a_message_without_text_is_the_task_only_if_it_is_the_first() -> None:
    state = a_state(conversation=conversation_of(user("the task", pinned=True), Message.of("user", "")))
    state = state.model_copy(update={"input": state.input.model_copy(update={"task": "the task"})})
    read = AgentState.model_validate_json(state.model_dump_json(exclude_unset=True))
    assert [message.text for message in read.conversation.messages] == ["the task", ""]


def test_the_builder_of_states_follows_its_sizes() -> None:
    """Otherwise the laws above would hold for nothing."""
    sizes = Sizes(begin=0.1, held="nothing", reply=0.1, reply_part=0.0, grown=0.0)
    small = state_bytes(largest(sizes))
    assert all(
        state_bytes(largest(replace(sizes, **{name: 1.0}))) > small + 20_000
        for name in ("begin", "reply_part", "grown")
    )
