"""The phases of a goal: plan, execute, evaluate, compress, decide, ask, review. Each sets the next one in the state."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from orga.workflows.decisions import observe
from orga.workflows.decisions.control.questions import build_question
from orga.workflows.decisions.goals import prompts, pursue, review
from orga.workflows.decisions.goals.plans import calls_mismatch
from orga.workflows.decisions.tool_calls.calls import not_run_outcome
from orga.workflows.phases import act, gate
from orga.workflows.phases.control.ask_people import ask_for_answer
from orga.workflows.phases.control.run import ContinueAsNew, Interrupted
from orga.workflows.phases.control.visibility import enter_phase, pause_checkpoint, phase_span
from orga.workflows.phases.goals.goal_run import GoalRun, ask_goal_prompt, take_interventions
from orga.workflows.phases.knowledge import recall_context
from orga.workflows.phases.reason import ProposedReply, paused_reply
from orga.workflows.phases.recovery import resolve_repeated_calls
from orga.workflows.phases.review_stages import conclude_reply, pass_review_stages
from orga.workflows.types.goals.pursuit import GoalPhase, GoalState
from orga.workflows.types.goals.requests import GoalReply
from orga.workflows.types.questions import Question
from orga.workflows.types.state import AgentState
from orga.workflows.types.tool_calls.gate import PLAN, ProposedStep, Verdict


def _decide_by_rules(run: GoalRun, decide: Callable[[GoalState], GoalState | None]) -> bool:
    """Apply the result of `decide`, and return True if there is one, so that no model is asked."""
    decided = decide(run.goal)
    if decided is not None:
        run.change_goal(lambda _: decided)
    return decided is not None


async def _run_plan_phase(run: GoalRun) -> None:
    take_interventions(run, "planning")
    if _decide_by_rules(run, run.planner.plan):
        return
    await recall_context(run)
    if proposed := await ask_goal_prompt(run, "goal_plan", lambda state: prompts.plan_prompt(state, run.setup)):
        run.change_goal(pursue.with_plan, _goal_reply(proposed), run.setup)


async def _run_execute_phase(run: GoalRun) -> None:
    """Carry out all steps that are ready, as the calls of one reply, which pass gate and stages as usual."""
    proposed = paused_reply(run) or await _propose_round(run)
    if proposed is None:
        return None
    problem = _round_problem(run, proposed)
    if not problem:
        return await _execute_steps(run, proposed)
    reply = proposed.classified.reply
    run.change_state(observe.with_unjudged_reply, reply, tuple(not_run_outcome(call, problem) for call in reply.calls))
    return run.change_goal(pursue.with_unusable_reply, problem)


def _round_problem(run: GoalRun, proposed: ProposedReply) -> str:
    """Return why the reply cannot be carried out as the round that is due, or ""."""
    if proposed.classified.kind != "calls":
        return "make the calls of this round, whole"
    due, calls = run.goal.pursuit.due_steps, proposed.classified.reply.calls
    return calls_mismatch(calls, due, run.planned_calls, run.setup)


async def _propose_round(run: GoalRun) -> ProposedReply | None:
    """Choose the steps that are ready, and return a reply with a call for each. None if no round is due now.

    The model makes only calls that the plan lacks.
    """
    is_guided = take_interventions(run, "executing")
    run.change_goal(run.planner.round)
    due = run.goal.pursuit.due_steps
    if not due or (is_guided and _decide_by_rules(run, run.planner.reconsider)):
        return None
    unplanned = [step for step, call in zip(due, run.planned_calls, strict=True) if call is None]
    return await ask_goal_prompt(
        run,
        "goal_input",
        lambda state: prompts.input_prompt(state, unplanned or due, is_planned=not unplanned),
        lambda request: request.with_round(run.planned_calls),
    )


async def _execute_steps(run: GoalRun, proposed: ProposedReply) -> None:
    reply = proposed.classified.reply
    try:
        gated = await pass_gate(run, proposed)
    except Interrupted:
        run.change_state(observe.with_unjudged_reply, reply, tuple(not_run_outcome(call) for call in reply.calls))
        raise
    if gated.conclusion is not None:
        return conclude_reply(run, gated)
    outcomes = await act.execute_reply(run, gated, "executing")
    run.change_goal(pursue.with_round_outcomes, outcomes)
    run.change_goal(run.planner.keep_outputs, outcomes)
    return await resolve_repeated_calls(run)


async def pass_gate(run: GoalRun, proposed: ProposedReply) -> gate.GatedReply:
    """Return the reply after the gate and its stages. If it raises ContinueAsNew, the next segment judges the reply."""
    try:
        await pause_checkpoint(run, may_continue_as_new=True)
        enter_phase(run, "gating")
        with phase_span("gate", run.state.iteration):
            gated = await gate.judge_reply(run, proposed.classified)
        return await pass_review_stages(run, gated)
    except ContinueAsNew:
        run.change_state(AgentState.with_dialogue, pending=proposed.classified.reply)
        raise


async def _run_evaluate_phase(run: GoalRun) -> None:
    asked = pursue.steps_to_evaluate(run.goal.pursuit)
    if proposed := await ask_goal_prompt(run, "goal_evaluate", lambda state: prompts.evaluate_prompt(state, asked)):
        run.change_goal(pursue.with_evaluation, proposed.classified.reply)


async def _run_compress_phase(run: GoalRun) -> None:
    if proposed := await ask_goal_prompt(run, "goal_compress", prompts.compress_prompt):
        run.change_goal(pursue.with_compressed_memory, proposed.classified.reply)


async def _run_decide_phase(run: GoalRun) -> None:
    take_interventions(run, "deciding")
    if _decide_by_rules(run, run.planner.next):
        return
    if proposed := await ask_goal_prompt(run, "goal_decide", lambda state: prompts.decide_prompt(state, run.setup)):
        run.change_goal(pursue.with_decision, _goal_reply(proposed), run.setup)


async def _run_ask_phase(run: GoalRun) -> None:
    """Ask a person the model's question. Guidance that arrives counts as an answer, too."""

    def has_guidance() -> bool:
        return bool(run.state.inbox)

    answer = ""
    if not has_guidance():
        decided = await ask_for_answer(run, _goal_question(run), may_continue_as_new=True, is_moot=has_guidance)
        answer = decided.result if decided.choice == "result" else ""
    if not answer:
        answer = pursue.GUIDANCE_INSTEAD_TEXT if has_guidance() else pursue.NO_ANSWER_TEXT
    run.change_goal(pursue.with_person_answer, answer)


