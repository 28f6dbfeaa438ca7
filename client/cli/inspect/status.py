"""`orga status`, `orga conversation` and `orga open`: the state of a run, from a worker or else from its history."""

import sys
from collections.abc import AsyncIterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from temporalio.client import WorkflowExecutionDescription, WorkflowExecutionStatus

from orga.client.cli.connection import CliContext, run_context
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.options import ConfigFile, Json, RunId
from orga.client.cli.shown.decisions import held_call_text
from orga.client.cli.shown.status_text import activity_lines, plan_lines, run_outcome, status_lines
from orga.client.cli.shown.text import (
    indented_lines,
    separated_blocks,
    terminal_line,
    write_json,
    write_note,
    write_result,
)
from orga.client.errors import NoAnswer
from orga.client.journal import event_types as on
from orga.client.journal.reading import read_journal
from orga.client.journal.run_view import RunView, ViewedEntry
from orga.client.journal.watcher import activities_in_flight
from orga.client.runs.failing_tasks import FailingTask, failing_task
from orga.client.runs.needed_worker import needed_worker
from orga.client.server.versions import may_be_served, pinned_version
from orga.workflows.decisions.result import call_summary
from orga.workflows.types.status import AgentStatus, JournalEntry, ShownMessage
from orga.workflows.types.text import full_field_text


@dataclass(frozen=True)
class HistoryStatus:
    """The state of a run as its journal shows it. Questions of its delegates are not included."""

    run: RunView
    failing: FailingTask | None = None
    """The workflow task that fails, if a worker has the run but cannot continue it."""

    @property
    def plan(self) -> dict[str, Any] | None:
        return self.run.plan.as_status()

    def json_fields(self) -> dict[str, Any]:
        run, plan = self.run, self.plan
        return {
            "from": "history",
            "agent": run.agent,
            "phase": run.phase,
            "paused": run.paused,
            "iteration": run.turn_iteration,
            "tokens": run.tokens,
            "waiting": [{"kind": _question_kind(asked), **asked.entry.data} for asked in run.questions.values()],
            **({"plan": plan} if plan else {}),
            "termination": run.ending and run.ending.reason_and_detail,
            "task_fails": {**asdict(self.failing), "way_out": self.failing.remedy} if self.failing else None,
        }

    def lines(self) -> list[str]:
        run, plan = self.run, self.plan
        lines = [
            f"phase      {'paused' if run.paused else run.phase}",
            f"agent      {full_field_text(run.agent)}",
            f"round      {plan['rounds']}" if plan else f"iteration  {run.turn_iteration}",
            f"spent      {run.tokens} tokens",
            *plan_lines(plan),
        ]
        for asked_id, asked in run.questions.items():
            kind = full_field_text(_question_kind(asked))
            lines.append(f"waits      {kind} {full_field_text(asked_id)}: {_question_text(asked)}")
        if self.failing:
            lines.append(f"stuck      {terminal_line(self.failing.problem_line, 600)}")
        if run.ending:
            lines.append(f"ended      {run.ending.reason} {terminal_line(run.ending.detail, 600)}".rstrip())
        return lines


def _question_kind(asked: ViewedEntry) -> str:
    match asked.event:
        case on.ApprovalRequested() as event:
            return event.kind
        case on.QuestionAsked():
            return "answer"
        case _:
            return ""


def _question_text(asked: ViewedEntry) -> str:
    match asked.event:
        case on.ApprovalRequested(kind="call"):
            return held_call_text(asked.entry.data)
        case on.ApprovalRequested() | on.QuestionAsked() as event:
            return terminal_line(event.question, 300)
        case _:
            return ""


async def history_status(entries: AsyncIterable[JournalEntry]) -> HistoryStatus:
    run = RunView()
    async for entry in entries:
        run.take(entry)
    return HistoryStatus(run)


