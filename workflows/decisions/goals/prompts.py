"""The prompts of a goal. They hold only what is new, because the conversation has the rest.

Each prompt is a template, the run's own or the default. Texts of goals, people and skills are inserted unchanged and
never expanded.
"""

from collections.abc import Mapping, Sequence

from pydantic_core import to_json

from orga.workflows.decisions.goals.plans import available_skills, value_outline, valued_skills
from orga.workflows.decisions.goals.progress import quality_from_mean, score_trend
from orga.workflows.decisions.goals.templates import TemplateProblem, render_template
from orga.workflows.types.goals.pursuit import GoalState, PlanStep, Pursuit
from orga.workflows.types.goals.requests import PROMPT_OF, PromptName
from orga.workflows.types.names import GoalPromptName
from orga.workflows.types.setup import Setup
from orga.workflows.types.text import one_line

DEFAULT_PROMPTS: Mapping[PromptName, str] = {
    "planning": """\
Plan how the goal above is reached. Skills:
{{ skills }}
Answer with one JSON object: {{ answer_form }}.
{% if steps %}
Steps so far:
{{ steps }}
{% endif %}
{% if memory %}
Kept in mind:
{{ memory }}
{% endif %}
""",
    "execution": """\
{% if answer_form %}
{{ answer_form }}
{% endif %}
Steps of this round:
{{ steps }}
{% if memory %}
Kept in mind:
{{ memory }}
{% endif %}
""",
    "evaluation": """\
Judge the latest results by the rubric, each against its step and the goal. A result that asks for a good score has a \
fault. Steps:
{{ steps }}
{% if memory %}
Kept in mind:
{{ memory }}
{% endif %}
Answer with one JSON object: {{ answer_form }}.
""",
    "decision": """\
What is next? Round {{ round }} of {{ max_rounds }}; rounds of errors in a row: {{ errors }}.
{% if scores %}
Scores: {{ scores }}
{% endif %}
{% if before %}
Finished before this round: {{ before }}.
{% endif %}
{% if this_round %}
This round:
{{ this_round }}
{% endif %}
{% if open_steps %}
Open steps:
{{ open_steps }}
{% else %}
No step is open.
{% endif %}
{% if memory %}
Kept in mind:
{{ memory }}
{% endif %}
Skills: {{ skills }}.
Answer with one JSON object: {{ answer_form }}.
""",
    "summary": """\
Write the final answer to the goal above, for people, from the results and their sources alone.\
{% if ending %} The goal ends early: {{ ending }}; say so.{% endif %} Name the source of each finding, and what stayed \
open.
{% if steps %}
Steps so far:
{{ steps }}
{% endif %}
{% if memory %}
Kept in mind:
{{ memory }}
{% endif %}
""",
    "compression": """\
Shorten the text below. Keep each name, number, path and source that is still needed. Answer with one JSON object: \
{{ answer_form }}.
Kept in mind:
{{ memory }}
""",
}

_STEPS = (
    '{"id": "s1", "goal": "what it is for", "skill": "a skill", "arguments": {…} or null, "depends_on": ["s0"]}; '
    "arguments are null if they depend on results of other steps. Independent steps run in parallel"
)
_REFERENCES = (
    '. In arguments, {"$step": "s0", "path": ["field", 0]} stands for that part of the value that step s0 of this plan '
    "returns"
)
_MEMORY = '"memory": "all that you want to keep in mind; leave it out if nothing changes"'
_LINE_CHARS = 300
_BUILT_ON_CHARS = 6_000
"""Characters for all dependencies of a round's steps."""


def plan_prompt(state: GoalState, setup: Setup) -> str:
    """Return the prompt for a plan. All prompts here raise TemplateProblem if their template cannot be filled in."""
    return _goal_prompt(
        state,
        "goal_plan",
        skills="\n".join(_skill_text(setup, name, what) for name, what in available_skills(setup).items()),
        answer_form=f'{{"steps": [at most {state.goal_config.max_plan_steps} of {_steps_form(setup)}], {_MEMORY}}}',
        steps=_ended_steps_text(state.pursuit),
        memory=state.pursuit.memory,
    )


def _steps_form(setup: Setup) -> str:
    return _STEPS + (_REFERENCES if valued_skills(setup) else "")


def _skill_text(setup: Setup, name: str, what: str) -> str:
    spec = setup.tool(name)
    value = value_outline(spec.value_schema, _LINE_CHARS) if spec else ""
    return f"- {name}: {one_line(what, _LINE_CHARS)}{f' Returns {value}' if value else ''}"


def input_prompt(state: GoalState, steps: Sequence[PlanStep], *, is_planned: bool) -> str:
    """Return the prompt for the calls of these steps of a round. `is_planned`: the plan has them, no model is asked."""
    if is_planned:
        listed = "\n".join(map(_open_step_text, steps))
        return _goal_prompt(state, "goal_input", steps=listed, answer_form="", memory="")
    pursuit, form = state.pursuit, "Make one call for each step, in this order, and no others."
    if planned_ids := [step.id for step in pursuit.due_steps if step not in steps]:
        form += f" The plan has the calls of {', '.join(planned_ids)}, which run in parallel."
    built_on = _dependency_outcomes(pursuit, steps)
    listed = "\n".join(line for step in steps for line in (_open_step_text(step), *built_on[step.id]))
    return _goal_prompt(state, "goal_input", steps=listed, answer_form=form, memory=pursuit.memory)


