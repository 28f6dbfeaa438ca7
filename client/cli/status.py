"""`orga status`: where a run stands, by its own word or by its history."""

from pathlib import Path

from client.cli.interrupts import completed
from client.cli.options import ConfigFile, Json, RunId
from client.cli.output import json_result, note, result
from client.cli.progress import Progress
from client.cli.session import Session, session
from client.errors import NoAnswer
from client.journal import read_journal
from client.pollers import pollers
from workflows.decisions.summaries import spent
from workflows.types.journal import JournalEntry
from workflows.types.status import AgentStatus


def status(run: RunId, json: Json = False, config: ConfigFile = None) -> int:
    """Show phase, iteration, budgets and spending of a run.

    Only a worker can ask a run; without one, its history is read instead, and --json says so ("from": "history").

    Example: orga status ID --json
    """
    return completed(_status(run, config, as_json=json))


async def _status(run_id: str, config: Path | None, *, as_json: bool) -> int:
    async with session(config) as here:
        described = await here.run(run_id).describe()
        answer = await _asked(here, run_id, described.task_queue)
        if answer is None:
            note("no worker answers, so this is what the history tells; start one with: orga worker")
            progress, last = await _told(here, run_id)
            shown, text = _history_json(progress, last), _history_text(progress, last)
        else:
            shown, text = answer.model_dump(mode="json"), "\n".join(_lines(answer))
    if as_json:
        json_result(shown)
    else:
        result(text)
    return 0


async def _asked(here: Session, run_id: str, task_queue: str) -> AgentStatus | None:
    if not await pollers(here.client, task_queue):
        return None
    try:
        return await here.run(run_id).status()
    except NoAnswer:
        return None


async def _told(here: Session, run_id: str) -> tuple[Progress, JournalEntry | None]:
    progress, last = Progress(), None
    async for entry in read_journal(here.client, run_id):
        progress, last = progress.with_entry(entry), entry
    return progress, last


def _lines(status: AgentStatus) -> list[str]:
    budgets, counts = status.budgets, status.tool_calls
    spent_s = budgets.timeout_s - budgets.time_s
    lines = [
        f"phase      {'paused' if status.paused else status.phase}",
        f"agent      {status.agent}, {status.model or 'model not chosen yet'}",
        f"iteration  {status.iteration} of {budgets.max_iterations}",
        f"spent      {spent(status.usage)}, of {budgets.max_total_tokens} tokens",
        f"time       {spent_s:.0f} of {budgets.timeout_s:.0f} s",
        f"tools      {counts.run} run, {counts.denied} denied, {counts.failed} failed",
    ]
    lines += [f"unread     {item.get('kind')}: {item.get('text')}" for item in status.unread_interventions]
    if status.termination is not None:
        lines.append(f"ended      {status.termination.reason} {status.termination.detail}".rstrip())
    return lines


def _history_json(progress: Progress, last: JournalEntry | None) -> dict[str, object]:
    ended = last is not None and last.event == "Terminated"
    termination = {key: last.data.get(key) for key in ("reason", "detail")} if last and ended else None
    return {
        "from": "history",
        "agent": progress.agent,
        "phase": progress.phase,
        "paused": progress.paused,
        "iteration": progress.iteration,
        "tokens": progress.tokens,
        "termination": termination,
    }


def _history_text(progress: Progress, last: JournalEntry | None) -> str:
    lines = [
        f"phase      {'paused' if progress.paused else progress.phase}",
        f"agent      {progress.agent}",
        f"iteration  {progress.iteration}",
        f"spent      {progress.tokens} tokens",
    ]
    if last is not None and last.event == "Terminated":
        lines.append(f"ended      {last.data.get('reason')} {last.data.get('detail') or ''}".rstrip())
    return "\n".join(lines)