async def status(run: RunId, json: Json = False, config: ConfigFile = None) -> None:
    """If the run has ended, its whole answer is shown too.

    The state comes from a worker. If no worker answers, the command reads the history, and --json has "from":
    "history". It also reads the history if the run's workflow task fails, and then shows the cause and the remedy.
    Calls in flight are shown with the failure of their last attempt.

    Example: orga status ID --json
    """
    async with run_context(run, config) as (context, run_id):
        described = await context.run(run_id).describe()
        failing, version = await failing_task(context.client, described), pinned_version(described)
        # a workflow that was terminated does not know of its end, but its history does
        knows_end = described.status in (WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.COMPLETED)
        answer = None
        if knows_end and not failing:
            answer = await _query_status(context, described)
        if answer is None:
            past = replace(await history_status(read_journal(context.client, run_id)), failing=failing)
            shown, lines = past.json_fields(), past.lines()
            if failing and described.status == WorkflowExecutionStatus.RUNNING:
                write_note(f"{failing.problem_line}; this is the state in the history. {failing.remedy}")
            elif described.status == WorkflowExecutionStatus.RUNNING:
                needed = await needed_worker(described)
                write_note(
                    f"no {needed.name} answers, so this is the state in the history; start one with: {needed.command}"
                )
        else:
            shown, lines = answer.model_dump(mode="json"), status_lines(run_id, answer)
        if version is not None:
            name = version.to_canonical_string()
            shown["version"] = name
            lines.insert(2, f"version    {terminal_line(name)}")
        if described.status == WorkflowExecutionStatus.RUNNING:
            activities = await activities_in_flight(context.client, described)
            shown["in_flight"] = [activity.model_dump(mode="json") for activity in activities]
            lines[1:1] = activity_lines(activities, datetime.now(UTC))
        outcome = await run_outcome(context.client, described)
    if json:
        write_json(shown | outcome.json_fields())
    else:
        write_result(*outcome.lines_around(lines))


async def _query_status(context: CliContext, described: WorkflowExecutionDescription) -> AgentStatus | None:
    if not await may_be_served(context.client, described):
        return None
    try:
        return await context.run(described.id).status()
    except NoAnswer:
        return None


async def conversation(run: RunId, json: Json = False, config: ConfigFile = None) -> None:
    """The command asks a worker. If none answers, it replays the run's history itself.

    Example: orga conversation ID --json
    """
    async with run_context(run, config) as (context, run_id):
        messages = await _read_messages(context, run_id)
    if json:
        write_json([message.model_dump(mode="json") for message in messages])
    elif messages:
        write_result(*separated_blocks(map(message_lines, messages)))


async def _read_messages(context: CliContext, run_id: str) -> list[ShownMessage]:
    described = await context.run(run_id).describe()
    if await may_be_served(context.client, described):
        with suppress(NoAnswer):
            return await context.run(run_id).conversation()
    from orga.client.past.replayed_state import past_conversation  # it imports the workflows, to replay them

    messages = await past_conversation(context.client, run_id)
    if not messages:
        needed = await needed_worker(described)
        write_note(f"no {needed.name} has taken the run yet, so it has no messages; start one with: {needed.command}")
    return messages


def message_lines(message: ShownMessage) -> list[str]:
    """Return a head, the text and the calls. The text is indented, because it could look like a head."""
    source = f" {full_field_text(message.tool)} {full_field_text(message.call_id or '')}" if message.tool else ""
    head = f"── {message.role}{source}{' (error)' if message.is_error else ''}"
    calls = [f"→ {terminal_line(call_summary(call, None))}  {full_field_text(call.call_id)}" for call in message.calls]
    return [head, *(indented_lines(message.text) if message.text else []), *calls]


async def open_run(
    run: RunId,
    *,
    show: Annotated[bool, typer.Option("--print", help="Print the address and open nothing.")] = False,
    json: Json = False,
    config: ConfigFile = None,
) -> None:
    """The embedded server has a UI. If you use another server, set [notify] ui_url to the address of its UI. Without a
    terminal the command only prints the address.

    Example: orga open ID
    """
    import webbrowser  # the other commands do not need it

    async with run_context(run, config) as (context, run_id):
        await context.run(run_id).describe()  # reports an unknown id here, not in the browser
        link = context.connection.with_ui(context.config.notify.ui_url).link(run_id)
        if link is None:
            address = context.connection.endpoint.address
            raise UsageError(f"the address of the UI of the server at {address} is not configured. Set [notify] ui_url")
    if json:
        write_json({"id": run_id, "ui": link})
        return
    write_result(link)
    if not show and sys.stdout.isatty() and not webbrowser.open(link):
        write_note("no browser could be started here; open the address yourself")
