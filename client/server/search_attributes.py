"""Registers our search attributes on a server, and checks if runs can use them."""

from collections.abc import Sequence
from typing import Any

from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError, RPCStatusCode

from orga.client.errors import OrgaError
from orga.client.server.endpoint import Report
from orga.client.server.server_errors import is_unsupported
from orga.workflows.types.names import KEYS

WITHOUT_ATTRIBUTES = "runs go on without them, and cannot be found by agent, phase, cost or what they wait for"


class SearchAttributesRefused(OrgaError):
    """Our search attributes cannot be registered. The text has the remedy."""


class NoSearchAttributes(SearchAttributesRefused):
    """The server does not support search attributes."""

    def __init__(self) -> None:
        super().__init__(f"the server knows no search attributes, as Temporal's test server: {WITHOUT_ATTRIBUTES}")


def type_name(key: SearchAttributeKey[Any]) -> str:
    """Return the type as Temporal's commands write it: `Keyword`, `Int`, `Double`."""
    return key.indexed_value_type.name.title().replace("_", "")


async def missing_names(client: Client) -> list[str]:
    """Return the names of our search attributes that the client's namespace lacks.

    Raise SearchAttributesRefused if a name has another type, or the server does not list the names.
    """
    try:
        listed = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=client.namespace), retry=True
        )
    except RPCError as error:
        if is_unsupported(error):
            raise NoSearchAttributes from error
        raise _refused_error(client, KEYS, error) from error
    for key in KEYS:
        registered_type = listed.custom_attributes.get(key.name, key.indexed_value_type)
        if registered_type != key.indexed_value_type:
            raise SearchAttributesRefused(
                f"search attribute {key.name} of namespace {client.namespace!r} is no {type_name(key)}; "
                "remove it, or give the runs a namespace of their own"
            )
    return [key.name for key in KEYS if key.name not in listed.custom_attributes]


async def are_usable(client: Client, report: Report) -> bool:
    """Return whether runs can write all our search attributes. If not, report why. Runs then go on without them."""
    try:
        lacking = await missing_names(client)
    except NoSearchAttributes as error:
        report(str(error))
        return False
    except SearchAttributesRefused as error:  # a worker may be allowed to poll but not to list
        report(f"search attributes: {WITHOUT_ATTRIBUTES}; {error}")
        return False
    if lacking:
        report(
            f"namespace {client.namespace!r} lacks the search attributes {', '.join(lacking)}: {WITHOUT_ATTRIBUTES}; "
            "register them once with `orga setup`"
        )
    return not lacking


async def register_missing(client: Client) -> list[str]:
    """Register the missing search attributes and return their names. Raise SearchAttributesRefused on failure."""
    names = await missing_names(client)
    keys = [key for key in KEYS if key.name in names]
    if not keys:
        return []
    request = AddSearchAttributesRequest(namespace=client.namespace)
    for key in keys:
        request.search_attributes[key.name] = key.indexed_value_type.value  # pyright: ignore[reportArgumentType]
    try:
        await client.operator_service.add_search_attributes(request, retry=True)
    except RPCError as error:
        if error.status is not RPCStatusCode.ALREADY_EXISTS:  # otherwise another command was faster
            raise _refused_error(client, keys, error) from error
    return names


def _refused_error(client: Client, keys: Sequence[SearchAttributeKey[Any]], error: RPCError) -> SearchAttributesRefused:
    wanted = " ".join(f"--name {key.name} --type {type_name(key)}" for key in keys)
    return SearchAttributesRefused(
        f"the server refused to list or add search attributes in namespace {client.namespace!r} "
        f"({error.status.name}: {error.message}); have an administrator run: "
        f"temporal operator search-attribute create --namespace {client.namespace} {wanted}"
    )
