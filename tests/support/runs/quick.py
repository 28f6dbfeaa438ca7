"""Laws over many random runs: their number, and a server and workers that need little time for each."""

import os
from collections.abc import AsyncGenerator

import pytest
from hypothesis import HealthCheck, settings
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from orga.client.history.values import data_converter
from tests.conftest import SERVER_ARGUMENTS
from tests.support.parts.temporal import server_database

NO_PAUSE_BETWEEN_RUNS = ["--dynamic-config-value", 'history.workflowIdReuseMinimalInterval="1ms"']
"""The server delays the continue-as-new of a run of less than a second."""


def some(examples: int) -> settings:
    """Return settings for this many runs, always the same ones. `ORGA_LAW_RUNS=500` draws others, and more."""
    more = int(os.environ.get("ORGA_LAW_RUNS", "0"))
    return settings(
        max_examples=more or examples,
        derandomize=not more,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
    )


@pytest.fixture(scope="module")
async def quick(temporal: str) -> AsyncGenerator[Client]:
    """A client of a server that continues as new at once."""
    with server_database() as database:
        async with await WorkflowEnvironment.start_local(  # pyright: ignore[reportUnknownMemberType]
            dev_server_existing_path=temporal,
            dev_server_database_filename=database,
            data_converter=data_converter,
            dev_server_extra_args=[*SERVER_ARGUMENTS, *NO_PAUSE_BETWEEN_RUNS],
        ) as environment:
            yield environment.client
