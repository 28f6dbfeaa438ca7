"""A report as Markdown: whatever a run said stands between fences that it cannot close, or escaped."""

import re
from collections.abc import Iterator

from orga.client.cli.report.collected import Iteration, RunReport, Step
from orga.client.cli.terminal_text import harmless
from orga.workflows.types.text import as_line

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~&$@]|^[#+-]|:(?=//)|(?<=www)\.)", re.IGNORECASE)
"""What Markdown, and the HTML, mathematics, mentions and addresses in it, begin with."""

_FENCE = re.compile(r"`{3,}")


def markdown(report: RunReport) -> str:
    """Return the document."""
    return "\n".join(_parts(report)) + "\n"


def _parts(report: RunReport) -> Iterator[str]:
    yield f"# Run {_line(report.run_id)}"
    yield from ("", "## Task", "", *_block(report.task, ""))
    yield from ("", "## Answer", "", *(_block(report.answer, "") if report.answer else ["There is none."]))
    yield from ("", "## Facts", "", "| | |", "|---|---|")
    yield from (f"| {_line(name)} | {_line(value)} |" for name, value in report.facts)
    yield from ("", "## What it did")
    for iteration in report.iterations:
        yield from _iteration(iteration)


def _iteration(iteration: Iteration) -> Iterator[str]:
    yield from ("", f"### Iteration {iteration.number}" if iteration.number else "### Start", "")
    for step in iteration.steps:
        yield from _step(step)


def _step(step: Step) -> Iterator[str]:
    indent = "  " * step.depth
    yield f"{indent}- +{step.since_s:.3f} s **{_line(step.event)}**"
    yield from (f"{indent}  - {_line(line.text)}" for line in step.lines)
    for detail in step.details:
        yield from (f"{indent}  - {_line(detail.title)}:", "")
        yield from _block(detail.text, f"{indent}    ")
        yield ""


def _line(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", as_line(text))


def _block(text: str, indent: str) -> list[str]:
    """Return a text as it is, between fences that are longer than any in it."""
    clean = harmless(text).replace("\r", "\n")
    longest = max((len(found) for found in _FENCE.findall(clean)), default=2)
    fence = "`" * (longest + 1)
    return [f"{indent}{line}" for line in (f"{fence}text", *clean.split("\n"), fence)]
