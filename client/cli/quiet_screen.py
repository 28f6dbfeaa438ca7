"""The screen of `--quiet`: nothing but what waits for a person, or for a worker."""

from datetime import datetime

from orga.client.cli.line import Line
from orga.client.cli.output import alarm
from orga.client.cli.progress import Progress
from orga.client.cli.screen import standing_remarks
from orga.workflows.types.questions import ShownQuestion


class QuietScreen:
    """Writes each of that once."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def told(self, line: Line, at: datetime) -> None:
        """Leave the line to `orga journal`."""

    def frame(self, progress: Progress) -> None:
        """Write what would keep the run waiting."""
        for remark in standing_remarks(progress):
            if remark not in self._said:
                self._said.add(remark)
                alarm(remark)

    def note(self, text: str) -> None:
        """Leave the remark out."""

    async def typed(self, wait: ShownQuestion) -> str:
        """Return nothing: who wants quiet is not asked."""
        return ""

    def close(self) -> None:
        """All that was written stays."""
