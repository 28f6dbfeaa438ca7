"""What can go wrong for a user of the client, each as one line: the cause, then the remedy."""


class OrgaError(Exception):
    """A failure that a user can mend."""


class RunNotFound(OrgaError):
    """No run has this id."""

    def __init__(self, workflow_id: str) -> None:
        super().__init__(f"there is no run {workflow_id!r}; `orga list` shows the ids")


class RunEnded(OrgaError):
    """The run has ended, so it takes no more signals."""

    def __init__(self, workflow_id: str) -> None:
        super().__init__(f"run {workflow_id!r} has ended; `orga journal {workflow_id}` shows how")


class Refused(OrgaError):
    """The run turned a decision away before it reached its history; it says why."""


class NotAnAgent(OrgaError):
    """The id belongs to a workflow of another type."""

    def __init__(self, workflow_id: str, workflow_type: str) -> None:
        super().__init__(f"{workflow_id!r} is a workflow of type {workflow_type}, not a run of orga")


class NoAnswer(OrgaError):
    """A query got no answer: only a worker can answer it."""

    def __init__(self, task_queue: str) -> None:
        super().__init__(
            f"no worker answered on task queue {task_queue!r}; start one with `orga worker` (`orga journal` needs none)"
        )


class NotTakenYet(NoAnswer):
    """A decision was sent, but no worker took it in time: a worker that was there a moment ago has gone."""

    def __init__(self, task_queue: str) -> None:
        super().__init__(task_queue)
        self.args = (
            f"no worker on task queue {task_queue!r} has taken the decision yet; it may take effect when one comes: "
            "start one with `orga worker`, and look at `orga status` before you send it again",
        )


class RunFailed(OrgaError):
    """The workflow itself failed: invalid input, or a defect."""
