"""States whose parts are as large as the rules allow, built by those rules if possible."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from pydantic_core import to_json

from orga.activities.adapters.models.kept_fields import block_part
from orga.activities.replies import MAX_CALLS, normalised_reply
from orga.workflows.decisions import observe
from orga.workflows.decisions.begin import (
    BEGIN_BYTES,
    begin_bytes,
    initial_state,
    size_problem,
    with_unpinned_server_taint,
)
from orga.workflows.decisions.control import interventions, questions
from orga.workflows.decisions.conversation import with_message
from orga.workflows.decisions.result import with_gathered_text
from orga.workflows.decisions.tool_calls import call_questions, decision, dispatch, recovery, repeated_calls
from orga.workflows.decisions.tool_calls.call_questions import MAX_COMPLETIONS
from orga.workflows.decisions.tool_calls.calls import call_fingerprint, taint_with_outcomes
from orga.workflows.types.control import MAX_SENDER_CHARS, Intervention
from orga.workflows.types.conversation import Conversation
from orga.workflows.types.critics import Critic
from orga.workflows.types.input import MAX_SCHEMA_BYTES, MAX_TASK_BYTES, MAX_TRUSTED_BYTES, AgentInput, LoopConfig
from orga.workflows.types.messages import Message, Reply, ToolCall
from orga.workflows.types.parts import Block, text_part
from orga.workflows.types.past import ForkedFrom
from orga.workflows.types.questions import ApprovalDecision, Question, Resolution
from orga.workflows.types.state import AgentState
from orga.workflows.types.tool_calls.decision import GroundedDecision
from orga.workflows.types.tool_calls.gate import ApprovalTerms, Verdict
from orga.workflows.types.tool_calls.recovery import DeadLetter, Outcome
from orga.workflows.types.tool_calls.tools import ToolSpec
from tests.support.values.core import T0, a_setup, a_spec, at

LETTERS = ["x", '"', "\n", "é", "😀", "\x01"]
"""Characters of one byte, two in JSON, two in UTF-8, four in UTF-8, and six in JSON."""

PAY = ("pay_" * 16)[:64]
"""A tool with a name of the greatest length."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of the parts, relative to their largest: 0 to 1."""

    letter: str = "x"
    tools: int = 128
    begin: float = 1.0
    """Task, instructions, facts, definitions."""
    held: str = "calls"
    """The open work: `calls` that need approval, an `answer`, stuck `steps`, or `nothing`."""
    reply: float = 1.0
    reply_part: float = 1.0
    """Earlier messages, and the model's last message with its results."""
    grown: float = 1.0
    """State that grows: letters, steps, streaks, drafts, guidance, circuits."""


