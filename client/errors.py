"""The errors that a user of the client can meet. All are an `OrgaError`.

Each text is one line: the cause, then the remedy.
"""

from collections.abc import Collection, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orga.workflows.types.settings import SettingProblem


class OrgaError(Exception):
    """A failure that the user can fix."""


class ConfigError(OrgaError):
    """A configuration that cannot be used. The text has one line per problem."""


class RunNotFound(OrgaError):
    """No run has this id."""

    def __init__(self, workflow_id: str, run_id: str = "", *, text: str = "") -> None:
        problem = f"the server keeps no run {run_id!r} of" if run_id else "there is no run"
        super().__init__(text or f"{problem} {workflow_id!r}; `orga list` shows the ids")


HISTORY_GONE = "the server no longer has its history: the run was deleted, or it ended too long ago for the retention"
"""The problem of a run that other runs or a list refer to. The error about an id that a person typed is RunNotFound."""


class IdTaken(OrgaError):
    """A new run has the id of a run that exists."""


class AmbiguousRun(OrgaError):
    """Several run ids begin with this text."""

    def __init__(self, beginning: str, newest: Sequence[str], total: int) -> None:
        others = f" and {total - len(newest)} more" if total > len(newest) else ""
        super().__init__(
            f"{beginning!r} is the beginning of {total} ids, newest first: {', '.join(newest)}{others}; type more of it"
        )


class ScheduleNotFound(OrgaError):
    """No schedule has this id."""

    def __init__(self, schedule_id: str) -> None:
        super().__init__(f"there is no schedule {schedule_id!r}; `orga schedule list` shows the ids")


class ScheduleTaken(OrgaError):
    """A schedule with this id exists already."""

    def __init__(self, schedule_id: str) -> None:
        super().__init__(
            f"there is a schedule {schedule_id!r} already; choose another id, or delete it: "
            f"orga schedule delete {quote(schedule_id)}"
        )


class NoSuchVerdict(OrgaError):
    """The run has no verdict at that place."""


class NoPrompt(OrgaError):
    """The run has no such iteration, or no model was called in it."""


class RunEnded(OrgaError):
    """The run has ended, so it accepts no more signals and updates."""

    def __init__(self, workflow_id: str) -> None:
        super().__init__(f"run {workflow_id!r} has ended; `orga journal {quote(workflow_id)}` shows how")


class Refused(OrgaError):
    """The run refused an update and recorded nothing. The text has the run's reason."""

    kind: str = ""
    """The run's name for this kind of refusal, if it has one."""
    details: Sequence[Any] = ()
    """Details that the run reports with its reason."""


class SessionBusy(Refused):
    """A turn is under way, and the message was sent with `when_busy="refuse"`."""


class QueueFull(Refused):
    """Too many messages already wait for their turns."""


class SessionClosed(Refused):
    """The session accepts no more messages, because it is ending."""


class TurnUnknown(Refused):
    """The turn does not exist, or it is too old: a session keeps only the results of its last turns."""


class StaleSettings(Refused):
    """Somebody has saved the settings since they were read."""


class InvalidSettings(Refused):
    """Settings that the workers' configuration does not allow. Nothing was saved."""

    def __init__(self, problems: "Sequence[SettingProblem]") -> None:
        super().__init__("; ".join(f"{problem.where}: {problem.detail}" for problem in problems))
        self.problems = tuple(problems)


REFUSALS = {kind.__name__: kind for kind in (SessionBusy, QueueFull, SessionClosed, TurnUnknown, StaleSettings)}
"""Refusals with a class of their own, by the name that the run gives the refusal."""


class TooLong(Refused):
    """A signal or an update is longer than a run accepts. It was not sent."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"not sent: it has {size:,} bytes and a run takes no more than {limit:,}; put it into a file that the "
            "agent reads"
        )


class PastRefused(OrgaError):
    """The run's past does not allow this rewind or fork."""


class NotAnAgent(OrgaError):
    """The id belongs to a workflow of another type."""

    def __init__(self, workflow_id: str, workflow_type: str, wanted: Collection[str] = ()) -> None:
        suffix = f"; this takes only {' and '.join(wanted)}" if wanted else ", not a run of orga"
        super().__init__(f"{workflow_id!r} is a workflow of type {workflow_type}{suffix}")


class UnreadableRun(OrgaError):
    """The client lacks the payload codec or the external storage of the run's application."""

    def __init__(self, text: str = "") -> None:
        super().__init__(
            text
            or "the values of this run are encoded by a payload codec that this client does not have; read it in code "
            "with the client of its application: orga.AgentHandle(client, id)"
        )


class NoAnswer(OrgaError):
    """No worker answers on the run's task queue. Only a worker can answer queries and updates."""

    # Each subclass has a text of its own, so its `__init__` calls that of OrgaError, not this one.

    def __init__(self, task_queue: str, command: str = "orga worker", worker: str = "worker") -> None:
        super().__init__(
            f"no {worker} answered on task queue {task_queue!r}; start one with: {command} (`orga journal` needs none)"
        )


class TaskFails(NoAnswer):
    """The run's workflow task keeps failing. Workers are running, but none can continue the run."""

    def __init__(self, workflow_id: str, problem: str, way_out: str) -> None:
        OrgaError.__init__(self, f"run {workflow_id!r} cannot go on: {problem}; {way_out}")


class NotTakenYet(NoAnswer):
    """It is unknown whether an update takes effect, because no worker answered or the server was lost."""

    def __init__(self, why: str, remedy: str, *, message_id: str = "") -> None:
        sent = "message" if message_id else "decision"
        safe_repeat = f", or send it with message_id={message_id!r}: so it is taken once" if message_id else ""
        OrgaError.__init__(
            self,
            f"the {sent} is not known to be taken: {why}; {remedy}, and look at `orga status` before you send it "
            f"again{safe_repeat}",
        )
        self._why_and_remedy = (why, remedy)
        self.message_id: str = message_id
        """The id of a message to a session, or "" for a decision. A message that is sent again with its id counts
        once."""

    def of_message(self, message_id: str) -> "NotTakenYet":
        """Return the same error for a message that was sent to a session under this id."""
        return NotTakenYet(*self._why_and_remedy, message_id=message_id)


class NotSavedYet(NoAnswer):
    """It is unknown whether settings were saved, because no worker has answered."""

    def __init__(self, task_queue: str) -> None:
        OrgaError.__init__(
            self,
            f"settings: no worker on task queue {task_queue!r} has answered, and they may still be saved when one "
            "comes. Start a worker, and read them again before you save",
        )


class ServerLost(OrgaError):
    """The Temporal server cannot be reached at the moment, or does not give a usable answer."""

    def __init__(self, symptom: str) -> None:
        super().__init__(f"{symptom}; see `orga doctor`")
        self.symptom = symptom
        """The symptom, without the remedy."""


class ServerUnavailable(OrgaError):
    """No server is available. The text is one line: the cause, then the remedy."""

    def __init__(self, cause: str, remedy: str) -> None:
        super().__init__(f"{cause}; {remedy}")
        self.cause = cause
        self.remedy = remedy


class RunFailed(OrgaError):
    """The workflow failed because of invalid input or a defect, or an operator terminated it."""
