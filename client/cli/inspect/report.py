"""`orga journal ID --markdown` and `--html`: the report of a live or ended run, with task, answer, facts and steps."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from html import escape
from pathlib import Path

from temporalio.client import WorkflowExecutionStatus

from orga.activities.text.characters import harmless_text
from orga.client.cli.connection import run_context
from orga.client.cli.shown.narration import entry_lines
from orga.client.cli.shown.text import StyledLine, write_document
from orga.client.errors import RunFailed
from orga.client.journal import event_types as on
from orga.client.journal.event_types import JournalEvent
from orga.client.journal.reading import read_journal
from orga.client.journal.run_view import RunView, ViewedEntry
from orga.workflows.types.status import AgentResult, JournalEntry
from orga.workflows.types.text import escaped_line


@dataclass(frozen=True)
class ReportDetail:
    title: str
    text: str


@dataclass(frozen=True)
class ReportStep:
    """One entry of the journal."""

    since_s: float
    """Seconds since the run's start."""
    event: str
    lines: tuple[StyledLine, ...]
    details: tuple[ReportDetail, ...] = ()
    depth: int = 0
    """Levels of delegation: 0 for the run of the report, 1 for its delegates, 2 for their delegates."""


@dataclass(frozen=True)
class ReportIteration:
    number: int
    steps: list[ReportStep]


@dataclass(frozen=True)
class RunReport:
    run_id: str
    task: str
    answer: str
    """The answer; "" if there is none."""
    facts: tuple[tuple[str, str], ...]
    """Names and values, in order."""
    iterations: tuple[ReportIteration, ...]


def build_report(
    run_id: str, entries: Iterable[JournalEntry], result: AgentResult | None, ended: str = ""
) -> RunReport:
    """Return the report of a run. If the run ended without a result, `ended` describes its end."""
    run, iterations = RunView(), [ReportIteration(0, [])]
    for viewed in map(run.take, entries):
        if not viewed.entry.run and viewed.entry.iteration > iterations[-1].number:
            iterations.append(ReportIteration(viewed.entry.iteration, []))
        iterations[-1].steps.append(_step(run, viewed))
    return RunReport(
        run_id=run_id,
        task=run.task,
        answer=result.output if result else "",
        facts=tuple(_facts(run_id, run, result, ended)),
        iterations=tuple(iteration for iteration in iterations if iteration.steps),
    )


def _facts(run_id: str, run: RunView, result: AgentResult | None, ended: str) -> Iterable[tuple[str, str]]:
    yield "Run", run_id
    if run.first:
        yield "Agent", run.agent
    if run.setup:
        yield "Model", run.setup.model
        yield "Tools", ", ".join(run.setup.tools) or "none"
        yield "Policy", " ".join(filter(None, (run.setup.policy, run.setup.policy_version)))
    if run.first:
        yield "Started", _time_text(run.first.timestamp)
    if result is None:
        yield "State", ended or "not ended yet; this is the state at the time of the report"
        return
    yield "Ended", _time_text(run.last.timestamp) if run.last else ""
    yield "Ending", ": ".join(filter(None, (result.termination.reason, result.termination.detail)))
    yield "Iterations", str(result.iterations)
    counts = result.tool_calls
    yield "Tool calls", f"{counts.run} run, {counts.denied} denied, {counts.failed} failed"
    usage = result.usage
    estimated = f", {usage.estimated_calls} of them estimated" if usage.estimated_calls else ""
    thinking = f" ({usage.thinking_tokens:,} of them thinking)" if usage.thinking_tokens else ""
    yield "Tokens", f"{usage.total_tokens:,}{thinking} in {usage.model_calls} model calls{estimated}"
    if usage.cost_usd is not None:
        yield "Cost", f"{usage.cost_usd:.4f} USD"
    yield "Time", f"{result.duration_s:.1f} s"
    if run.last:
        yield "Last hash of the journal", run.last.hash


