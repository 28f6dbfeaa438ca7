"""The protocol of a screen for a followed run, and the plain screens for pipes, logs and `--quiet`."""

from datetime import UTC, datetime
from typing import Protocol

from orga.client.cli.shown.decisions import commands_text, held_call_text, held_calls
from orga.client.cli.shown.progress import PendingActivity, Progress
from orga.client.cli.shown.text import StyledLine, on_one_line, write_note, write_warning
from orga.workflows.types.questions import ShownQuestion
from orga.workflows.types.text import full_field_text

WAITING_FOR_WORKER = "waiting for a worker on task queue {!r}; start one with: {}"


class Screen(Protocol):
    """Shows lines that stay, and the run's current progress."""

    def show_line(self, line: StyledLine, at: datetime) -> None: ...

    def frame(self, progress: Progress) -> None:
        """Show the run's current progress."""
        ...

    def note(self, text: str) -> None: ...

    async def read_answer(self, wait: ShownQuestion) -> str:
        """Return the answer that a person types to an open question; "" if nobody answers here."""
        ...

    def close(self) -> None:
        """Remove what does not stay."""
        ...


class PlainScreen:
    """Writes everything once, with the time."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def show_line(self, line: StyledLine, at: datetime) -> None:
        write_note(f"{at.astimezone():%H:%M:%S} {line.text}")

    def frame(self, progress: Progress) -> None:
        """Write each remark once. A missing worker is reported once each time that it goes missing."""
        now = remarks(progress)
        for remark in now:
            if remark not in self._said:
                self.note(remark)
        self._said |= set(now)
        if not progress.lacks_worker:
            self._said.discard(_worker_remark(progress))

    def note(self, text: str) -> None:
        write_note(f"{datetime.now(UTC).astimezone():%H:%M:%S} {text}")

    async def read_answer(self, wait: ShownQuestion) -> str:
        """Return "", as nobody types into a pipe."""
        return ""

    def close(self) -> None:
        """All that was written stays."""


def remarks(progress: Progress) -> list[str]:
    """Return remarks that the journal does not show: a missing worker, open questions, failed attempts."""
    return blocking_remarks(progress) + [
        _retry_remark(activity) for activity in progress.pending_calls.under_way if activity.attempt > 1
    ]


def blocking_remarks(progress: Progress) -> list[str]:
    """Return what keeps the run waiting: a missing worker, open questions."""
    lacking = [_worker_remark(progress)] if progress.lacks_worker else []
    questions = [_question_remark(progress.run_id, wait) for wait in progress.waiting]
    questions += [_question_remark(run, wait) for run, status in progress.below for wait in status.waiting]
    return lacking + questions


def _worker_remark(progress: Progress) -> str:
    if progress.starts_worker:
        return f"waiting for the worker that is being started for task queue {progress.task_queue!r}"
    return WAITING_FOR_WORKER.format(progress.task_queue, progress.worker_command)


def _question_remark(run_id: str, wait: ShownQuestion) -> str:
    asked = "; ".join(map(held_call_text, held_calls(wait))) or on_one_line(wait.question, 300)
    what = f"waits for {asked}" if wait.kind == "result" else f"waits for you: {asked}"
    return f"{what} → {commands_text(run_id, wait)}"


def _retry_remark(activity: PendingActivity) -> str:
    after = on_one_line(activity.failure, 200) or "silence"
    return f"{full_field_text(activity.name)}: attempt {activity.attempt}, after: {after}"


class QuietScreen:
    """Writes only what keeps the run waiting, each remark once."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def show_line(self, line: StyledLine, at: datetime) -> None:
        """Leave the line to `orga journal`."""

    def frame(self, progress: Progress) -> None:
        for remark in blocking_remarks(progress):
            if remark not in self._said:
                self._said.add(remark)
                write_warning(remark)

    def note(self, text: str) -> None:
        """Leave the remark out."""

    async def read_answer(self, wait: ShownQuestion) -> str:
        """Return "", as `--quiet` asks nothing."""
        return ""

    def close(self) -> None:
        """All that was written stays."""
