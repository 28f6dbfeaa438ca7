"""Deployment versions: a run stays on the worker version that it began on until it continues as new.

The versions are Temporal's: the name of a deployment, and the build of the worker's code. The server's operator decides
which version takes new runs.
"""

import re
import sys
from base64 import b32encode
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from shlex import quote

from temporalio.api.deployment.v1 import WorkerDeploymentVersion as DescribedVersion
from temporalio.api.enums.v1 import VersioningBehavior, WorkerVersioningMode
from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.common import WorkerDeploymentVersion as Version

from orga.client.server.endpoint import Endpoint
from orga.client.server.pollers import describe_queue, live_pollers
from orga.own_code import sources

LIBRARIES = ("google-re2", "minijinja", "opentelemetry-api", "pydantic", "pydantic-core", "rapidfuzz", "temporalio")
"""Libraries that workflow code imports. Another version may decide differently."""

BUILD_CHARS = 6
"""Base32 characters of a build id, with 5 bits each. They are few, because three events per task contain the id. In a
hundred builds, the probability that any two have the same id is 1 in 200,000."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@cache
def build_id() -> str:
    """Return the build id of this process. All installations of the same code have the same id."""
    return digest_of(sources(), {"python": f"{sys.version_info[:2]}", **{name: version(name) for name in LIBRARIES}})


def digest_of(code: Iterable[tuple[str, bytes]], versions: dict[str, str]) -> str:
    digest = sha256(repr(sorted(versions.items())).encode())
    for name, source in code:
        digest.update(name.encode() + b"/" + sha256(source).digest())
    return b32encode(digest.digest()).decode().lower()[:BUILD_CHARS]


def deployment_version(deployment: str) -> Version:
    """Return this process's version of a deployment. Raise ValueError if the name is invalid."""
    return Version(deployment_name(deployment), build_id())


@dataclass(frozen=True)
class Routing:
    """The versions of a queue's workflow tasks. None means workers without a version."""

    current: Version | None
    """The version that takes new runs, and runs that have no version yet."""
    polled: frozenset[Version | None]
    """The versions of the workers that poll."""

    @property
    def is_served(self) -> bool:
        """True if a worker takes new runs."""
        return self.current in self.polled

    @property
    def waiting_versions(self) -> list[Version]:
        """The versions whose workers poll but take no new runs."""
        waiting = [version for version in self.polled if version is not None and version != self.current]
        return sorted(waiting, key=Version.to_canonical_string)


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
    return Routing(_parsed_version(answer.versioning_info.current_deployment_version), frozenset(polled))


async def is_version_missing(client: Client, task_queue: str, version: Version | None) -> bool:
    """Return whether a run is pinned to a version, and no worker of that version polls."""
    if version is None:
        return False
    versions = await routing(client, task_queue)
    return versions is not None and version not in versions.polled


def deployment_name(text: str) -> str:
    """Return the name unchanged. Raise ValueError if it is invalid: the server reserves `.` and `:`."""
    if not _NAME.fullmatch(text):
        raise ValueError(f"--deployment {text!r}: 1 to 64 letters, digits, - and _, the first a letter or a digit")
    return text


def make_current_command(version: Version, server: Endpoint) -> str:
    server_options = f"--address {server.address} --namespace {quote(server.namespace)}"
    version_options = f"--deployment-name {version.deployment_name} --build-id {version.build_id}"
    return f"temporal worker deployment set-current-version {server_options} {version_options}"


def no_workers_text(current: Version, task_queue: str) -> str:
    """Return the message that no worker of the current version polls, so new runs wait."""
    name = current.to_canonical_string()
    start = f"start one of that build with: orga worker --deployment {current.deployment_name}"
    return f"runs on task queue {task_queue!r} go to version {name}, of which no worker polls: {start}"


def pinned_version(run: WorkflowExecutionDescription) -> Version | None:
    info = run.raw_description.workflow_execution_info.versioning_info
    is_pinned = info.behavior == VersioningBehavior.VERSIONING_BEHAVIOR_PINNED
    return _parsed_version(info.deployment_version) if is_pinned else None


def _parsed_version(described: DescribedVersion) -> Version | None:
    return Version(described.deployment_name, described.build_id) if described.build_id else None
