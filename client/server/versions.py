"""Deployment versions of workers and runs, as the server reports them: which workers take the tasks of a run."""

from dataclasses import dataclass

from temporalio.api.deployment.v1 import WorkerDeploymentVersion as DescribedVersion
from temporalio.api.enums.v1 import VersioningBehavior, WorkerVersioningMode
from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.common import WorkerDeploymentVersion as Version

from orga.client.server.pollers import describe_queue, live_pollers


@dataclass(frozen=True)
class Routing:
    """The versions of a queue's workflow tasks. None means workers without a version."""

    current: Version | None
    """The version that takes new runs, and runs that have no version yet."""
    polled: frozenset[Version | None]
    """The versions of the workers that poll."""
    is_ramping: bool = False
    """True if another version takes a part of the new runs."""

    @property
    def is_served(self) -> bool:
        """True if a worker takes new runs."""
        return self.current in self.polled

    @property
    def has_versions(self) -> bool:
        return self.current is not None or bool(self.waiting_versions)

    @property
    def waiting_versions(self) -> list[Version]:
        """The versions whose workers poll but take no new runs."""
        waiting = [version for version in self.polled if version is not None and version != self.current]
        return sorted(waiting, key=Version.to_canonical_string)

    def may_serve(self, run: WorkflowExecutionDescription) -> bool:
        """Return whether a worker polls that takes the run's tasks."""
        if (version := pinned_version(run)) is not None:
            return version in self.polled
        return self.is_served or (self.is_ramping and bool(self.polled))


async def routing(client: Client, task_queue: str) -> Routing | None:
    """Return the versions of a queue, or None if the server does not report them."""
    answer = await describe_queue(client, task_queue)
    if answer is None:
        return None
    versioned = WorkerVersioningMode.WORKER_VERSIONING_MODE_VERSIONED
    polled = set[Version | None]()
    for options in (poller.deployment_options for poller in live_pollers(answer)):
        is_versioned = options.worker_versioning_mode == versioned
        polled.add(Version(options.deployment_name, options.build_id) if is_versioned else None)
    versions = answer.versioning_info
    current = _parsed_version(versions.current_deployment_version)
    return Routing(current, frozenset(polled), is_ramping=versions.ramping_version_percentage > 0)


async def may_be_served(client: Client, run: WorkflowExecutionDescription) -> bool:
    """Return whether a worker may be running that takes the run. False only if the server reports that none polls."""
    queue_routing = await routing(client, run.task_queue)
    return queue_routing is None or queue_routing.may_serve(run)


def pinned_version(run: WorkflowExecutionDescription) -> Version | None:
    """Return the only version that takes the run's tasks. None if the run goes to whatever version is current."""
    info = run.raw_description.workflow_execution_info.versioning_info
    override = info.versioning_override
    if override.HasField("pinned"):
        return _parsed_version(override.pinned.version)
    is_pinned = info.behavior == VersioningBehavior.VERSIONING_BEHAVIOR_PINNED and not override.auto_upgrade
    return _parsed_version(info.deployment_version) if is_pinned else None


def _parsed_version(described: DescribedVersion) -> Version | None:
    return Version(described.deployment_name, described.build_id) if described.build_id else None