async def _run_review_phase(run: GoalRun) -> None:
    """Ask policy about the plan if the config wants it, or else wait until a person has decided about the plan."""
    if review.is_for_policy(run.goal):
        await pause_checkpoint(run, may_continue_as_new=True)
        enter_phase(run, "gating")
        with phase_span("gate", run.state.iteration):
            verdict = await _judge_plan(run, review.proposed_steps(run.goal))
        run.change_goal(review.with_plan_verdict, verdict)
        return
    asked = review.plan_question(run.goal)

    def is_moot() -> bool:
        return review.plan_question(run.goal) != asked

    decided = await ask_for_answer(run, _goal_question(run), may_continue_as_new=True, is_moot=is_moot)
    if is_moot():  # even if there is an answer, because it was about another plan
        return
    if decided.choice == "result":
        run.change_goal(review.with_review_answer, decided.result, run.setup)
    else:
        run.change_goal(review.with_unapproved_plan, decided)


async def _judge_plan(run: GoalRun, plan: tuple[ProposedStep, ...]) -> Verdict:
    """Return the gate's verdict on a goal's plan. Raise Interrupted if the run ends before there is one."""
    tools = (run.setup.tool(name) for name in dict.fromkeys(step.skill for step in plan))
    specs = tuple(tool for tool in tools if tool is not None)
    request = gate.gate_request(run, (), (PLAN,), "plan").with_plan(plan, specs)
    return (await gate.ask_for_verdicts(run, request, run.is_interrupted))[0]


def _goal_question(run: GoalRun) -> Question:
    pursuit = run.goal.pursuit
    terms: dict[str, Any] = pursuit.terms.model_dump() if pursuit.terms else {}
    return build_question(str(pursuit.questions), pursuit.question, run.now, **terms)


def _goal_reply(proposed: ProposedReply) -> GoalReply:
    reply = proposed.classified.reply
    return reply if isinstance(reply, GoalReply) else GoalReply.model_validate(dict(reply))


GOAL_PHASES: Mapping[GoalPhase, Callable[[GoalRun], Awaitable[None]]] = {
    "plan": _run_plan_phase,
    "execute": _run_execute_phase,
    "evaluate": _run_evaluate_phase,
    "compress": _run_compress_phase,
    "decide": _run_decide_phase,
    "ask": _run_ask_phase,
    "review": _run_review_phase,
}
"""All phases but the summary, which ends the goal: see `phases/goals/ending.py`."""
