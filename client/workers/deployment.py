"""Deployment versions: a run stays on the worker version that it began on until it continues as new.

The versions are Temporal's: the name of a deployment, and the build of the worker's code. The server's operator decides
which version takes new runs.
"""

import re
import sys
from base64 import b32encode
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from shlex import quote

from temporalio.common import WorkerDeploymentVersion as Version

from orga.client.server.endpoint import Endpoint
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