def filled(letter: str, size: float) -> str:
    """Return a text that takes at most this many bytes of JSON."""
    return letter * max(int(size) // (len(to_json(letter)) - 2), 0)


def deep(levels: int, size: int) -> dict[str, Any]:
    """Return a schema with nested objects, and a description that takes the rest of its size."""
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels // 2):
        schema = {"type": "object", "properties": {"p": schema}}
    return {**schema, "description": "d" * max(size - len(to_json(schema)), 0)}


def tools_of(count: int, size: int) -> tuple[ToolSpec, ...]:
    """Return this many definitions of this many bytes in total, as `offered_tools` counts them."""
    names = [PAY, *(f"tool_{number:04}_".ljust(64, "n") for number in range(1, count))]
    each = size // count - 700
    return tuple(
        a_spec(name, parameters=deep(min(40, each // 100), each), digest="d" * 64 if number % 2 else "")
        for number, name in enumerate(names)
    )


def begun_with(sizes: Sizes) -> AgentState:
    """Return the state of a prepared run with as much as it may start with."""
    share, letter = sizes.begin, sizes.letter
    schema = deep(40, int(share * (MAX_SCHEMA_BYTES - 100)))
    setup = a_setup(
        *tools_of(sizes.tools, int(share * 300_000)),
        config=LoopConfig(max_output_tokens=100_000),
        decisions={f"decision_{number}": _decision() for number in range(round(share * 5))},
        critics=tuple(Critic.model_validate({"name": f"critic-{n}", "person": {}}) for n in range(round(share * 20))),
        output_schema=schema,
    )
    run_input = AgentInput(
        task="t" + filled(letter, share * (MAX_TASK_BYTES - 10)),
        instructions=filled("i", share * MAX_TASK_BYTES),
        trusted_context={"known": filled(letter, share * (MAX_TRUSTED_BYTES - 100))},
        output_schema=schema,
        tools=tuple(tool.name for tool in setup.tools),
        tenant="n" * 200,
    )
    state = initial_state(run_input, f"delegated/{'k' * 200}", T0)
    left = BEGIN_BYTES - sum(begin_bytes(state, setup).values())
    setup = setup.model_copy(update={"instructions": filled(letter, max(left - 100, 0) * share)})
    assert size_problem(state, setup) == ""
    state = state.model_copy(update={"setup": setup, "forked_from": _elsewhere(letter)})
    return with_unpinned_server_taint(state)


def largest(sizes: Sizes) -> AgentState:
    """Return a state of these sizes as it is carried over. The held work is in `pending`."""
    state = _grown(_talked(begun_with(sizes), sizes), sizes)
    match sizes.held:
        case "calls":
            reply = proposing(sizes, PAY)
            return _held(state, reply.calls, sizes).model_copy(update={"pending": reply})
        case "answer":
            reply = normalised_reply(Reply.of(filled(sizes.letter, 300_000 * sizes.reply), blocks=_blocks(150_000)), ())
            call = ToolCall(call_id="(answer)", name="(answer)", arguments={"answer": reply.text})
            return _held(state, (call,), sizes).model_copy(update={"pending": reply})
        case "steps":
            return _stuck(state, sizes)
        case _:
            return state


def proposing(sizes: Sizes, tool: str) -> Reply:
    """Return the largest reply that is recorded, with all calls of this tool."""
    letter, share = sizes.letter, sizes.reply
    arguments = {"text": filled(letter, share * 200_000 / MAX_CALLS)}
    call_id = filled(letter, 200) or "c"
    calls = tuple(ToolCall(call_id=call_id, name=tool, arguments={"n": n, **arguments}) for n in range(MAX_CALLS))
    text = filled(letter, share * 280_000)
    texts = (text_part(text[at : at + 1 + len(text) // 300]) for at in range(0, len(text), 1 + len(text) // 300))
    parts = (part for three in zip_longest(_blocks(share * 20_000), calls, texts) for part in three if part)
    return normalised_reply(Reply(parts=tuple(parts)), ())


def _blocks(size: float) -> tuple[Block, ...]:
    return (block_part({"type": "thinking", "thinking": "b" * int(size * 0.9)}),)


def _decision() -> GroundedDecision:
    words = [f"{number}" + "w" * 98 for number in range(3)]
    return GroundedDecision.model_validate(
        {
            "fields": {f"field_{number}": {"enum": words} for number in range(10)},
            "facts": {"known": {"enum": words, "source": "tenant"}},
            "rules": [{"name": "r" * 100, "when": {}, "then": {f"out_{number}": words[1] for number in range(10)}}],
            "default": {f"out_{number}": words[0] for number in range(10)},
        }
    )


def _elsewhere(letter: str) -> ForkedFrom:
    return ForkedFrom(workflow_id=letter * 1_000, run_id="r" * 100, iteration=10**6)


def _talked(state: AgentState, sizes: Sizes) -> AgentState:
    """Return the state with messages of all kinds, ending with a reply and its results."""
    letter, share = sizes.letter, sizes.reply_part
    each = 90_000 // len(letter.encode())
    conversation = state.conversation
    for number in range(round(share * 10)):
        conversation = with_message(conversation, Message.of("user", f"{number}" + letter * each, pinned=True))
        conversation = conversation.model_copy(update={"unseen": 0})
    state = state.model_copy(update={"conversation": conversation, "iteration": 7})
    if not share:
        return state
    reply = proposing(sizes, PAY)
    outcomes = tuple(
        Outcome(call=call, status="ok", text=letter * 400_000, result=f"7.{index}")
        for index, call in enumerate(reply.calls)
    )
    state = observe.with_reply(state, reply, state.conversation)
    denied = [f"{PAY}{number}: {letter * 12_000}" for number in range(round(sizes.grown * 33))]
    state = observe.with_outcomes(state, reply, outcomes, denied, [f"{letter * 200}{each}" for each in denied])
    conversation = state.conversation
    for number in range(round(share * 400)):
        conversation = with_message(conversation, Message.of("user", f"[Guidance] {number}" + letter * 300))
    return state.model_copy(update={"conversation": conversation, "taint": taint_with_outcomes(state, outcomes)})


def _grown(state: AgentState, sizes: Sizes) -> AgentState:
    """Return the state with everything else that a run may collect."""
    letter, share, setup = sizes.letter, sizes.grown, state.setup
    if not share or setup is None:
        return state
    for number in range(round(share * 250)):
        call = ToolCall(call_id=f"l{number}", name=PAY, arguments={"n": number, "text": filled(letter, 5_000)})
        dead = DeadLetter(letter_id=f"7.{number}", call=call, key="k" * 64, error=letter * 500, at=T0)
        state = recovery.with_dead_letter(state, dead)
        state = _known(repeated_calls.with_failed_call(state, call, letter * 10_000, T0), call, letter)
    for index, tool in enumerate(setup.tools):
        for _ in range(4):
            state = dispatch.with_circuit_failure(state, tool, at(index), "K" * 40)
        state = recovery.with_model_retry_failure(state, tool.name)
        text = to_json({"text": filled(letter, 3_000)}).decode()
        state = recovery.with_succeeded_call(
            state, tool.with_output_schema({}), ToolCall(call_id="v", name=tool.name), text, T0
        )
    for name in setup.decisions:
        fields = {f"field_{number}": "2" + "w" * 98 for number in range(10)}
        arguments = {"decision": name, "fields": fields, "rationale": letter * 1_000}
        with_tenant = state.input.model_copy(update={"tenant": "1" + "w" * 98})
        made = decision.decision_of_call(
            state.model_copy(update={"input": with_tenant}), ToolCall(call_id="d", name="decide", arguments=arguments)
        )
        state = decision.with_decision(state, "7.0", *made)
    ids = tuple(f"{number:064}" for number in range(round(share * interventions.MAX_KEPT_IDS)))
    pauses = tuple(Intervention(kind="pause", id=each, by=letter * MAX_SENDER_CHARS) for each in ids)
    completions = {f"{number:032}": "d" * 16 for number in range(round(share * MAX_COMPLETIONS))}
    state = state.with_control(
        completions=completions, intervention_ids=ids, pauses=pauses[: interventions.MAX_KEPT_PAUSES]
    )
    for number in range(round(share * 450)):
        text = filled(letter, 40_000 * share)
        who = {} if number >= interventions.MAX_IDENTIFIED else {"id": f"{number:064}", "by": letter * MAX_SENDER_CHARS}
        guidance = interventions.intervention("add_context", ({**who, "text": text} if who else text,))
        state = interventions.with_guidance(state, guidance)
    cached = a_spec(PAY, recovery={"strategy": "cached_result"})
    state = recovery.with_succeeded_call(state, cached, ToolCall(call_id="k", name=PAY), letter * 20_000, T0)
    state = with_gathered_text(state, letter * 30_000)
    long = filled(letter, observe.MAX_OUTPUT_BYTES * share)
    return state.model_copy(
        update={
            "output": long,
            "data": {"answer": long},
            "partial": long,
            "repairs": 9,
            "critiques": {critic.name: 100 for critic in setup.critics},
            "extended": {"max_iterations": 10**6, "max_total_tokens": 10**12, "timeout_s": 31_536_000.0},
            "last": "l" * 310,
            "usage": state.usage.model_copy(update={"input_tokens": 10**18, "total_tokens": 10**18, "cost_usd": 1e300}),
            "paused": True,
            "notes": (),
        }
    )


def _known(state: AgentState, call: ToolCall, letter: str) -> AgentState:
    """Return the state after an operator gave the result of a step, without the text for the model."""
    asked = Question(question_id="w", kind="escalation", since=T0, text="?", data={"step_id": call_fingerprint(call)})
    given = Resolution(escalation_id="w", choice="result", result=letter * 3_000)
    reported = repeated_calls.with_resolved_repeated_call(
        state.model_copy(update={"conversation": Conversation()}), asked.with_resolution(given)
    )
    return reported.model_copy(update={"conversation": state.conversation})


def _held(state: AgentState, calls: Sequence[ToolCall], sizes: Sizes) -> AgentState:
    """Return the state in which these calls wait for people. Half of them have been decided."""
    letter = sizes.letter
    verdict = held_verdict(letter)
    items = [
        call_questions.approval_item(state, f"8.{n}", call, verdict, T0, occasion=str(n))
        for n, call in enumerate(calls)
    ]
    state = questions.with_question(state, call_questions.approval_question(items, "approval-8", T0), T0)
    for number, item in enumerate(items):
        if number % 2:
            text_part: dict[str, Any] = {"approval_id": item.approval_id, "approver": letter * 200}
            text_part["reason"] = letter * 2_000
            if number == 1:
                spare = len(json.dumps({"text": ""}))
                letters = (questions.MAX_CHANGED_CHARS - spare) // (len(json.dumps(letter)) - 2)
                text_part["arguments"] = {"text": letter * letters}
            state = questions.with_item_decision(state, ApprovalDecision.model_validate(text_part), number % 4 == 1, T0)
    return state.model_copy(update={"announced": ("approval-8",), "notes": ()})


def held_verdict(letter: str) -> Verdict:
    """Return a verdict that holds calls, with the longest text that a policy may give for each call of a reply."""
    terms = ApprovalTerms(approvers=tuple(f"{n}" + letter * 200 for n in range(10)))
    return Verdict(decision="approval", reason=letter * 2_000, approval=terms, version="v" * 500)


def _stuck(state: AgentState, sizes: Sizes) -> AgentState:
    """Return the state in which all calls of a reply are stuck steps. People gave the results of most."""
    letter = sizes.letter
    config = LoopConfig.model_validate({"step_iteration": {"max_reattempts": 1, "on_limit_reached": "escalate"}})
    assert state.setup is not None
    before = state
    state = state.model_copy(update={"setup": state.setup.model_copy(update={"config": config}), "steps": {}})
    for number in range(MAX_CALLS):
        call = ToolCall(call_id=f"s{number}", name=PAY, arguments={"n": f"s{number}", "text": letter * 5_000})
        state = repeated_calls.with_failed_call(state, call, letter * 10_000, T0)
    for number, question in enumerate(state.questions[1:]):
        text_part = {"result": letter * 16_000, "by": letter * 1_000, "reason": letter * 2_000}
        given = Resolution(escalation_id=question.question_id, choice="result", **text_part)
        state = questions.with_resolution(state, given, at(number))
    kept = {**before.steps, **state.steps}
    kept = dict(list(kept.items())[-repeated_calls.MAX_REPEATED_CALLS :])
    return state.model_copy(update={"setup": before.setup, "notes": (), "steps": kept})
