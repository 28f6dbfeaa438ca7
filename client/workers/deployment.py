"""Deployment versions: a run stays on the version of the worker that it began on until it continues as new.

Versions are Temporal's: a deployment by name, and the build of the worker's code in it. Which of them takes new runs is
for whoever operates the server to say.
"""

import sys
from base64 import b32encode
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from typing import Any

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.worker import WorkerDeploymentConfig, WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner

from orga.client.runners.wrapped import WrappedInstance, WrappedRunner
from orga.client.workers.routing import deployment_name
from orga.own_code import sources

LIBRARIES = ("google-re2", "minijinja", "opentelemetry-api", "pydantic", "pydantic-core", "rapidfuzz", "temporalio")
"""What workflow code imports besides ours: another version may answer otherwise."""

BUILD_CHARS = 6
"""Of base32, 30 bits: two of a hundred builds are the same once in 200,000 times. It stands in three events of every
workflow and activity task, so it is short."""


@cache
def build_id() -> str:
    """Return the build of this process, the same wherever the same code is installed."""
    return digest_of(sources(), {"python": f"{sys.version_info[:2]}", **{name: version(name) for name in LIBRARIES}})


def digest_of(code: Iterable[tuple[str, bytes]], versions: dict[str, str]) -> str:
    """Return the build that this code is, with these libraries."""
    found = sha256(repr(sorted(versions.items())).encode())
    for name, source in code:
        found.update(name.encode() + b"/" + sha256(source).digest())
    return b32encode(found.digest()).decode().lower()[:BUILD_CHARS]


def deployment_version(deployment: str) -> WorkerDeploymentVersion:
    """Return the version that this process is in a deployment.

    Raises:
        ValueError: It cannot be the name of one.
    """
    return WorkerDeploymentVersion(deployment_name(deployment), build_id())


def worker_options(version: WorkerDeploymentVersion | None, runner: WorkflowRunner) -> dict[str, Any]:
    """Return what makes a worker one of that version; without one it takes any run that no version has to itself."""
    if version is None:
        return {"build_id": build_id(), "unsandboxed_workflow_runner": runner}
    pinned = VersioningBehavior.PINNED
    config = WorkerDeploymentConfig(version, use_worker_versioning=True, default_versioning_behavior=pinned)
    return {"deployment_config": config, "unsandboxed_workflow_runner": UnpinningRunner(runner)}


class UnpinningRunner(WrappedRunner):
    """Lets the last workflow task of a run that continues as new say that the run is pinned no more.

    The command itself says so, too (`initial_versioning_behavior`), but servers up to 1.29 at least do not look there:
    a run of theirs that is pinned hands its version on for ever.
    """

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Create the instance, which lets go of its version when its run continues as new."""
        return _UnpinningInstance(super().create_instance(det))


class _UnpinningInstance(WrappedInstance):
    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        completion = super().activate(act)
        if any(command.HasField("continue_as_new_workflow_execution") for command in completion.successful.commands):
            completion.successful.versioning_behavior = VersioningBehavior.AUTO_UPGRADE.value  # pyright: ignore
        return completion
