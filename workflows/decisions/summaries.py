"""What the Temporal UI shows: a line for each activity, details of the run in Markdown."""

from workflows.types.messages import Reply, ToolCall
from workflows.types.state import AgentState
from workflows.types.tools import ToolSpec
from workflows.types.usage import UsageTotals

SUMMARY_CHARS = 100


def call_summary(call: ToolCall, spec: ToolSpec | None) -> str:
    """Return the tool and its main argument: `read_file README.md`."""
    name = spec.main_argument if spec else None
    value = call.arguments.get(name) if name else next(iter(call.arguments.values()), "")
    if isinstance(value, list):
        value = " ".join(str(part) for part in value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return one_line(f"{call.name} {value if value is not None else ''}")


def last_calls(state: AgentState, reply: Reply) -> AgentState:
    """Return the state with what the reply calls, for people."""
    specs = {spec.name: spec for spec in (state.setup.tools if state.setup else ())}
    shown = "; ".join(call_summary(call, specs.get(call.name)) for call in reply.calls[:3])
    return state.model_copy(update={"last": shown})


def one_line(text: str, chars: int = SUMMARY_CHARS) -> str:
    """Return `text` on one line of at most `chars` characters."""
    flat = " ".join(text[: chars * 4].split())
    return flat if len(flat) <= chars else flat[: chars - 1] + "…"


def details(state: AgentState) -> str:
    """Return the current details of a run, in Markdown: where it stands, what it spent, what it did last."""
    setup, limit = state.setup, state.config.max_iterations
    lines = [
        f"**{'paused' if state.paused else state.phase}**, iteration {state.iteration} of {limit}",
        f"- model: `{setup.model if setup else state.input.model or 'default'}`",
        f"- spent: {spent(state.usage)}",
        f"- tool calls: {state.tool_calls.run} run, {state.tool_calls.denied} denied, {state.tool_calls.failed} failed",
    ]
    if state.inbox:
        lines.append(f"- unread interventions: {len(state.inbox)}")
    lines += [f"- waits for a person: {wait.question}" for wait in state.waits if wait.resolution is None]
    circuits = [tool for tool, breaker in state.breakers.items() if breaker.state != "closed"]
    if circuits:
        lines.append(f"- open circuits: {', '.join(circuits)}")
    if state.children:
        lines.append(f"- delegated to: {', '.join(child.agent for child in state.children)}")
    if state.last:
        lines.append(f"- last: `{state.last}`")
    return "\n".join(lines)


def spent(usage: UsageTotals) -> str:
    """Return tokens and cost as people read them."""
    cost = "" if usage.cost_usd is None else f", {usage.cost_usd:.4f} USD"
    return f"{usage.total_tokens} tokens in {usage.model_calls} model calls{cost}"
