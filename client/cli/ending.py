"""How a run ended: its answer on stdout, the facts on stderr, the exit code."""

from orga.client.cli.answer_text import answer
from orga.client.cli.exit_codes import of_ending
from orga.client.cli.output import alarm, json_result, note
from orga.client.cli.terminal_text import on_one_line
from orga.workflows.decisions.result import spent
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


def facts(ended: AgentResult) -> str:
    """Return reason, iterations, tools, tokens, cost and time in one line."""
    counts = ended.tool_calls
    detail = f" ({on_one_line(ended.termination.detail, 600)})" if ended.termination.detail else ""
    refused = f", {counts.denied} denied" if counts.denied else ""
    failed = f", {counts.failed} failed" if counts.failed else ""
    return (
        f"{ended.termination.reason}{detail}: {_counted(ended.iterations, 'iteration')}, "
        f"{_counted(counts.run, 'tool call')}{refused}{failed}, {spent(ended.usage)}, {ended.duration_s:.1f} s"
    )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
