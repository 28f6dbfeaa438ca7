"""Deployment versions: a run stays on the worker version that it began on until it continues as new.

The versions are Temporal's: the name of a deployment, and the build of the worker's code. The server's operator decides
which version takes new runs.
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

from orga.client.runners.workflows import WrappedInstance, WrappedRunner
from orga.client.workers.routing import deployment_name
from orga.own_code import sources
from orga.workflows.types.names import SETTINGS_WORKFLOW

LIBRARIES = ("google-re2", "minijinja", "opentelemetry-api", "pydantic", "pydantic-core", "rapidfuzz", "temporalio")
"""Libraries that workflow code imports. Another version may decide differently."""

BUILD_CHARS = 6
"""Characters in base32, 30 bits: among a hundred builds, two are equal once in 200,000 times. The build id is part of
three events per workflow and activity task, so it is short."""


@cache
def build_id() -> str:
    """Return the build id of this process. It is the same wherever the same code is installed."""
    return digest_of(sources(), {"python": f"{sys.version_info[:2]}", **{name: version(name) for name in LIBRARIES}})


def digest_of(code: Iterable[tuple[str, bytes]], versions: dict[str, str]) -> str:
    found = sha256(repr(sorted(versions.items())).encode())
    for name, source in code:
        found.update(name.encode() + b"/" + sha256(source).digest())
    return b32encode(found.digest()).decode().lower()[:BUILD_CHARS]


def deployment_version(deployment: str) -> WorkerDeploymentVersion:
    """Raise ValueError if the name is invalid."""
    return WorkerDeploymentVersion(deployment_name(deployment), build_id())


def worker_options(version: WorkerDeploymentVersion | None, runner: WorkflowRunner) -> dict[str, Any]:
    """Return the options that make a worker one of this version. Without a version, it takes runs that have none."""
    if version is None:
        return {"build_id": build_id(), "unsandboxed_workflow_runner": runner}
    pinned = VersioningBehavior.PINNED
    config = WorkerDeploymentConfig(version, use_worker_versioning=True, default_versioning_behavior=pinned)
    return {"deployment_config": config, "unsandboxed_workflow_runner": UnpinningRunner(runner)}


class UnpinningRunner(WrappedRunner):
    """Unpins a run in its last workflow task before it continues as new.

    The continue-as-new command itself says so too (`initial_versioning_behavior`), but servers up to at least 1.29
    ignore
    that: a pinned run would keep its version for ever.
    """

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Create an instance that gives up its version when its run continues as new, and never pins settings."""
        return _UnpinningInstance(super().create_instance(det), is_pinned=det.info.workflow_type != SETTINGS_WORKFLOW)


class _UnpinningInstance(WrappedInstance):
    def __init__(self, instance: WorkflowInstance, *, is_pinned: bool) -> None:
        super().__init__(instance)
        self._is_pinned = is_pinned

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        completion = super().activate(act)
        if not self._is_pinned or any(
            command.HasField("continue_as_new_workflow_execution") for command in completion.successful.commands
        ):
            completion.successful.versioning_behavior = VersioningBehavior.AUTO_UPGRADE.value  # pyright: ignore
        return completion
