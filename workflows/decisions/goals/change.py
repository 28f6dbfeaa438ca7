"""Changes of a goal that several places need: a message to its model, a new plan, an unusable reply, an ending."""

from __future__ import annotations

from collections.abc import Sequence

from orga.workflows.decisions.conversation import with_message
from orga.workflows.decisions.goals.plans import available_agents, available_skills, parsed_plan, valued_skills
from orga.workflows.decisions.goals.progress import stuck_reason
from orga.workflows.types.control import Stop
from orga.workflows.types.goals.pursuit import MAX_KEPT_STEPS, GoalState, PlanStep
from orga.workflows.types.messages import UNUSABLE_MARKER, Message
from orga.workflows.types.setup import Setup
from orga.workflows.types.text import one_line

MAX_PROBLEM_CHARS = 300
"""Characters of the last reply's problem in the reason of an ending."""


def with_message_to_model(state: GoalState, text: str) -> GoalState:
    return state.with_dialogue(conversation=with_message(state.conversation, Message.of(role="user", text=text)))


def without_plan(state: GoalState) -> GoalState:
    """Return the state without open steps, except those that a person has added."""
    finished = tuple(step for step in state.pursuit.steps if step.state != "open")[-MAX_KEPT_STEPS:]
    return state.with_pursuit(steps=(*finished, *state.pursuit.open_steps_of_people), due=())


def with_steps(state: GoalState, listed: object, setup: Setup) -> GoalState:
    """Replace all open steps, except those of a person. Raise UnusableReply with all problems of the new steps."""
    rest = without_plan(state)
    most = state.goal_config.max_plan_steps
    before, skills = rest.pursuit.steps, available_skills(setup)
    steps = parsed_plan(listed, skills, most, before, agents=available_agents(setup), valued=valued_skills(setup))
    longest = max(state.pursuit.longest, len(steps) + len(rest.pursuit.open_steps))
    return rest.with_pursuit(steps=(*before, *steps), longest=longest)


def with_unusable_reply(state: GoalState, problem: str) -> GoalState:
    """Tell the model what was wrong with its reply. Too many in a row end the goal."""
    after = state.with_pursuit(unusable=state.pursuit.unusable + 1)
    after = with_message_to_model(after, f"{UNUSABLE_MARKER}{problem}")
    return with_ending_if_stuck(after, problem)


def with_ending_if_stuck(state: GoalState, problem: str = "") -> GoalState:
    """End the goal if it makes no progress. `problem` is what was wrong with the last reply."""
    why = stuck_reason(state.pursuit, state.goal_config, one_line(problem, MAX_PROBLEM_CHARS))
    return with_ending(state, ("stuck", why)) if why else state


def with_ending(state: GoalState, ending: Stop) -> GoalState:
    return state.with_pursuit(ending=ending, stage="summarise")


def steps_data(steps: Sequence[PlanStep]) -> list[dict[str, object]]:
    return [
        {"id": step.id, "skill": step.skill, "goal": step.goal[:120], "depends_on": list(step.depends_on)}
        for step in steps
    ]
