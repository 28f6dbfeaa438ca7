"""The pursuit of a goal: its state after each reply of the model, and after the outcomes of each round."""

from collections.abc import Sequence
from typing import Any

from orga.workflows.decisions.conversation import with_message_to_model, with_recorded_reply
from orga.workflows.decisions.goals.plans import due_step_calls, ready_steps, with_values
from orga.workflows.decisions.goals.progress import (
    MAX_ADJUSTS,
    MAX_REPEATED_ROUNDS,
    TREND_ROUNDS,
    UNFINISHED_STOPS,
    decision_by_rules,
    quality_from_mean,
    result_confidence,
    round_signature,
    steps_data,
    with_ending,
    with_ending_if_stuck,
    with_steps,
    with_unusable_reply,
    without_plan,
)
from orga.workflows.decisions.goals.replies import (
    GoalDecision,
    UnusableReply,
    bounded_line,
    lost_names,
    parsed_evaluations,
    parsed_goal_decision,
    parsed_memory,
    reply_object,
)
from orga.workflows.decisions.goals.review import with_plan_to_review
from orga.workflows.decisions.limits import with_thinking_cut
from orga.workflows.types.control import Stop
from orga.workflows.types.conversation import Conversation, call_source
from orga.workflows.types.goals.pursuit import (
    MAX_KEPT_STEPS,
    MAX_MEMORY_CHARS,
    MAX_SUMMARY_CHARS,
    OPERATOR,
    GoalState,
    PlanStep,
    Pursuit,
)
from orga.workflows.types.goals.requests import GoalReply, steps_in_reply
from orga.workflows.types.messages import Reply
from orga.workflows.types.names import PLANNED_MODEL
from orga.workflows.types.setup import Setup
from orga.workflows.types.text import one_line
from orga.workflows.types.tool_calls.recovery import Outcome

MAX_SHOWN_LOST_NAMES = 5

NO_ANSWER_TEXT = "(no answer; continue without one)"
GUIDANCE_INSTEAD_TEXT = "(none; the operator's guidance follows instead)"

COMPRESS_EVERY = 3
COMPRESS_BYTES = 500
"""Bytes. After every third round, a longer memory is shortened."""


def with_counted_reply(state: GoalState, reply: Reply, conversation: Conversation) -> GoalState:
    """Count an iteration and its usage. The model has seen all of `conversation`. A planned reply has no usage."""
    state = state.with_control(iteration=state.iteration + 1).with_dialogue(conversation=conversation)
    if reply.model == PLANNED_MODEL:
        return state
    return with_thinking_cut(state, reply).with_usage_of(reply)


def with_reply_message(state: GoalState, reply: Reply) -> GoalState:
    return with_recorded_reply(state, reply) if reply.text.strip() else state


def with_plan(state: GoalState, reply: GoalReply, setup: Setup) -> GoalState:
    state = with_reply_message(state, reply)
    try:
        answer = reply_object(reply, "goal_plan")
        refusal = "" if steps_in_reply(answer) else bounded_line(answer.get("error"), 300)
        if refusal and not state.pursuit.open_steps_of_people:
            return with_ending(state, Stop("stuck", f"no plan reaches the goal: {refusal}"))
        after = without_plan(state) if refusal else _with_reply_plan(state, steps_in_reply(answer), reply, setup)
    except UnusableReply as error:
        return with_unusable_reply(state, str(error))
    memory = parsed_memory(answer, state.pursuit.memory)
    after = with_plan_to_review(after.with_pursuit(memory=memory))
    return after.with_note("PlanMade", steps=steps_data(after.pursuit.open_steps))


def _with_reply_plan(state: GoalState, listed: object, reply: GoalReply, setup: Setup) -> GoalState:
    after = with_steps(state, listed, setup)
    if reply.problems:
        raise UnusableReply("; ".join(reply.problems))
    return after


def with_round(state: GoalState) -> GoalState:
    """Return the state with the next round: all steps that are ready. They run in parallel."""
    pursuit = state.pursuit
    if not pursuit.open_steps:
        return state.with_pursuit(stage="decide", due=())
    due = ready_steps(pursuit.steps, state.goal_config.max_parallel_steps)
    if not due:
        return state.with_pursuit(stage="decide", due=(), is_guided=True)
    return state.with_pursuit(due=tuple(step.id for step in due))


def with_round_postponed(state: GoalState) -> GoalState | None:
    """Return the state that decides again before the due steps, or None if the model is asked before them anyway."""
    is_planned = all(call is not None for call in due_step_calls(state))
    return state.with_pursuit(stage="decide", due=()) if is_planned else None


