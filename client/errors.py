"""What can go wrong for a user of the client, each as one line: the cause, then the remedy."""

from collections.abc import Collection, Sequence
from shlex import quote


class OrgaError(Exception):
    """A failure that a user can mend."""


class ConfigError(OrgaError):
    """A configuration that cannot be used: one line a problem."""


class RunNotFound(OrgaError):
    """No run has this id."""

    def __init__(self, workflow_id: str, run_id: str = "", *, told: str = "") -> None:
        which = f"the server keeps no run {run_id!r} of" if run_id else "there is no run"
        super().__init__(told or f"{which} {workflow_id!r}; `orga list` shows the ids")


class AmbiguousRun(OrgaError):
    """The ids of several runs begin so."""

    def __init__(self, beginning: str, newest: Sequence[str], of: int) -> None:
        others = f" and {of - len(newest)} more" if of > len(newest) else ""
        super().__init__(
            f"{beginning!r} is the beginning of {of} ids, newest first: {', '.join(newest)}{others}; say more of it"
        )


class ScheduleNotFound(OrgaError):
    """No schedule has this id."""

    def __init__(self, schedule_id: str) -> None:
        super().__init__(f"there is no schedule {schedule_id!r}; `orga schedule list` shows the ids")


class ScheduleTaken(OrgaError):
    """A schedule of this id is there."""

    def __init__(self, schedule_id: str) -> None:
        super().__init__(
            f"there is a schedule {schedule_id!r} already; choose another id, or delete it: "
            f"orga schedule delete {quote(schedule_id)}"
        )


class RunEnded(OrgaError):
    """The run has ended, so it takes no more signals."""

    def __init__(self, workflow_id: str) -> None:
        super().__init__(f"run {workflow_id!r} has ended; `orga journal {quote(workflow_id)}` shows how")


class Refused(OrgaError):
    """The run turned a decision away before it reached its history; it says why."""

    kind: str = ""
    """What the run calls it, where it has a name for it."""


class SessionBusy(Refused):
    """A turn is under way, and the message was to be refused then."""


class QueueFull(Refused):
    """Too many messages wait for their turn already."""


class SessionClosed(Refused):
    """The session takes no more messages: it is ending."""


class TurnUnknown(Refused):
    """No message became this turn, or it is too long ago: a session keeps the results of its last turns."""


REFUSALS = {kind.__name__: kind for kind in (SessionBusy, QueueFull, SessionClosed, TurnUnknown)}
"""By what the run calls them."""


class TooLong(Refused):
    """Guidance that the run would cut: it was not sent."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"not sent: it has {size:,} bytes and a run takes no more than {limit:,}; put it into a file that the "
            "agent reads"
        )


class NotAnAgent(OrgaError):
    """The id belongs to a workflow of another type."""

    def __init__(self, workflow_id: str, workflow_type: str, wanted: Collection[str] = ()) -> None:
        told = f"; this takes {' and '.join(wanted)} alone" if wanted else ", not a run of orga"
        super().__init__(f"{workflow_id!r} is a workflow of type {workflow_type}{told}")


class NoAnswer(OrgaError):
    """A query got no answer: only a worker can answer it."""

    def __init__(self, task_queue: str, command: str = "orga worker") -> None:
        super().__init__(
            f"no worker answered on task queue {task_queue!r}; start one with: {command} (`orga journal` needs none)"
        )


class TaskFails(NoAnswer):
    """The run's workflow task fails again and again: workers are there, none can go on with it."""

    def __init__(self, workflow_id: str, told: str, way_out: str) -> None:
        super().__init__("")
        self.args = (f"run {workflow_id!r} cannot go on: {told}; {way_out}",)


class NotTakenYet(NoAnswer):
    """What was sent may take effect yet: a worker that was there a moment ago has gone, or the server was lost."""

    def __init__(self, why: str, remedy: str, *, message_id: str = "") -> None:
        super().__init__("")
        self._why_and_remedy = (why, remedy)
        self.message_id: str = message_id
        """Of what was said to a session, "" of a decision: sent again under this id it is taken once."""
        what = "message" if message_id else "decision"
        or_so = f", or send it with message_id={message_id!r}: so it is taken once" if message_id else ""
        self.args = (
            f"the {what} is not known to be taken: {why}; {remedy}, and look at `orga status` before you send it "
            f"again{or_so}",
        )

    def of_message(self, message_id: str) -> "NotTakenYet":
        """Return the same of what was said to a session under this id."""
        return NotTakenYet(*self._why_and_remedy, message_id=message_id)


class ServerLost(OrgaError):
    """The Temporal server cannot be reached for the moment, or answers nothing of use."""

    def __init__(self, told: str) -> None:
        super().__init__(f"{told}; see `orga doctor`")
        self.told = told
        """How that shows."""


class RunFailed(OrgaError):
    """The workflow itself failed: invalid input, or a defect."""
