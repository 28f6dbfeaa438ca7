"""What is registered, and what a refusal says."""

from typing import cast

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from orga.client.server.search_attributes import SearchAttributesRefused, register, type_name
from orga.workflows.types.names import KEYS


def test_names_and_types() -> None:
    assert {key.name: type_name(key) for key in KEYS} == {
        "OrgaAgent": "Keyword",
        "OrgaPhase": "Keyword",
        "OrgaWaiting": "Keyword",
        "OrgaWaitingSince": "Datetime",
        "OrgaTermination": "Keyword",
        "OrgaTenant": "Keyword",
        "OrgaIteration": "Int",
        "OrgaCostUsd": "Double",
        "OrgaDeadLetters": "Int",
        "OrgaOpenCircuits": "KeywordList",
    }


class Refusing:
    """The parts of a client that registration uses, with a server that lets us do nothing."""

    namespace = "ours"

    @property
    def operator_service(self) -> "Refusing":
        return self

    async def list_search_attributes(self, request: object) -> object:
        raise RPCError("not yours", RPCStatusCode.PERMISSION_DENIED, b"")


async def test_a_refusal_names_the_command_for_an_administrator() -> None:
    with pytest.raises(SearchAttributesRefused) as caught:
        await register(cast(Client, Refusing()))

    assert str(caught.value).startswith(
        "the server refused to list or add search attributes in namespace 'ours' (PERMISSION_DENIED: not yours); "
        "have an administrator run: temporal operator search-attribute create --namespace ours "
        "--name OrgaAgent --type Keyword --name OrgaPhase --type Keyword"
    )