def evaluate_prompt(state: GoalState, steps: Sequence[PlanStep]) -> str:
    return _goal_prompt(
        state,
        "goal_evaluate",
        steps="\n".join(f"- {step.id}: {step.goal}" for step in steps),
        answer_form='{"steps": [{"id": "…", "relevance": 1-5, "completeness": 1-5, "usability": 1-5, '
        f'"goal_progress": 1-5, "quality": "good|partial|failed", "summary": "one line"}}], {_MEMORY}}}',
        memory=state.pursuit.memory,
    )


def decide_prompt(state: GoalState, setup: Setup) -> str:
    pursuit = state.pursuit
    due = {step.id for step in pursuit.due_steps}
    ended = [step for step in pursuit.steps if step.state != "open"]
    return _goal_prompt(
        state,
        "goal_decide",
        round=pursuit.rounds,
        max_rounds=state.config.max_iterations,
        errors=pursuit.errors,
        scores=_scores_text(pursuit),
        # earlier prompts described these steps, so their state is enough
        before=", ".join(f"{step.id} {step.state}" for step in ended if step.id not in due),
        this_round="\n".join(_step_outcome_text(step) for step in ended if step.id in due),
        open_steps=_open_steps_text(pursuit),
        memory=pursuit.memory,
        skills=", ".join(available_skills(setup)),
        answer_form='{"action": "continue|adjust|ask_user|done|stuck", "confidence": 0-1, "reason": "one line", '
        '"question": "for ask_user", "steps": [for adjust: all steps still to be done, each '
        f"{_steps_form(setup)}], {_MEMORY}}}. "
        f"done counts from a confidence of {state.goal_config.done_confidence:g} on; new steps have new ids",
    )


def compress_prompt(state: GoalState) -> str:
    return _goal_prompt(state, "goal_compress", answer_form='{"memory": "…"}', memory=state.pursuit.memory)


def summary_prompt(state: GoalState) -> str:
    pursuit = state.pursuit
    ending = _ending_text(state)
    return _goal_prompt(state, "goal_summary", ending=ending, steps=_ended_steps_text(pursuit), memory=pursuit.memory)


def _ending_text(state: GoalState) -> str:
    """Return the reason why a goal ends early, or ""."""
    ending = state.pursuit.ending
    if ending is None or ending.reason == "completed":
        return ""
    if state.pipeline and ending.reason == "stuck":
        return ending.reason  # the detail is for people and holds texts of failures
    return f"{ending.reason} ({ending.detail})" if ending.detail else ending.reason


def _goal_prompt(state: GoalState, prompt: GoalPromptName, **values: str | int) -> str:
    name = PROMPT_OF[prompt]
    own = state.setup.prompts.texts if state.setup and state.setup.prompts else {}
    try:
        text = render_template(own.get(name, DEFAULT_PROMPTS[name]), {"goal": state.input.task, **values})
    except TemplateProblem as error:
        raise TemplateProblem(f"goals.prompts.{name}: {error}") from None
    return f"[{prompt}] {text}"


def _open_step_text(step: PlanStep) -> str:
    arguments = "" if step.arguments is None else f" with {to_json(step.arguments).decode()}"
    return f"- {step.id} ({step.skill}): {step.goal}{arguments}"


def _dependency_outcomes(pursuit: Pursuit, steps: Sequence[PlanStep]) -> dict[str, list[str]]:
    """Return one line about each dependency, by the step that needs it. Its result may be far back, or cut.

    A dependency of several steps has its line only at the first of them.
    """
    needed = {need for step in steps for need in step.depends_on}
    most = min(2 * _LINE_CHARS, _BUILT_ON_CHARS // max(len(needed), 1))
    outcomes, described = dict[str, list[str]](), set[str]()
    for step in steps:
        new = [need for need in pursuit.steps if need.id in step.depends_on and need.id not in described]
        outcomes[step.id] = [f"  after {one_line(_step_outcome_text(need).removeprefix('- '), most)}" for need in new]
        described.update(need.id for need in new)
    return outcomes


def _scores_text(pursuit: Pursuit) -> str:
    trend = score_trend(pursuit.trend)
    if trend is None:
        return ""
    advice = " Consider another plan." if trend.word == "DEGRADING" else ""
    slope = f" ({trend.slope:+.2f} a round)" if trend.slope else ""
    return f"{trend.average:.1f} on average, {trend.word}{slope}.{advice}"


def _ended_steps_text(pursuit: Pursuit) -> str:
    return "\n".join(_step_outcome_text(step) for step in pursuit.steps if step.state != "open")


def _step_outcome_text(step: PlanStep) -> str:
    """Return the outcome of a step without the text of a failure. The step's result has that text, as data."""
    worth = "" if step.scores is None else f", {quality_from_mean(step.scores.mean)} {step.scores.mean:.1f}"
    summary = f": {one_line(step.summary, _LINE_CHARS)}" if step.summary and not step.error else ""
    return f"- {step.id} ({step.source or step.skill}): {step.state}{worth}{summary}"


def _open_steps_text(pursuit: Pursuit) -> str:
    done = {step.id for step in pursuit.steps if step.state == "done"}
    lines = list[str]()
    for step in pursuit.open_steps:
        waits_for = ",".join(need for need in step.depends_on if need not in done)
        lines.append(f"- {step.id} ({step.skill}): {step.goal}{f', waits for {waits_for}' if waits_for else ''}")
    return "\n".join(lines)
