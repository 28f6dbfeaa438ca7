"""The first state of a goal: from its starter's input, from the previous segment, or from a shared past."""

from datetime import datetime
from typing import Any

from orga.workflows.decisions.begin import carried_state, initial_state, is_fork
from orga.workflows.decisions.control.interventions import guidance, with_guidance
from orga.workflows.decisions.fork import shared_past, unread_task_text
from orga.workflows.decisions.goals.review import with_end_withdrawn, with_plan_to_review
from orga.workflows.types.control import Clock
from orga.workflows.types.goals.goal_input import GoalInput, parse_goal
from orga.workflows.types.goals.pursuit import GoalState
from orga.workflows.types.past import ForkedFrom, GoalForkInput, parse_goal_fork


def initial_goal_state(goal: GoalInput, origin: str, now: datetime) -> GoalState:
    """Return the state of a new goal. The goal is the first message."""
    agent = initial_state(goal.for_agent(), origin, now)
    given: dict[str, Any] = {name: getattr(agent, name) for name in agent.model_fields_set}
    own = {"deliver": goal.deliver, "pipeline": goal.pipeline, "inputs": goal.inputs}
    given |= {name: value for name, value in own.items() if value is not None}
    return GoalState(**given, goal_config=goal.config)


def first_goal(raw: object, carried: object, before: str | None, origin: str, now: datetime) -> GoalState:
    """Return the state to start from. A `carried` state counts only if the run `before` carried it over."""
    if carried is not None and before:
        return carried_state(GoalState, carried, before)
    if is_fork(raw):
        return goal_state_before_past(parse_goal_fork(raw), origin, now)
    return initial_goal_state(parse_goal(raw), origin, now)


_LOOP_LIMIT_NAMES = {"max_model_calls": "max_llm_calls"}
"""Limits with another name in a goal's config."""


def goal_state_before_past(fork_input: GoalForkInput, origin: str, now: datetime) -> GoalState:
    goal = GoalInput(goal=unread_task_text(fork_input.fork), config=fork_input.config)
    return GoalState(
        input=goal.for_agent(),
        origin=origin,
        clock=Clock(started_at=now),
        fork=fork_input,
        goal_config=fork_input.config,
    )


def goal_fork_state(state: GoalState, source: ForkedFrom, fork_input: GoalForkInput, ended_at: datetime) -> GoalState:
    """Return the past for a fork of a goal. Arguments and errors are as for `fork_state`.

    The fork has the plan, scores and memory of the other goal. A new task is guidance for the next prompt. Streaks
    start from zero. An ending is kept only if it was a success and there is no new task. If the fork has another
    `plan_review`, the rest of the plan is reviewed, because nobody has approved it in that way.
    """
    goal = _goal_fork_input(state, fork_input)
    past = shared_past(state, source, goal.for_agent(), fork_input.fork.requeue, ended_at).with_aim(
        goal.config, goal.deliver
    )
    past = past.with_pursuit(errors=0, bad=0, unusable=0, adjusted=0, recent=(), question="", terms=None)
    if fork_input.task is not None:
        past = with_guidance(past, guidance("steer", fork_input.task))
    ending = past.pursuit.ending
    if ending is None:
        is_reviewed_otherwise = goal.config.plan_review not in {"never", state.goal_config.plan_review}
        return with_plan_to_review(past) if past.pursuit.open_steps and is_reviewed_otherwise else past
    if ending.reason == "completed" and fork_input.task is None:
        return past
    past = past.with_task(output="", data=None, gathered=()).with_dialogue(partial="")
    is_guided = past.pursuit.is_guided or ending.reason == "stuck"  # after `stuck`, no rule may continue by itself
    return with_end_withdrawn(past.with_pursuit(confidence=None, is_guided=is_guided))


def _goal_fork_input(state: GoalState, fork_input: GoalForkInput) -> GoalInput:
    """Return the input of the fork: that of its past, with raised limits. The keys of `fork_input` override it."""
    given, config = state.input, state.goal_config.model_dump(mode="json", exclude_unset=True)
    config |= {_LOOP_LIMIT_NAMES.get(name, name): getattr(state.config, name) for name in state.extended}
    raw: dict[str, Any] = {
        "goal": given.task,
        "agent": given.agent,
        "model": given.model,
        "skills": given.tools,
        "trusted_context": given.trusted_context,
        "tenant": given.tenant,
        "deliver": state.deliver,
    }
    changes = fork_input.changes
    changes["config"] = config | changes.get("config", {})
    return parse_goal({name: value for name, value in (raw | changes).items() if value is not None})
