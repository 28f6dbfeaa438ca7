"""Names that clients rely on (queues, workflows, activities, search attributes), and versions of the loop's rules."""

from typing import Any, Literal, get_args

from temporalio.common import SearchAttributeKey

TASK_QUEUE = "orga"
"""Task queue of workflows, and of tools that name no other."""

AGENT_WORKFLOW = "AgentWorkflow"
GOAL_WORKFLOW = "GoalWorkflow"
SESSION_WORKFLOW = "SessionWorkflow"

RUN_WORKFLOWS = (AGENT_WORKFLOW, GOAL_WORKFLOW, SESSION_WORKFLOW)
"""The kinds of run. A command that takes a run's id accepts any of them."""

REWINDABLE_WORKFLOWS = (AGENT_WORKFLOW, GOAL_WORKFLOW)
"""The kinds that can be rewound. Messages of a session cannot be taken back."""

SETTINGS_WORKFLOW = "SettingsWorkflow"
"""Holds the settings of a task queue that people change at run time. It is no run."""

ACTIVITY_CALL_WORKFLOW = "ActivityCallWorkflow"
"""One call of a tool that is another worker's activity. It is no run."""

CHECK_SETTINGS = "check_settings"
"""Checks settings at run time before they are saved. A worker does it, because it knows its configuration."""

NOTIFY = "deliver_notification"
"""Sends a notification. The short name `notify` is left to tools."""

READ_PAST = "read_past"
"""Reads a fork's past from the history of the run whose past it shares."""

DELIVER = "deliver"
"""Sends the final answer of a goal to a channel."""

RECALL_CONTEXT = "recall_context"
"""Recalls items that fit the next reasoning step."""

GoalPromptName = Literal["goal_plan", "goal_input", "goal_evaluate", "goal_decide", "goal_compress", "goal_summary"]

GOAL_PROMPTS = frozenset[str](get_args(GoalPromptName))
"""The prompts of a goal, each an activity. Together they are one conversation."""

PROMPT_ACTIVITIES = GOAL_PROMPTS | {"reason"}
"""Activities whose reply continues the conversation."""

PLANNED_MODEL = "(plan)"
"""Recorded in place of a model if no model was asked, because the plan had the arguments of all calls."""

MODEL_CALLS = PROMPT_ACTIVITIES | {"summarise", "critique"}

OWN_ACTIVITIES = MODEL_CALLS | {"prepare", READ_PAST, "gate", NOTIFY, DELIVER, RECALL_CONTEXT, CHECK_SETTINGS}
"""Activities of the loop itself. No tool can have one of these names."""

AGENT = SearchAttributeKey.for_keyword("OrgaAgent")
"""The agent. For a goal: the agent whose tools and model it uses."""
PHASE = SearchAttributeKey.for_keyword("OrgaPhase")
"""The phase of the run: `reasoning`, `acting`, `waiting`, `paused`, `done` and others."""
WAITING = SearchAttributeKey.for_keyword("OrgaWaiting")
"""The kind of question that the run waits for: `approval`, `answer`, `escalation`, `budget`, `result`. Absent if it
does not wait.
"""
WAITING_SINCE = SearchAttributeKey.for_datetime("OrgaWaitingSince")
"""The time at which the oldest open question was asked."""
TERMINATION = SearchAttributeKey.for_keyword("OrgaTermination")
"""The reason why the run ended: `completed`, `max_tokens`, `aborted` and others. Absent before that."""
TENANT = SearchAttributeKey.for_keyword("OrgaTenant")
"""The tenant of its input."""
ITERATION = SearchAttributeKey.for_int("OrgaIteration")
"""Iterations so far, written at the start, when the first calls begin, at every tenth iteration and at the end."""
COST_USD = SearchAttributeKey.for_float("OrgaCostUsd")
"""USD so far, written with the iterations. Absent if no price is known."""
DEAD_LETTERS = SearchAttributeKey.for_int("OrgaDeadLetters")
"""Failed calls that were given up and not sent again. A goal that has ended also counts failed deliveries."""
OPEN_CIRCUITS = SearchAttributeKey.for_keyword_list("OrgaOpenCircuits")
"""Tools whose circuit is open in the run."""

KEYS: tuple[SearchAttributeKey[Any], ...] = (
    AGENT,
    PHASE,
    WAITING,
    WAITING_SINCE,
    TERMINATION,
    TENANT,
    ITERATION,
    COST_USD,
    DEAD_LETTERS,
    OPEN_CIRCUITS,
)

LOOP_VERSION = 5
"""Version of the loop's rules. After the first release it rises by one with each change that a history can show. A
run's setup records it.
"""

FIRST_CALLS_SHOWN = 3
"""From this loop version on, a run writes its progress when its first calls begin. The version in its setup decides
about this write, because a patch marker would cost each run more than the write itself.
"""

CLOSED_CIRCUIT_SHOWN = "closed-circuit-shown"
"""A circuit that closes is removed from the search attribute of open circuits. Older runs leave its tool there."""

STOPPED_STEPS_COUNTED = "stopped-steps-counted"
"""Repeated replies with only calls of stopped steps end the run. Older runs continue until they reach a limit."""

ALTERNATIVES_CHECKED = "alternatives-checked"
"""An alternative in a saga may not have an effect that nothing takes back, nor be a deferred tool where nothing can
wait. Older runs call it.
"""

PATCHES = (CLOSED_CIRCUIT_SHOWN, STOPPED_STEPS_COUNTED, ALTERNATIVES_CHECKED)
"""All changes that workflow code asks `workflow.patched` about, because they give a history other commands. Runs that
passed such a point under the old rules keep them. See "How the loop's rules change" in ARCHITECTURE.md.
"""
