"""How a run ended: its answer on stdout, the facts on stderr, the exit code."""

from orga.client.cli.answer_text import answer
from orga.client.cli.counting import counted
from orga.client.cli.exit_codes import of_ending
from orga.client.cli.goal_results import goal_result
from orga.client.cli.output import alarm, json_result, note
from orga.client.cli.terminal_text import on_one_line
from orga.workflows.decisions.result import spent
from orga.workflows.types.sessions.result import TurnResult
from orga.workflows.types.status import AgentResult


def show_ending(ended: AgentResult, *, as_json: bool) -> int:
    """Write the result and return the exit code."""
    if as_json:
        json_result(ended.model_dump(mode="json"))
    elif ended.output:
        answer(ended.output)
    code = of_ending(ended.termination.reason)
    (alarm if code else note)(facts(ended))
    return code


def facts(ended: AgentResult | TurnResult) -> str:
    """Return reason, iterations, tools, tokens, cost and time in one line; of a goal also its confidence."""
    counts = ended.tool_calls
    detail = f" ({on_one_line(ended.termination.detail, 600)})" if ended.termination.detail else ""
    refused = f", {counts.denied} denied" if counts.denied else ""
    failed = f", {counts.failed} failed" if counts.failed else ""
    return (
        f"{ended.termination.reason}{detail}: {counted(ended.iterations, 'iteration')}, "
        f"{counted(counts.run, 'tool call')}{refused}{failed}, {spent(ended.usage)}, "
        f"{ended.duration_s:.1f} s{_worth(ended)}"
    )


def _worth(ended: AgentResult | TurnResult) -> str:
    goal = goal_result(ended)
    if goal is None:
        return ""
    done = sum(step.status == "done" for step in goal.steps)
    return f"; confidence {goal.confidence:.2f}, {done} of {counted(len(goal.steps), 'step')} done"
