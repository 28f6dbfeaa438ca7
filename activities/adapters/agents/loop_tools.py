"""Tools that the loop itself carries out, without an activity: for delegation, the end of the run, sagas, questions."""

from collections.abc import Mapping, Sequence

from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.tool_calls.delegation import Delegate, DelegateSpec
from orga.workflows.types.tool_calls.loop_tools import ASK_USER, DELEGATE, MAX_STEPS, SAGA, TERMINATE
from orga.workflows.types.tool_calls.tools import ToolOptions, ToolSpec

_BUILT_IN = ToolOptions(verified=True)

TERMINATE_TOOL = ToolSpec(
    name=TERMINATE,
    description=(
        "End this run now. Use it when the task is done or cannot be done. Other calls of the same reply are not run."
    ),
    parameters={
        "type": "object",
        "properties": {
            "reason": {"type": "string", "minLength": 1, "description": "Why the run ends here, in one sentence."},
            "output": {"type": "string", "description": "The result, or what there is of it."},
        },
        "required": ["reason", "output"],
        "additionalProperties": False,
    },
    effect="read_only",
    options=_BUILT_IN,
    main_argument="reason",
)


_ACTION = {
    "tool": {"type": "string", "minLength": 1, "description": "Name of one of your other tools."},
    "arguments": {"type": "object", "description": "Its arguments."},
}

SAGA_TOOL = ToolSpec(
    name=SAGA,
    description=(
        "Carry out several tool calls that belong together, one after the other, and take back what was done when one "
        "of them fails, the last first. Each step is read_only (nothing to take back), compensatable (its compensation "
        "is the call that takes it back) or final (cannot be taken back; only final steps may follow). All arguments "
        "are fixed beforehand: no step sees the result of another."
    ),
    parameters={
        "type": "object",
        "properties": {
            "steps": {
                "type": "array",
                "minItems": 1,
                "maxItems": MAX_STEPS,
                "items": {
                    "type": "object",
                    "properties": {
                        **_ACTION,
                        "kind": {"type": "string", "enum": ["read_only", "compensatable", "final"]},
                        "compensation": {
                            "type": "object",
                            "properties": _ACTION,
                            "required": ["tool", "arguments"],
                            "additionalProperties": False,
                            "description": "The call that takes this step back; of a compensatable step only.",
                        },
                    },
                    "required": ["tool", "arguments", "kind"],
                    "additionalProperties": False,
                },
            }
        },
        "required": ["steps"],
        "additionalProperties": False,
    },
    effect="irreversible",
    options=ToolOptions(verified=True, trusted_output=True),
)
"""The `saga` tool. Its own text is trusted. The tools that it called leave their own taint."""


ASK_USER_TOOL = ToolSpec(
    name=ASK_USER,
    description=(
        "Ask the person that this run works for, and get the answer; it may take days. Ask only what you cannot find "
        "out and must not guess, one thing at a time."
    ),
    parameters={
        "type": "object",
        "properties": {
            "question": {
                "type": "string",
                "minLength": 1,
                "maxLength": 1_000,
                "description": "Complete in itself: the person sees nothing else.",
            },
            "options": {
                "type": "array",
                "minItems": 2,
                "maxItems": 20,
                "items": {"type": "string", "minLength": 1, "maxLength": 200},
                "description": "The only answers that you can use; leave it out for any text.",
            },
            "default": {
                "type": "string",
                "maxLength": 2_000,
                "description": "What to take where nobody answers in time.",
            },
            "expires_s": {
                "type": "number",
                "minimum": 1,
                "maximum": 31_536_000,
                "description": "Seconds after which nobody has answered in time; leave it out to wait.",
            },
        },
        "required": ["question"],
        "additionalProperties": False,
    },
    effect="read_only",
    options=ToolOptions(verified=True, trusted_output=True),
    main_argument="question",
)
"""The `ask_user` tool. Its result is trusted: the person who answers may steer the run anyway."""


LISTED_TOOLS = (TERMINATE_TOOL, SAGA_TOOL, ASK_USER_TOOL)
"""Tools for agents that list them. The config decides about the other tools of the loop."""


def delegate_specs(delegates: Sequence[Delegate], agents: Mapping[str, AgentConfig]) -> tuple[DelegateSpec, ...]:
    """Return the delegates that are agents, each once, with their descriptions."""
    first = {delegate.agent: delegate for delegate in reversed(delegates) if delegate.agent in agents}
    names = dict.fromkeys(delegate.agent for delegate in delegates if delegate.agent in first)
    return tuple(
        DelegateSpec(agent=name, description=agents[name].description, tools=first[name].tools) for name in names
    )


def delegate_tool(delegates: Sequence[DelegateSpec]) -> ToolSpec:
    """Return the tool with which a model delegates to one of these agents."""
    listed = [f"- {spec.agent}: {spec.description}" if spec.description else f"- {spec.agent}" for spec in delegates]
    return ToolSpec(
        name=DELEGATE,
        description="\n".join(
            [
                "Hand a part of the task to another agent and get its final answer back. It knows nothing of this "
                "conversation: give it all that it needs. Several calls in one reply run at the same time. Agents:",
                *listed,
            ]
        ),
        parameters={
            "type": "object",
            "properties": {
                "agent": {"type": "string", "enum": [spec.agent for spec in delegates]},
                "task": {"type": "string", "minLength": 1, "description": "What it is to do, complete in itself."},
            },
            "required": ["agent", "task"],
            "additionalProperties": False,
        },
        effect="irreversible",
        options=_BUILT_IN,
        main_argument="agent",
    )
