"""What the Temporal UI shows: a line for each activity, details of the run in Markdown."""

from orga.workflows.decisions.control.questions import open_questions
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.state import AgentState
from orga.workflows.types.text import one_line
from orga.workflows.types.tools import ToolSpec
from orga.workflows.types.usage import ToolCallCounts, UsageTotals

SHOWN_CHARS = 300


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
    return state.with_dialogue(last=shown)


def counted_calls(counts: ToolCallCounts) -> str:
    """Return the counts of calls in one line; what is rare only where there is some."""
    rare = ((counts.invalid, "invalid"), (counts.not_run, "not run"))
    parts = [
        (counts.run, "run"),
        (counts.denied, "denied"),
        (counts.failed, "failed"),
        *(each for each in rare if each[0]),
    ]
    return ", ".join(f"{count} {word}" for count, word in parts)


def details(state: AgentState) -> str:
    """Return the current details of a run, in Markdown: where it stands, what it spent, what it did last."""
    setup, limit = state.setup, state.config.max_iterations
    lines = [
        f"**{'paused' if state.paused else state.phase}**, iteration {state.counted_iterations} of {limit}",
        f"- model: {_code(setup.model if setup else state.input.model or 'default')}",
        f"- spent: {spent(state.usage)}",
        f"- tool calls: {counted_calls(state.tool_calls)}",
    ]
    if state.inbox:
        lines.append(f"- unread interventions: {len(state.inbox)}")
    lines += [f"- waits for a person: {_code(question.text)}" for question in open_questions(state)]
    circuits = [tool for tool, breaker in state.breakers.items() if breaker.state != "closed"]
    if circuits:
        lines.append(f"- open circuits: {', '.join(map(_code, circuits))}")
    if state.children:
        lines.append(f"- delegated to: {', '.join(_code(child.agent) for child in state.children)}")
    if state.last:
        lines.append(f"- last: {_code(state.last)}")
    return "\n".join(lines)


def _code(text: str) -> str:
    """Return words as Markdown that is read as it stands: no link, no heading, no line of its own."""
    shown = one_line(text, SHOWN_CHARS).replace("`", "'")
    return f"`{shown}`"


def spent(usage: UsageTotals) -> str:
    """Return tokens and cost as people read them."""
    cost = "" if usage.cost_usd is None else f", {usage.cost_usd:.4f} USD"
    return f"{usage.total_tokens} tokens in {usage.model_calls} model calls{cost}"
