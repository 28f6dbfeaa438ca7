"""Temporal's time-skipping test server, also on systems that lack its requirements."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from temporalio.testing import WorkflowEnvironment

from orga.client.testing.skipping_server import fetch_with_maven, fetched_launcher, skipping_server
from tests.support.parts.machine_lock import machine_lock
from tests.support.parts.system_packages import require

_LOCK = Path(__file__).parents[3] / ".cache" / "temporal-test-server.lock"


@asynccontextmanager
async def time_skipping() -> AsyncGenerator[WorkflowEnvironment]:
    """Start a server of its own and stop it again."""
    prepared_test_server()
    async with skipping_server() as environment:
        yield environment


def prepared_test_server() -> Path:
    """Return the launcher of the test server. Java, Maven and the server are installed first if they are missing."""
    with machine_lock(_LOCK):
        require("java", "default-jre-headless")
        if found := fetched_launcher():
            return found
        require("mvn", "maven")
        return fetch_with_maven()