def with_round_outcomes(state: GoalState, outcomes: Sequence[Outcome]) -> GoalState:
    pursuit, due = state.pursuit, list(zip(state.pursuit.due_steps, outcomes, strict=True))
    ended = [_ended_step(state, step, outcome, index) for index, (step, outcome) in enumerate(due)]
    done = {step.id: _step_value(state, outcome) for step, outcome in due if outcome.status == "ok"}
    ended_ids = {step.id for step in ended}
    open_steps = [with_values(step, done) for step in pursuit.open_steps if step.id not in ended_ids]
    state = state.with_pursuit(
        rounds=pursuit.rounds + 1,
        steps=pursuit.with_steps([*ended, *open_steps]).steps,
        errors=0 if done else pursuit.errors + 1,
        unusable=0,
        recent=(*pursuit.recent, round_signature([outcome.call for outcome in outcomes]))[-MAX_REPEATED_ROUNDS:],
        stage="evaluate" if done else "decide",
    )
    for step, outcome in zip(ended, outcomes, strict=True):
        error = {"error": step.error} if step.error else {}
        state = state.with_note(
            "StepExecuted", step=step.id, skill=step.skill, place=step.place, status=outcome.status, **error
        )
    return state


def _ended_step(state: GoalState, step: PlanStep, outcome: Outcome, index: int) -> PlanStep:
    is_done = outcome.status == "ok"
    return step.with_fields(
        state="done" if is_done else "failed",
        arguments=None,
        attempts=step.attempts + 1,
        call_id=outcome.call.call_id,
        place=f"{state.iteration}.{index}",
        source=call_source(outcome.call, state.tool(outcome.call.name)),
        error="" if is_done else one_line(outcome.text, MAX_SUMMARY_CHARS),
    )


def _step_value(state: GoalState, outcome: Outcome) -> Any:
    """Return the value of a good result, or None. A result from elsewhere, such as a fallback, has none."""
    spec = state.tool(outcome.call.name)
    if spec is None or outcome.by:
        return None
    return spec.value_in(outcome.tool_text)


def steps_to_evaluate(pursuit: Pursuit) -> tuple[PlanStep, ...]:
    return tuple(step for step in pursuit.due_steps if step.state == "done")


def with_evaluation(state: GoalState, reply: Reply) -> GoalState:
    """Add the scores of this round's steps, or feedback for the model if its evaluation is unusable."""
    state = with_reply_message(state, reply)
    pursuit, steps = state.pursuit, steps_to_evaluate(state.pursuit)
    try:
        answer = reply_object(reply, "goal_evaluate")
        evaluations = parsed_evaluations(answer, tuple(step.id for step in steps))
    except UnusableReply as error:
        return with_unusable_reply(state, str(error))
    means = [evaluations[step.id].scores.mean for step in steps]
    qualities = [quality_from_mean(mean) for mean in means]
    judged = [
        step.with_fields(
            state="failed" if quality == "failed" else "done",
            scores=evaluations[step.id].scores,
            label=evaluations[step.id].label,
            summary=evaluations[step.id].summary,
        )
        for step, quality in zip(steps, qualities, strict=True)
    ]
    memory = parsed_memory(answer, pursuit.memory)
    is_long = len(memory.encode()) > COMPRESS_BYTES and pursuit.rounds % COMPRESS_EVERY == 0
    state = state.with_pursuit(
        steps=pursuit.with_steps(judged).steps,
        bad=pursuit.bad + 1 if set(qualities) == {"failed"} else 0,
        unusable=0,
        trend=(*pursuit.trend, round(sum(means) / len(means), 4))[-TREND_ROUNDS:],
        memory=memory,
        stage="compress" if is_long else "decide",
    )
    for step, mean, quality in zip(judged, means, qualities, strict=True):
        state = state.with_note("StepEvaluated", step=step.id, score=round(mean, 3), quality=quality, label=step.label)
    return state


def with_compressed_memory(state: GoalState, reply: Reply) -> GoalState:
    """Replace the memory by the reply's, unless that one is not shorter, or lacks names that the old one has."""
    state, before = with_reply_message(state, reply), state.pursuit.memory
    try:
        memory = bounded_line(reply_object(reply, "goal_compress").get("memory"), MAX_MEMORY_CHARS)
    except UnusableReply:
        memory = ""
    is_shorter = bool(memory) and len(memory.encode()) < len(before.encode())
    lost = lost_names(before, memory) if is_shorter else []
    is_taken = is_shorter and not lost
    data: dict[str, object] = {"before": len(before.encode()), "after": len(memory.encode()), "taken": is_taken}
    data |= {"lost": lost[:MAX_SHOWN_LOST_NAMES]} if lost else {}
    kept = memory if is_taken else before
    return state.with_pursuit(memory=kept, stage="decide").with_note("MemoryCompressed", **data)


