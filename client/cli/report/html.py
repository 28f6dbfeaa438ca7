"""A report as one HTML file: it loads nothing, runs nothing, and shows whatever a run said as text."""

from collections.abc import Iterator
from html import escape

from orga.client.cli.report.collected import Iteration, RunReport, Step
from orga.client.cli.terminal_text import harmless
from orga.workflows.types.text import as_line

_HEAD = """\
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
    """Return the document."""
    return "\n".join(_parts(report)) + "\n"


def _parts(report: RunReport) -> Iterator[str]:
    yield _HEAD.format(title=f"Run {_line(report.run_id)}")
    yield "<h1>Task</h1>"
    yield _block(report.task)
    yield "<h1>Answer</h1>"
    yield _block(report.answer) if report.answer else '<p class="quiet">There is none.</p>'
    yield "<h1>Facts</h1>"
    yield "<table>"
    yield from (f"<tr><th>{_line(name)}</th><td>{_line(value)}</td></tr>" for name, value in report.facts)
    yield "</table>"
    yield "<h1>What it did</h1>"
    for iteration in report.iterations:
        yield from _iteration(iteration)
    yield "</body>"
    yield "</html>"


def _iteration(iteration: Iteration) -> Iterator[str]:
    yield f"<h2>Iteration {iteration.number}</h2>" if iteration.number else "<h2>Start</h2>"
    yield "<ol>"
    for step in iteration.steps:
        yield from _step(step)
    yield "</ol>"


def _step(step: Step) -> Iterator[str]:
    head = f'<span class="at">+{step.since_s:.3f} s</span> <span class="event">{_line(step.event)}</span>'
    yield f'<li class="below">{head}' if step.depth else f"<li>{head}"
    yield from (f'<div class="{line.tone}">{_line(line.text)}</div>' for line in step.lines)
    for detail in step.details:
        yield f"<details><summary>{_line(detail.title)}</summary>{_block(detail.text)}</details>"
    yield "</li>"


def _line(text: str) -> str:
    return escape(as_line(text))


def _block(text: str) -> str:
    return f"<pre>{escape(harmless(text))}</pre>"
