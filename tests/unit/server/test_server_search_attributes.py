"""The registered search attributes, and the message after a refusal."""

from typing import cast

import pytest
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import ListSearchAttributesResponse
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from orga.client.server.search_attributes import SearchAttributesRefused, are_usable, register_missing, type_name
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


class Serving:
    """The parts of a client that registration uses, with a fixed answer of its server."""

    namespace = "ours"

    def __init__(self, answer: ListSearchAttributesResponse | RPCError) -> None:
        self._answer = answer

    @property
    def operator_service(self) -> "Serving":
        return self

    async def list_search_attributes(self, request: object, *, retry: bool) -> ListSearchAttributesResponse:
        if isinstance(self._answer, RPCError):
            raise self._answer
        return self._answer


def refusing(code: RPCStatusCode = RPCStatusCode.PERMISSION_DENIED) -> Client:
    return cast(Client, Serving(RPCError("not yours", code, b"")))


def with_attributes(**other: IndexedValueType.ValueType) -> Client:
    """Return a client whose namespace has all attributes, except that these have another type or are missing."""
    there = {key.name: cast(IndexedValueType.ValueType, key.indexed_value_type.value) for key in KEYS} | other
    known = {name: kind for name, kind in there.items() if kind}
    return cast(Client, Serving(ListSearchAttributesResponse(custom_attributes=known)))


async def test_a_refusal_names_the_command_for_an_administrator() -> None:
    with pytest.raises(SearchAttributesRefused) as caught:
        await register_missing(refusing())

    assert str(caught.value).startswith(
        "the server refused to list or add search attributes in namespace 'ours' (PERMISSION_DENIED: not yours); "
        "have an administrator run: temporal operator search-attribute create --namespace ours "
        "--name OrgaAgent --type Keyword --name OrgaPhase --type Keyword"
    )


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        pytest.param(
            refusing(), "PERMISSION_DENIED: not yours); have an administrator run: temporal", id="permission denied"
        ),
        pytest.param(refusing(RPCStatusCode.UNAVAILABLE), "UNAVAILABLE: not yours", id="unavailable"),
        pytest.param(
            refusing(RPCStatusCode.UNIMPLEMENTED), "the server knows no search attributes", id="unimplemented"
        ),
        pytest.param(
            with_attributes(OrgaAgent=IndexedValueType.INDEXED_VALUE_TYPE_TEXT),
            "search attribute OrgaAgent of namespace 'ours' is no Keyword",
            id="a name that is taken",
        ),
        pytest.param(
            with_attributes(
                OrgaAgent=IndexedValueType.INDEXED_VALUE_TYPE_UNSPECIFIED,
                OrgaPhase=IndexedValueType.INDEXED_VALUE_TYPE_UNSPECIFIED,
            ),
            "lacks the search attributes OrgaAgent, OrgaPhase: runs go on without them, and cannot be found by",
            id="some are missing",
        ),
    ],
)
async def test_a_worker_starts_without_them_and_reports_the_reason_once(server: Client, expected: str) -> None:
    reports: list[str] = []
    assert not await are_usable(server, reports.append)
    [report] = reports
    assert expected in report
    assert "runs go on without them" in report


async def test_missing_ones_are_reported_with_the_setup_command() -> None:
    reports: list[str] = []
    await are_usable(with_attributes(OrgaAgent=IndexedValueType.INDEXED_VALUE_TYPE_UNSPECIFIED), reports.append)
    assert "register them once with `orga setup`" in reports[0]


async def test_nothing_is_reported_if_all_exist() -> None:
    reports: list[str] = []
    assert await are_usable(with_attributes(), reports.append)
    assert reports == []