def _time_text(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _step(run: RunView, viewed: ViewedEntry) -> ReportStep:
    lines, details = tuple(entry_lines(viewed)), tuple(_details(viewed.event))
    return ReportStep(run.elapsed_s(viewed.entry), viewed.entry.event, lines, details, viewed.run.depth)


def _details(event: JournalEvent) -> Iterable[ReportDetail]:
    """Yield in full the texts that the lines of an entry may cut."""
    if not isinstance(event, on.ReasoningComplete):
        return
    for action in event.actions:
        if action.tool is not None and action.arguments:
            arguments = json.dumps(action.arguments, ensure_ascii=False, indent=2)
            yield ReportDetail(f"arguments of {action.tool}", arguments)
        elif action.respond and event.is_for_people:
            yield ReportDetail("the answer in full", action.respond)


async def write_report(name: str, render: Callable[[RunReport], str], config: Path | None) -> None:
    """Write the report of a run. No worker is needed."""
    async with run_context(name, config) as (context, run_id):
        entries = [entry async for entry in read_journal(context.client, run_id)]
        result, ended, run = None, "", context.run(run_id)
        if (await run.describe()).status != WorkflowExecutionStatus.RUNNING:
            try:
                result = await run.result()
            except RunFailed as error:
                ended = f"failed: {error}"
    write_document(render(build_report(run_id, entries, result, ended)).removesuffix("\n"))


_MARKDOWN_SPECIAL = re.compile(r"([\\`*_\[\]<>|~&$@]|^[#+-]|:(?=//)|(?<=www)\.)", re.IGNORECASE)
"""Characters that begin Markdown, HTML, mathematics, a mention or an address."""

_FENCE = re.compile(r"`{3,}")


def markdown(report: RunReport) -> str:
    return "\n".join(_markdown_parts(report)) + "\n"


def _markdown_parts(report: RunReport) -> Iterator[str]:
    yield f"# Run {_markdown_line(report.run_id)}"
    yield from ("", "## Task", "", *_markdown_block(report.task, ""))
    yield from ("", "## Answer", "", *(_markdown_block(report.answer, "") if report.answer else ["There is none."]))
    yield from ("", "## Facts", "", "| | |", "|---|---|")
    yield from (f"| {_markdown_line(name)} | {_markdown_line(value)} |" for name, value in report.facts)
    yield from ("", "## What it did")
    for iteration in report.iterations:
        yield from ("", f"### Iteration {iteration.number}" if iteration.number else "### Start", "")
        for step in iteration.steps:
            yield from _markdown_step(step)


def _markdown_step(step: ReportStep) -> Iterator[str]:
    indent = "  " * step.depth
    yield f"{indent}- +{step.since_s:.3f} s **{_markdown_line(step.event)}**"
    yield from (f"{indent}  - {_markdown_line(line.text)}" for line in step.lines)
    for detail in step.details:
        yield from (f"{indent}  - {_markdown_line(detail.title)}:", "")
        yield from _markdown_block(detail.text, f"{indent}    ")
        yield ""


def _markdown_line(text: str) -> str:
    return _MARKDOWN_SPECIAL.sub(r"\\\1", escaped_line(text))


def _markdown_block(text: str, indent: str) -> list[str]:
    """Return a text between two fences. They are longer than any fence in the text, so nothing in it ends the block."""
    clean = harmless_text(text).replace("\r", "\n")
    longest = max(map(len, _FENCE.findall(clean)), default=2)
    fence = "`" * (longest + 1)
    return [f"{indent}{line}" for line in (f"{fence}text", *clean.split("\n"), fence)]


_HTML_HEAD = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222;
  background: #fff; }}
h1 {{ font-size: 1.4rem; }} h2 {{ font-size: 1.1rem; margin-top: 2rem; }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; background: #f5f5f2; padding: .75rem; border-radius: .3rem; }}
table {{ border-collapse: collapse; }} th {{ text-align: left; padding-right: 1.5rem; vertical-align: top; }}
td {{ overflow-wrap: anywhere; }}
ol {{ list-style: none; padding: 0; }} li {{ margin: .3rem 0; }}
.at {{ color: #777; font-variant-numeric: tabular-nums; }} .event {{ color: #777; font-size: .85em; }}
.quiet {{ color: #777; }} .call {{ color: #06617a; }} .good {{ color: #1a6b2a; }} .bad {{ color: #a31515; }}
.person {{ font-weight: bold; }} .below {{ margin-left: 2rem; }}
details {{ margin-left: 1rem; }} summary {{ cursor: pointer; color: #555; font-size: .9em; }}
</style>
</head>
<body>
"""


def html(report: RunReport) -> str:
    return "\n".join(_html_parts(report)) + "\n"


def _html_parts(report: RunReport) -> Iterator[str]:
    yield _HTML_HEAD.format(title=f"Run {_html_line(report.run_id)}")
    yield "<h1>Task</h1>"
    yield _html_block(report.task)
    yield "<h1>Answer</h1>"
    yield _html_block(report.answer) if report.answer else '<p class="quiet">There is none.</p>'
    yield "<h1>Facts</h1>"
    yield "<table>"
    yield from (f"<tr><th>{_html_line(name)}</th><td>{_html_line(value)}</td></tr>" for name, value in report.facts)
    yield "</table>"
    yield "<h1>What it did</h1>"
    for iteration in report.iterations:
        yield f"<h2>Iteration {iteration.number}</h2>" if iteration.number else "<h2>Start</h2>"
        yield "<ol>"
        for step in iteration.steps:
            yield from _html_step(step)
        yield "</ol>"
    yield "</body>"
    yield "</html>"


def _html_step(step: ReportStep) -> Iterator[str]:
    head = f'<span class="at">+{step.since_s:.3f} s</span> <span class="event">{_html_line(step.event)}</span>'
    yield f'<li class="below">{head}' if step.depth else f"<li>{head}"
    yield from (f'<div class="{line.tone}">{_html_line(line.text)}</div>' for line in step.lines)
    for detail in step.details:
        yield f"<details><summary>{_html_line(detail.title)}</summary>{_html_block(detail.text)}</details>"
    yield "</li>"


def _html_line(text: str) -> str:
    return escape(escaped_line(text))


def _html_block(text: str) -> str:
    return f"<pre>{escape(harmless_text(text))}</pre>"
