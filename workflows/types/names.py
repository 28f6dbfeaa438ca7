"""Names that clients rely on, search attributes, and names of changes for runs that are under way."""

from typing import Any, Literal, get_args

from temporalio.common import SearchAttributeKey

TASK_QUEUE = "orga"
"""Task queue of workflows and of tools that name no other."""

AGENT_WORKFLOW = "AgentWorkflow"
GOAL_WORKFLOW = "GoalWorkflow"
SESSION_WORKFLOW = "SessionWorkflow"

RUN_WORKFLOWS = (AGENT_WORKFLOW, GOAL_WORKFLOW, SESSION_WORKFLOW)
"""The kinds of run: what takes one by its id, takes any of them."""

REWINDABLE_WORKFLOWS = (AGENT_WORKFLOW, GOAL_WORKFLOW)
"""The kinds that can be rewound; what was said in a session cannot be unsaid."""

AGENT_WORKFLOWS = (AGENT_WORKFLOW,)
"""The kinds whose dead letters a fork can send again when they have ended."""

NOTIFY = "deliver_notification"
"""Longer than it has to be: a tool may well be called `notify`."""

READ_PAST = "read_past"
"""Reads the past of a fork from the history of the run whose past it is."""

DELIVER = "deliver"
"""Brings the final answer of a goal to a channel."""

RECALL_CONTEXT = "recall_context"
"""Recalls what may concern the next reasoning step."""

GoalPromptName = Literal["goal_plan", "goal_input", "goal_evaluate", "goal_decide", "goal_compress", "goal_summary"]

GOAL_PROMPTS = frozenset[str](get_args(GoalPromptName))
"""What a goal asks its model for, each an activity: turns of one conversation."""

PROMPT_ACTIVITIES = GOAL_PROMPTS | {"reason"}
"""Activities whose reply is the next turn of the conversation."""

PLANNED_MODEL = "(plan)"
"""In place of a model: who gave the calls of a reply where the plan had all of their arguments."""

MODEL_CALLS = PROMPT_ACTIVITIES | {"summarise", "critique"}

OWN_ACTIVITIES = MODEL_CALLS | {"prepare", READ_PAST, "gate", NOTIFY, DELIVER, RECALL_CONTEXT}
"""Activities of the loop itself; no tool can have such a name."""


AGENT = SearchAttributeKey.for_keyword("OrgaAgent")
"""The agent; of a goal the one whose tools and model it has."""
PHASE = SearchAttributeKey.for_keyword("OrgaPhase")
"""What the run does: `reasoning`, `acting`, `waiting`, `paused`, `done` and others."""
WAITING = SearchAttributeKey.for_keyword("OrgaWaiting")
"""What it waits for a person for: `approval`, `answer`, `escalation`, `budget`; none where it does not."""
WAITING_SINCE = SearchAttributeKey.for_datetime("OrgaWaitingSince")
"""When the oldest question that is open was asked."""
TERMINATION = SearchAttributeKey.for_keyword("OrgaTermination")
"""How it ended: `completed`, `max_tokens`, `aborted` and others; none before."""
TENANT = SearchAttributeKey.for_keyword("OrgaTenant")
"""The tenant that its input names."""
ITERATION = SearchAttributeKey.for_int("OrgaIteration")
"""Iterations so far, written at the start, where the first calls begin, at every tenth and at the end."""
COST_USD = SearchAttributeKey.for_float("OrgaCostUsd")
"""USD so far, written with the iterations; none where no price is known."""
DEAD_LETTERS = SearchAttributeKey.for_int("OrgaDeadLetters")
"""Calls that were given up and not sent again; of a goal that has ended also deliveries that failed."""
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
