"""One real Temporal server for each process of the suite."""

import gc
import os
import sys
from collections.abc import AsyncGenerator, Generator

import pytest
from hypothesis import HealthCheck, settings
from temporalio.client import Client
from temporalio.service import GrpcCompression
from temporalio.testing import WorkflowEnvironment
from xdist.remote import Producer

from orga.client.history.values import data_converter
from tests.support.parts.limits import cancel_in_time
from tests.support.parts.scheduling import Files
from tests.support.parts.temporal import server_database, temporal_cli
from tests.support.values.planted import planted

# Processes of the suite keep compiled code, even where the environment forbids it. Otherwise thousands of them would
# compile all of it again, which takes as long as all tests together.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

os.environ.update(planted())  # no history, no output and no database of the suite may hold one of them
settings.register_profile(
    "suite", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
settings.load_profile("suite")  # how long an example takes is the machine's; a test cleans up itself
os.environ.setdefault("GOMAXPROCS", "1")  # each process of the suite has a server, which works less with one thread
os.environ["ORGA_TRUST"] = "1"  # the suite wrote the configurations itself; what asks for trust is tested without

SERVER_ARGUMENTS = [
    "--dynamic-config-value",
    "history.transferProcessorMaxPollRPS=10000",
    "--dynamic-config-value",
    "system.enableActivityEagerExecution=true",
    "--dynamic-config-value",
    "history.workflowIdReuseMinimalInterval=0",  # else a run waits a second before it continues as new
]


@pytest.fixture(scope="session")
def temporal() -> str:
    """The `temporal` executable, obtained if need be."""
    return str(temporal_cli())


@pytest.fixture(scope="session")
async def client(temporal: str) -> AsyncGenerator[Client]:
    """A client of a server of its own."""
    with server_database() as database:
        async with await _server(temporal, database) as environment:
            yield await _without_compression(environment.client)


async def _without_compression(client: Client) -> Client:
    """Connect as to the embedded server: compressing the largest histories takes seconds of a workflow task."""
    return await Client.connect(
        client.service_client.config.target_host,
        data_converter=data_converter,
        grpc_compression=GrpcCompression.NONE,
    )


async def _server(temporal: str, database: str, starts: int = 3) -> WorkflowEnvironment:
    """Return a server; the SDK gives it 5 s, which is little where four start at once on two cores."""
    try:
        return await WorkflowEnvironment.start_local(  # pyright: ignore[reportUnknownMemberType]
            dev_server_existing_path=temporal,
            dev_server_database_filename=database,
            data_converter=data_converter,
            dev_server_extra_args=SERVER_ARGUMENTS,
        )
    except RuntimeError as error:
        if starts == 1 or "within 5s" not in str(error):
            raise
        return await _server(temporal, database, starts - 1)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Let the garbage collector skip the tests themselves, which are 19,000: a full collection takes 0.3 s less."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Cancel what stands still."""
    if isinstance(item, pytest.Function):
        cancel_in_time(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let reports travel between processes: what hostile tests log is not always text that can be encoded."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Files:
    """Share the tests out by files."""
    return Files(config, log)
