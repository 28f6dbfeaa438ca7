"""Connects to the configured Temporal server, or starts and uses the embedded one. For applications and commands."""

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from temporalio.client import (
    Client,
    Interceptor,
    OutboundInterceptor,
    Plugin,
    StartWorkflowUpdateInput,
    WorkflowUpdateFailedError,
    WorkflowUpdateHandle,
)
from temporalio.service import GrpcCompression

from orga.client.config.file import load_config
from orga.client.config.policy import starter_policy
from orga.client.config.sections import OrgaConfig
from orga.client.config.workplace import folder_queue, own_queue, set_client_home, workplace
from orga.client.errors import ServerUnavailable
from orga.client.history.values import data_converter
from orga.client.server.embedded import ensure_server
from orga.client.server.endpoint import Endpoint, Report, lease
from orga.client.server.pollers import WorkerIdentity, local_process, short_config, short_policy
from orga.client.server.resolve import CONNECT_TIMEOUT_S, connect_options, resolve_endpoint
from orga.client.server.server_errors import explain_failure
from orga.workflows.types.workplace import Workplace


@dataclass(frozen=True)
class Connection:
    """A client, and the server that it is connected to."""

    client: Client
    endpoint: Endpoint
    workplace: Workplace
    task_queue: str
    """The queue of the runs that it starts, and of their workers."""
    folder_queue: str
    """On the embedded server, the queue of the folder. `task_queue` is then this, or a longer name if the shell has
    model settings. On a configured server, both are the same."""

    def with_ui(self, ui: str | None) -> "Connection":
        """Return the connection with this UI address, or unchanged if there is none."""
        return replace(self, endpoint=replace(self.endpoint, ui=ui.rstrip("/"))) if ui else self

    def link(self, workflow_id: str) -> str | None:
        """Return the run's page in the Temporal UI, or None if the UI's address is unknown."""
        ui, namespace = self.endpoint.ui, self.endpoint.namespace
        return None if ui is None else run_page(ui, namespace, workflow_id)


def run_page(ui: str, namespace: str, workflow_id: str) -> str:
    """Return the address of a run's page in a Temporal UI."""
    return f"{ui.rstrip('/')}/namespaces/{namespace}/workflows/{quote(workflow_id, safe='')}"


@asynccontextmanager
async def connect(config: OrgaConfig | None = None) -> AsyncGenerator[Client]:
    """Yield a client for `start_agent`, `orga.runs` and the other functions of `orga`.

    Use it as `async with connect() as client: handle = await start_agent(client, "…")`. Without a configured server,
    the embedded server is started, and is kept running until the block ends. `start_agent` sends runs to the task queue
    that the workers of this folder and configuration poll.

    Raises:
        ServerUnavailable: The configured server does not answer, or the embedded one cannot be started.
        ConfigError: No `config` is given, and `orga.toml` cannot be used.
    """
    async with connection(load_config() if config is None else config, lambda _: None) as connected:
        yield connected.client


@asynccontextmanager
async def connection(
    config: OrgaConfig,
    report: Report,
    plugins: Sequence[Plugin] = (),
    *,
    root: Path | None = None,
    is_worker: bool = False,
) -> AsyncGenerator[Connection]:
    """Yield a connection as `connect` does.

    Args:
        root: The root of the file tools, if it differs from the configuration's.
        is_worker: True if this process serves runs. On a configured server, other workers then see its policy.
    """
    own_workplace = workplace(config, root)
    temporal = config.temporal
    endpoint = await resolve_endpoint(temporal.address, report, namespace=temporal.namespace)
    with lease() if endpoint.embedded else nullcontext():
        if endpoint.embedded:
            endpoint = await ensure_server(report)  # an idle server may have stopped before this lease began
        queue = own_queue(config, own_workplace, embedded=endpoint.embedded)
        if endpoint.embedded:
            policy, home, queue_of_folder = "", own_workplace, folder_queue(own_workplace)
        else:
            policy, home, queue_of_folder = starter_policy(config) if is_worker else "", None, queue
        identity = WorkerIdentity(local_process(os.getpid()), short_config(own_workplace), short_policy(policy))
        client = await _connect_client(endpoint, plugins, str(identity))
        set_client_home(client, queue, home, partial(starter_policy, config))
        yield Connection(client, endpoint, own_workplace, queue, queue_of_folder)


async def _connect_client(endpoint: Endpoint, plugins: Sequence[Plugin], identity: str) -> Client:
    # On one machine, compression only costs time. For a full history, it adds seconds to the first workflow task.
    compression = GrpcCompression.NONE if endpoint.embedded else GrpcCompression.GZIP
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            return await Client.connect(
                **connect_options(endpoint),
                grpc_compression=compression,
                data_converter=data_converter,
                plugins=plugins,
                interceptors=[UpdateReasons()],
                identity=identity,
            )
    except (RuntimeError, ValueError, TimeoutError) as error:
        cause = await explain_failure(error, endpoint.address) or "timeout"
        raise ServerUnavailable(
            f"the Temporal server at {endpoint.address} does not answer ({cause})", "check that it runs"
        ) from error


class UpdateReasons(Interceptor):
    """Adds the reason to the error of a refused update. The SDK's text is only "Workflow update failed"."""

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        return _WithReasons(next)


class _WithReasons(OutboundInterceptor):
    async def start_workflow_update(self, input: StartWorkflowUpdateInput) -> WorkflowUpdateHandle[Any]:
        handle = object.__new__(_UpdateHandle)  # a copy of the SDK's handle, but of our class
        vars(handle).update(vars(await super().start_workflow_update(input)))
        return handle


class _UpdateHandle(WorkflowUpdateHandle[Any]):
    async def result(self, **options: Any) -> Any:
        try:
            return await super().result(**options)
        except WorkflowUpdateFailedError as error:
            raise _UpdateFailed(error.cause) from error.cause


class _UpdateFailed(WorkflowUpdateFailedError):
    def __str__(self) -> str:
        return f"{super().__str__()}: {self.cause}"
