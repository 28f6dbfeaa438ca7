"""Checks that an application's own workflows, activities and converter fit next to ours in one worker."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

from temporalio import activity, workflow
from temporalio.client import Client, Plugin
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import DataConverter, DefaultPayloadConverter
from temporalio.worker import WorkerConfig

from orga.client.errors import ConfigError
from orga.client.history.converter import FrugalPayloadConverter
from orga.client.workers.registered import Registrations
from orga.workflows.types.names import OWN_ACTIVITIES

_PLAIN_CONVERTERS = (DefaultPayloadConverter, PydanticPayloadConverter)
"""Converters whose values ours can also read and write."""

ON_THE_CLIENT = "Client.connect(..., plugins=[plugin])"


def with_our_converter(converter: DataConverter) -> DataConverter:
    """Put our payload converter in place of a standard one. Raise ConfigError if the application has its own."""
    own = converter.payload_converter_class
    if issubclass(own, FrugalPayloadConverter):
        return converter
    if own not in _PLAIN_CONVERTERS and not _is_plain(own):
        raise ConfigError(
            f"the client's payload converter {own.__qualname__} is not orga's, which its runs need; derive yours from "
            "orga.client.history.converter.FrugalPayloadConverter, or do what it does in a payload codec"
        )
    return replace(converter, payload_converter_class=FrugalPayloadConverter)


def _is_plain(own: type[Any]) -> bool:
    """Return whether it is the class of `pydantic_data_converter`, or another such converter of the SDK."""
    return issubclass(own, _PLAIN_CONVERTERS) and own.__module__.startswith("temporalio.")


def worker_client(config: WorkerConfig, plugin: Plugin) -> Client:
    """Return the client of a worker.

    Raises:
        ConfigError: The client writes values in another way than our runs. Either it does not have the plugin, or a
            later plugin has replaced our converter.
    """
    client = cast("dict[str, Client]", config)["client"]
    known = client.config(active_config=True)
    own = known["data_converter"].payload_converter_class
    if not issubclass(own, FrugalPayloadConverter):
        if plugin in known["plugins"]:
            raise ConfigError(
                f"another plugin of the client writes values by {own.__qualname__} in place of orga's converter; put "
                "OrgaPlugin last, plugins=[..., plugin]"
            )
        raise ConfigError(f"give OrgaPlugin to the client, {ON_THE_CLIENT}: its workers take it from there")
    return client


def refuse_shared_names(
    workflows: Sequence[type[Any]],
    activities: Sequence[Callable[..., Any]],
    ours: Registrations,
    in_code: Collection[str],
) -> None:
    """Refuse workflows and activities that have one of our names, since one would hide the other.

    Args:
        ours: Our registrations for the same worker.
        in_code: Names of tools that the application gave in code.

    Raises:
        ConfigError: The text names each, and what to do.
    """
    if any(each in workflows for each in ours.workflows):
        raise ConfigError(
            f"OrgaPlugin is given twice: give it to the client alone, {ON_THE_CLIENT}, one for all agents, and do not "
            "list AgentWorkflow, GoalWorkflow or SessionWorkflow among the worker's workflows"
        )
    names = {_workflow_name(each) for each in ours.workflows}
    faults = [
        f"workflow {each.__qualname__}: orga has one of the name {name!r}; name yours differently, "
        '@workflow.defn(name="...")'
        for each in workflows
        if (name := _workflow_name(each)) in names
    ]
    faults += _shared_activities(activities, ours, in_code)
    if faults:
        raise ConfigError("\n".join(faults))


def _shared_activities(
    activities: Sequence[Callable[..., Any]], ours: Registrations, in_code: Collection[str]
) -> Iterator[str]:
    taken = {_activity_name(each) for each in ours.activities}
    for each in activities:
        name, label = _activity_name(each), getattr(each, "__qualname__", each)
        if name not in taken:
            continue
        if name is None:
            yield f"activity {label}: it is dynamic, and MCP servers need the one dynamic activity; give it a name"
        elif name in in_code:
            yield (
                f"activity {label}: it is registered as {name!r}, and a tool of that name is given to agents; name "
                'the tool differently, @tool(name="..."), or leave the activity to them'
            )
        else:
            what = "an activity" if name in OWN_ACTIVITIES else "a tool"
            yield f'activity {label}: orga has {what} {name!r}; name yours differently, @activity.defn(name="...")'


def _workflow_name(kind: type[Any]) -> str | None:
    return workflow._Definition.must_from_class(kind).name


def _activity_name(function: Callable[..., Any]) -> str | None:
    return activity._Definition.must_from_callable(function).name  # pyright: ignore[reportUnknownMemberType]
