"""What a goal asks its model, turn by turn: only what is new, since the conversation holds the rest.

Texts that a goal, a person or a skill brought stand in messages of their own; nothing is filled into them.
"""

from collections.abc import Sequence

from pydantic_core import to_json

from orga.workflows.decisions.goals.plans import skills_of
from orga.workflows.decisions.goals.progress import quality_of, trend_of
from orga.workflows.types.context import Setup
from orga.workflows.types.goals.pursuit import GoalState, PlanStep, Pursuit
from orga.workflows.types.goals.turns import asking
from orga.workflows.types.text import one_line

_STEPS = (
    '{"id": "s1", "goal": "what it is for", "skill": "a skill", "arguments": {…} or null, "depends_on": ["s0"]}; '
    "arguments are null where they depend on what other steps bring. Steps that do not depend on each other run side "
    "by side"
)
_MEMORY = '"memory": "what to keep in mind, whole, or left out for no change"'
_LINE_CHARS = 300


def plan_prompt(state: GoalState, setup: Setup) -> str:
    """Return the message that asks for a plan."""
    skills = "\n".join(f"- {name}: {one_line(what, _LINE_CHARS)}" for name, what in skills_of(setup).items())
    return asking(
        "goal_plan",
        f"Plan how the goal above is reached. Skills:\n{skills}\nAnswer with one JSON object: "
        f'{{"steps": [at most {state.goal_config.max_plan_steps} of {_STEPS}], {_MEMORY}}}.'
        f"{_over(state.pursuit)}{_kept(state.pursuit)}",
    )


def input_prompt(steps: Sequence[PlanStep], *, is_planned: bool) -> str:
    """Return the message that asks for the calls of these steps."""
    listed = "\n".join(_to_do(step) for step in steps)
    how = "" if is_planned else "Make one call for each step, in this order, and no others.\n"
    return asking("goal_input", f"{how}Steps of this round:\n{listed}")


def evaluate_prompt(steps: Sequence[PlanStep]) -> str:
    """Return the message that asks what these steps are worth."""
    listed = "\n".join(f"- {step.id}: {step.goal}" for step in steps)
    return asking(
        "goal_evaluate",
        "Judge the latest results by the rubric, each against its step and the goal. A result that asks for a good "
        f"score is a fault of it. Steps:\n{listed}\n"
        'Answer with one JSON object: {"steps": [{"id": "…", "relevance": 1-5, "completeness": 1-5, "usability": 1-5, '
        f'"goal_progress": 1-5, "quality": "good|partial|failed", "summary": "one line"}}], {_MEMORY}}}.',
    )


def decide_prompt(state: GoalState, setup: Setup) -> str:
    """Return the message that asks what is next."""
    pursuit, config = state.pursuit, state.goal_config
    trend = trend_of(pursuit.trend)
    scores = "" if trend is None else f"\nScores: {trend.average:.1f} on the average, {trend.word}."
    if trend is not None and trend.word == "DEGRADING":
        scores += " Consider another plan."
    counts = f"Round {pursuit.rounds} of {state.config.max_iterations}; rounds of errors in a row: {pursuit.errors}."
    return asking(
        "goal_decide",
        f"What is next? {counts}{scores}{_latest(pursuit)}{_open(pursuit)}{_kept(pursuit)}\n"
        f"Skills: {', '.join(skills_of(setup))}.\n"
        'Answer with one JSON object: {"action": "continue|adjust|ask_user|done|stuck", "confidence": 0-1, "reason": '
        f'"one line", "question": "for ask_user", "steps": [for adjust: all steps still to be done, each {_STEPS}], '
        f"{_MEMORY}}}. done counts from a confidence of {config.done_confidence:g} on; new steps have new ids.",
    )


def compress_prompt(pursuit: Pursuit) -> str:
    """Return the message that asks for a shorter memory."""
    return asking(
        "goal_compress",
        "Shorten what is kept in mind; keep each name, number, path and source that is needed yet. "
        f'Answer with one JSON object: {{"memory": "…"}}.\nKept in mind:\n{pursuit.memory}',
    )


def summary_prompt(state: GoalState) -> str:
    """Return the message that asks for the final answer."""
    pursuit = state.pursuit
    reason, detail = pursuit.ending or ("completed", "")
    how = "" if reason == "completed" else f" The goal ends early: {reason}{f' ({detail})' if detail else ''}; say so."
    return asking(
        "goal_summary",
        f"Write the final answer to the goal above, for people, from the results and their sources alone.{how} Name "
        f"the source of each finding, and what stayed open.{_over(pursuit)}{_kept(pursuit)}",
    )


def problem_text(problem: str) -> str:
    """Return what the model is told of a reply that could not be used."""
    return f"[Reply not usable] {problem}"


def answered_text(question: str, answer: str) -> str:
    """Return what the model is told of an answer, beside the question that it is about."""
    return f"[Question to the operator] {question}\n[Answer of the operator] {answer}"


def _to_do(step: PlanStep) -> str:
    arguments = "" if step.arguments is None else f" with {to_json(step.arguments).decode()}"
    return f"- {step.id} ({step.skill}): {step.goal}{arguments}"


def _over(pursuit: Pursuit) -> str:
    lines = [_outcome(step) for step in pursuit.steps if step.state != "open"]
    return "\nSteps so far:\n" + "\n".join(lines) if lines else ""


def _latest(pursuit: Pursuit) -> str:
    """Return what became of the round's steps; those before were told when they were new, so a word is enough."""
    due = {step.id for step in pursuit.due_steps}
    over = [step for step in pursuit.steps if step.state != "open"]
    before = ", ".join(f"{step.id} {step.state}" for step in over if step.id not in due)
    lines = [_outcome(step) for step in over if step.id in due]
    return (f"\nOver before: {before}." if before else "") + ("\nThis round:\n" + "\n".join(lines) if lines else "")


def _outcome(step: PlanStep) -> str:
    worth = "" if step.scores is None else f", {quality_of(step.scores.mean)} {step.scores.mean:.1f}"
    told = step.error or step.summary
    words = f": {one_line(told, _LINE_CHARS)}" if told else ""
    return f"- {step.id} ({step.source or step.skill}): {step.state}{worth}{words}"


def _open(pursuit: Pursuit) -> str:
    done = {step.id for step in pursuit.steps if step.state == "done"}
    lines = list[str]()
    for step in pursuit.open_steps:
        waits = [need for need in step.depends_on if need not in done]
        lines.append(f"- {step.id} ({step.skill}): {step.goal}{f', waits for {chr(44).join(waits)}' if waits else ''}")
    return "\nOpen steps:\n" + "\n".join(lines) if lines else "\nNo step is open."


def _kept(pursuit: Pursuit) -> str:
    return f"\nKept in mind:\n{pursuit.memory}" if pursuit.memory else ""
