"""A worker of an application with our parts: compatible settings stay, others are refused with a remedy."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from temporalio import activity, workflow
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, ClientConfig, Plugin
from temporalio.common import RawValue, VersioningBehavior, WorkerDeploymentVersion
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DataConverter, DefaultPayloadConverter, PayloadCodec
from temporalio.plugin import SimplePlugin
from temporalio.service import ServiceClient
from temporalio.worker import UnsandboxedWorkflowRunner, Worker, WorkerConfig, WorkerDeploymentConfig, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from orga import AgentWorkflow, OrgaPlugin, tool
from orga.client.config.file import NO_FILE
from orga.client.errors import ConfigError
from orga.client.history.values import FrugalPayloadConverter, data_converter
from orga.client.runners.workflows import SharedRunner
from orga.client.workers.core_faults import SHUTDOWN_GRACE
from orga.client.workers.registrations import HEARTBEAT_THROTTLE, WORKFLOW_TASKS


class Codec(PayloadCodec):
    """A codec that does nothing."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return list(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return list(payloads)


class OwnConverter(DefaultPayloadConverter):
    """The converter of an application that writes values in its own way."""


class Replacing(SimplePlugin):
    """A plugin with its own converter."""

    def configure_client(self, config: ClientConfig) -> ClientConfig:
        config["data_converter"] = replace(DataConverter.default, payload_converter_class=OwnConverter)
        return config


class DerivedConverter(FrugalPayloadConverter):
    """The converter of an application that extends ours."""


@workflow.defn
class Theirs:
    """A workflow of the application."""

    @workflow.run
    async def run(self) -> None: ...


@workflow.defn(name="AgentWorkflow")
class Impostor:
    """A workflow with our name."""

    @workflow.run
    async def run(self) -> None: ...


@activity.defn
async def bill() -> None: ...


@activity.defn(name="gate")
async def gate_of_theirs() -> None: ...


@activity.defn
async def read_file() -> None: ...


@activity.defn(dynamic=True)
async def anything(arguments: Sequence[RawValue]) -> None: ...


@tool(effect="read_only")
@activity.defn
async def look_up(order: str) -> str:
    """Look an order up."""
    return order


class Nowhere:
    """A replacement of a connection."""


def a_plugin(tmp_path: Path, **given: Any) -> OrgaPlugin:
    return OrgaPlugin(config=NO_FILE, root=tmp_path, **given)


def a_client(*plugins: Plugin, converter: DataConverter = DataConverter.default) -> Client:
    return Client(cast("ServiceClient", Nowhere()), plugins=plugins, data_converter=converter)


def configured(plugin: OrgaPlugin, client: Client, **given: Any) -> dict[str, Any]:
    config = {"client": client, "task_queue": "app", **given}
    return cast("dict[str, Any]", plugin.configure_worker(cast("WorkerConfig", config)))


def activity_names(config: dict[str, Any]) -> list[str | None]:
    """Return the names of the activities. A dynamic one has none."""
    return [activity._Definition.must_from_callable(each).name for each in config["activities"]]  # pyright: ignore


def test_our_parts_are_added_to_those_of_the_application(tmp_path: Path) -> None:
    plugin = a_plugin(tmp_path, tools=[look_up])
    config = configured(plugin, a_client(plugin), workflows=[Theirs], activities=[bill], interceptors=["theirs"])
    assert config["workflows"][:2] == [Theirs, AgentWorkflow]
    names = activity_names(config)
    assert names[0] == "bill"
    assert {"prepare", "reason", "gate", "look_up", "read_file"} <= {*names}
    assert config["interceptors"][0] == "theirs"
    assert config["max_concurrent_workflow_tasks"] == WORKFLOW_TASKS
    assert config["max_heartbeat_throttle_interval"] == HEARTBEAT_THROTTLE


@pytest.mark.parametrize(
    ("given", "grace"),
    [
        pytest.param({}, SHUTDOWN_GRACE, id="not configured"),
        pytest.param({"graceful_shutdown_timeout": timedelta(0)}, SHUTDOWN_GRACE, id="the default of a Worker"),
        pytest.param(
            {"graceful_shutdown_timeout": timedelta(minutes=1)}, timedelta(minutes=1), id="the application's own"
        ),
    ],
)
def test_calls_in_flight_get_time_to_end(given: dict[str, Any], grace: timedelta, tmp_path: Path) -> None:
    """An irreversible call that is cancelled immediately has an unknown outcome."""
    plugin = a_plugin(tmp_path)
    assert configured(plugin, a_client(plugin), **given)["graceful_shutdown_timeout"] == grace


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(
            {"workflows": [Theirs, AgentWorkflow]},
            "OrgaPlugin is given twice: give it to the client alone",
            id="the plugin twice",
        ),
        pytest.param(
            {"workflows": [Impostor]},
            "workflow Impostor: orga has one of the name 'AgentWorkflow'; name yours differently, @workflow.defn(",
            id="a workflow with our name",
        ),
        pytest.param(
            {"activities": [gate_of_theirs]},
            "activity gate_of_theirs: orga has an activity 'gate'; name yours differently",
            id="an activity with our name",
        ),
        pytest.param(
            {"activities": [read_file]},
            "activity read_file: orga has a tool 'read_file'",
            id="an activity named like a tool",
        ),
        pytest.param(
            {"activities": [look_up]},
            "look_up: it is registered as 'look_up', and a tool of that name is given to agents; name the tool",
            id="an activity that is also a tool",
        ),
    ],
)
def test_conflicting_names_are_refused(given: dict[str, Any], expected: str, tmp_path: Path) -> None:
    plugin = a_plugin(tmp_path, tools=[look_up])
    with pytest.raises(ConfigError) as refused:
        configured(plugin, a_client(plugin), **given)
    assert expected in str(refused.value)


