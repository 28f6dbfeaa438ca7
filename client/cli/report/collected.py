"""The content of a run's report: task, answer, facts and steps. Texts are not escaped yet."""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from orga.client.cli.shown.narration import ANSWER_PROMPT, Narrator
from orga.client.cli.shown.progress import Nesting, delegated_run_id
from orga.client.cli.shown.text import StyledLine
from orga.workflows.types.status import AgentResult, JournalEntry


@dataclass(frozen=True)
class ReportDetail:
    """A longer text of a step: the arguments of a call, or an answer in full."""

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
    """The number of delegations from the run of the report to that of the step."""


@dataclass(frozen=True)
class ReportIteration:
    """The steps of one iteration. Number 0 has the steps before the first one."""

    number: int
    steps: tuple[ReportStep, ...]


@dataclass(frozen=True)
class RunReport:
    """Everything that a report shows."""

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
    """Return the report of a run.

    Args:
        run_id: The run.
        entries: Its journal, in order.
        result: The run's result, if it has one.
        ended: A text on how it ended without a result.
    """
    known = list(entries)
    own = [entry for entry in known if not delegated_run_id(entry)]
    started = next((entry for entry in own if entry.event == "Started"), None)
    return RunReport(
        run_id=run_id,
        task=str(started.data.get("task", "")) if started else "",
        answer=result.output if result else "",
        facts=tuple(_facts(run_id, own, result, ended)),
        iterations=tuple(_iterations(known)),
    )


def _facts(run_id: str, own: list[JournalEntry], result: AgentResult | None, ended: str) -> Iterable[tuple[str, str]]:
    prepared: dict[str, Any] = next((entry.data for entry in own if entry.event == "Prepared"), NO_DATA)
    yield "Run", run_id
    if own:
        yield "Agent", own[-1].agent
    if prepared:
        yield "Model", str(prepared.get("model") or "")
        tools: dict[str, Any] = prepared.get("tools") or {}
        yield "Tools", ", ".join(tools) or "none"
        yield "Policy", " ".join(filter(None, (str(prepared.get("policy") or ""), prepared.get("policy_version"))))
    if own:
        yield "Started", _time_text(own[0].timestamp)
    if result is None:
        yield "State", ended or "not ended yet; this is the state at the time of the report"
        return
    yield "Ended", _time_text(own[-1].timestamp) if own else ""
    yield "Ending", ": ".join(filter(None, (result.termination.reason, result.termination.detail)))
    yield "Iterations", str(result.iterations)
    counts = result.tool_calls
    yield "Tool calls", f"{counts.run} run, {counts.denied} denied, {counts.failed} failed"
    guessed = f", {result.usage.estimated_calls} of them estimated" if result.usage.estimated_calls else ""
    yield "Tokens", f"{result.usage.total_tokens:,} in {result.usage.model_calls} model calls{guessed}"
    if result.usage.cost_usd is not None:
        yield "Cost", f"{result.usage.cost_usd:.4f} USD"
    yield "Time", f"{result.duration_s:.1f} s"
    if own:
        yield "Last hash of the journal", own[-1].hash


NO_DATA: dict[str, Any] = {}


def _time_text(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _iterations(entries: list[JournalEntry]) -> Iterable[ReportIteration]:
    narrators, nesting = defaultdict[str, Narrator](Narrator), Nesting()
    steps: list[ReportStep] = []
    number = 0
    for entry in entries:
        run, depth = delegated_run_id(entry), nesting.depth(entry)
        if not run and entry.iteration > number:
            if steps:
                yield ReportIteration(number, tuple(steps))
            number, steps = entry.iteration, []
        lines = tuple(narrators[run].render(entry))
        since = (entry.timestamp - entries[0].timestamp).total_seconds()
        steps.append(ReportStep(since, entry.event, lines, tuple(_details(entry)), depth))
    if steps:
        yield ReportIteration(number, tuple(steps))


def _details(entry: JournalEntry) -> Iterable[ReportDetail]:
    """Yield the texts that the lines of an entry had to cut."""
    if entry.event != "ReasoningComplete":
        return
    for action in entry.data.get("actions") or ():
        if "tool" in action and action.get("arguments"):
            arguments = json.dumps(action["arguments"], ensure_ascii=False, indent=2)
            yield ReportDetail(f"arguments of {action['tool']}", arguments)
        elif action.get("respond") and entry.data.get("turn", ANSWER_PROMPT) == ANSWER_PROMPT:
            yield ReportDetail("the answer in full", str(action["respond"]))