def with_decision_by_rules(state: GoalState) -> GoalState | None:
    """Return the state with the next action if no model is needed, else None."""
    pursuit = state.pursuit
    is_step_of_person_ready = any(step.by == OPERATOR for step in ready_steps(pursuit.steps, MAX_KEPT_STEPS))
    action = "continue" if is_step_of_person_ready else decision_by_rules(pursuit, state.goal_config)
    if action is None:
        return None
    if action == "stuck":
        state = with_ending_if_stuck(state)
    elif action == "done":
        state = with_ending(state, Stop("completed"))
    else:
        state = state.with_pursuit(stage="execute", adjusted=0)
    return state.with_note("DecisionMade", action=action, by="operator" if is_step_of_person_ready else "rule")


def with_decision(state: GoalState, reply: GoalReply, setup: Setup) -> GoalState:
    state = with_reply_message(state, reply)
    try:
        answer = reply_object(reply, "goal_decide")
        decision = parsed_goal_decision(answer)
        after = _with_action(state, decision, reply, setup)
    except UnusableReply as error:
        return with_unusable_reply(state, str(error))
    unusable = after.pursuit.unusable if decision.action == "adjust" else 0
    after = after.with_pursuit(memory=parsed_memory(answer, state.pursuit.memory), unusable=unusable, is_guided=False)
    data = {"action": decision.action, "confidence": round(decision.confidence, 3), "reason": decision.reason}
    after = after.with_note("DecisionMade", by="model", **data)
    if decision.action == "adjust":
        after = with_ending_if_stuck(after.with_note("PlanAdjusted", steps=steps_data(after.pursuit.open_steps)))
    return after


def _with_action(state: GoalState, decision: GoalDecision, reply: GoalReply, setup: Setup) -> GoalState:
    config, can_go_on = state.goal_config, bool(ready_steps(state.pursuit.steps, 1))
    is_sure = decision.confidence >= config.done_confidence
    ended_as = {step.state for step in state.pursuit.steps if step.state != "open"}
    is_in_vain = ended_as == {"failed"} and not state.pursuit.is_answered
    if decision.action == "done" and is_sure and is_in_vain:
        raise UnusableReply("done: every step failed, so the goal is not reached; adjust the plan, or be stuck")
    if decision.action == "adjust":
        count = state.pursuit.adjusted + 1 if is_sure else 0
        after = with_plan_to_review(_with_reply_plan(state, decision.steps, reply, setup))
        return after.with_pursuit(adjusted=min(count, MAX_ADJUSTS))
    state = state.with_pursuit(adjusted=0)
    match decision.action:
        case "ask_user":
            return state.with_pursuit(stage="ask", question=decision.question, questions=state.pursuit.questions + 1)
        case "stuck":
            return with_ending(state, Stop("stuck", decision.reason or "the model sees no way on"))
        case "done" if is_sure:
            return with_ending(state.with_pursuit(confidence=decision.confidence), Stop("completed"))
        case "done" if not can_go_on:
            raise UnusableReply(
                f"done counts from a confidence of {config.done_confidence:g}; adjust the plan, or be stuck"
            )
        case _ if not can_go_on:
            raise UnusableReply("continue: no open step can be done now; adjust the plan, or end by done or stuck")
        case _:
            return state.with_pursuit(stage="execute")


def person_answer_text(question: str, answer: str) -> str:
    return f"[Question to the operator] {question}\n[Answer of the operator] {answer}"


def with_person_answer(state: GoalState, text: str) -> GoalState:
    """Add a person's answer. The model decides again with it."""
    state = with_message_to_model(state, person_answer_text(state.pursuit.question, text))
    is_answered = state.pursuit.is_answered or text != NO_ANSWER_TEXT
    return state.with_pursuit(stage="decide", question="", is_guided=True, is_answered=is_answered)


def with_guidance_seen(state: GoalState) -> GoalState:
    """Return the state with new guidance. No rule decides before the model has seen it.

    An ending that is no limit is withdrawn, even while its answer is written. After `stuck`, all streaks end.
    """
    pursuit, state = state.pursuit, state.with_pursuit(is_guided=True)
    ending = pursuit.ending if pursuit.stage == "summarise" else None
    if ending is None or ending.reason not in UNFINISHED_STOPS:
        return state
    if ending.reason == "stuck":
        state = state.with_pursuit(errors=0, bad=0, unusable=0, adjusted=0, recent=())
    return state.with_pursuit(stage="decide" if pursuit.steps else "plan", ending=None)


def goal_confidence(state: GoalState) -> float:
    """Return the confidence in the goal's result. For drafts it is the best score of the critic."""
    scores = state.pursuit.course.scores if state.pursuit.course is not None else ()
    return round(max(scores), 3) if scores else result_confidence(state.pursuit.steps, state.pursuit.confidence)