def test_all_conflicting_names_are_reported_at_once(tmp_path: Path) -> None:
    plugin = a_plugin(tmp_path)
    with pytest.raises(ConfigError) as refused:
        configured(plugin, a_client(plugin), workflows=[Impostor], activities=[gate_of_theirs, bill])
    assert len(str(refused.value).splitlines()) == 2


def test_a_second_dynamic_activity_is_refused(tmp_path: Path) -> None:
    alone, with_server = a_plugin(tmp_path), a_plugin(tmp_path, mcp_servers={"docs": {"command": "true"}})
    for theirs in ([anything], []):
        config = configured(alone, a_client(alone), activities=theirs)
        assert activity_names(config).count(None) == 1, "theirs replaces ours"
    with pytest.raises(ConfigError, match="activity anything: it is dynamic, and MCP servers need"):
        configured(with_server, a_client(with_server), activities=[anything])


def test_a_version_without_a_default_behavior_is_refused(tmp_path: Path) -> None:
    plugin = a_plugin(tmp_path)
    version = WorkerDeploymentVersion("shop", "1")
    lacking = WorkerDeploymentConfig(version, use_worker_versioning=True)
    with pytest.raises(ConfigError, match=r"set default_versioning_behavior=VersioningBehavior\.PINNED"):
        configured(plugin, a_client(plugin), deployment_config=lacking)
    for config in (
        replace(lacking, default_versioning_behavior=VersioningBehavior.PINNED),
        replace(lacking, use_worker_versioning=False),
    ):
        configured(plugin, a_client(plugin), deployment_config=config)


def test_a_worker_whose_client_has_no_plugin_is_refused(tmp_path: Path) -> None:
    """Its values would be written in another way: unset fields would count as set."""
    with pytest.raises(ConfigError, match="give OrgaPlugin to the client"):
        configured(a_plugin(tmp_path), a_client())


def test_another_plugin_that_replaces_our_converter_is_reported(tmp_path: Path) -> None:
    plugin = a_plugin(tmp_path)
    client = a_client(plugin, Replacing("theirs"))
    with pytest.raises(ConfigError, match=r"writes values by OwnConverter in place of orga's.*put OrgaPlugin last"):
        configured(plugin, client)


def test_a_worker_without_a_cache_gets_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plugin = a_plugin(tmp_path)
    configured(plugin, a_client(plugin), max_cached_workflows=1)
    assert not caplog.messages
    configured(plugin, a_client(plugin), max_cached_workflows=0)
    [reported] = caplog.messages
    assert "a worker without a cache loses tasks" in reported


async def test_a_second_plugin_is_refused(tmp_path: Path) -> None:
    one, other = a_plugin(tmp_path), a_plugin(tmp_path)
    with pytest.raises(ConfigError, match="given twice"):
        Worker(a_client(one, other), task_queue="app")


@pytest.mark.parametrize(
    "converter",
    [
        pytest.param(DataConverter.default, id="the default"),
        pytest.param(pydantic_data_converter, id="that of pydantic"),
        pytest.param(data_converter, id="ours"),
        pytest.param(replace(DataConverter.default, payload_codec=Codec()), id="with a codec"),
        pytest.param(replace(data_converter, payload_converter_class=DerivedConverter), id="derived from ours"),
    ],
)
def test_a_client_writes_values_as_ours_and_keeps_its_codec(converter: DataConverter, tmp_path: Path) -> None:
    used = a_client(a_plugin(tmp_path), converter=converter).data_converter
    assert issubclass(used.payload_converter_class, FrugalPayloadConverter)
    assert used.payload_codec is converter.payload_codec


def test_an_unrelated_converter_is_refused(tmp_path: Path) -> None:
    converter = replace(DataConverter.default, payload_converter_class=OwnConverter)
    with pytest.raises(ConfigError, match=r"OwnConverter is not orga's.*payload codec"):
        a_plugin(tmp_path).configure_client(cast("ClientConfig", {"data_converter": converter}))


def test_the_application_keeps_its_sandbox_with_our_modules_passed_through(tmp_path: Path) -> None:
    runner = configured_runner(tmp_path)
    assert isinstance(runner, SandboxedWorkflowRunner)
    assert "orga" in runner.restrictions.passthrough_modules


def test_an_application_without_a_sandbox_gets_none(tmp_path: Path) -> None:
    own = UnsandboxedWorkflowRunner()
    assert configured_runner(tmp_path, workflow_runner=own) is own


def test_an_application_keeps_its_runner_of_unsandboxed_workflows(tmp_path: Path) -> None:
    own, plugin = UnsandboxedWorkflowRunner(), a_plugin(tmp_path)
    runner = configured(plugin, a_client(plugin), unsandboxed_workflow_runner=own)["unsandboxed_workflow_runner"]
    assert isinstance(runner, SharedRunner)
    assert runner._runner is own


def configured_runner(tmp_path: Path, **given: Any) -> WorkflowRunner:
    plugin = a_plugin(tmp_path)
    return configured(plugin, a_client(plugin), **given)["workflow_runner"]
