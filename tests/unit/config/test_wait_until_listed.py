"""A command that leaves a run to its workers returns when the server lists it, so that `--last` finds it."""

from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from orga.client.runs import ids
from orga.client.runs.ids import wait_until_listed


class Server:
    """Lists a run after this number of requests."""

    def __init__(self, listed_at: int, fails: RPCError | None = None) -> None:
        self.asked: list[str] = []
        self._listed_at = listed_at
        self._fails = fails

    async def list_workflows(self, query: str, limit: int) -> AsyncGenerator[Any]:
        self.asked.append(query)
        if self._fails:
            raise self._fails
        if len(self.asked) >= self._listed_at:
            yield "the run"


async def test_the_list_is_requested_until_it_contains_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "BETWEEN_LOOKS_S", 0.0)
    server = Server(listed_at=3)
    await wait_until_listed(cast(Client, server), "it's one")
    assert len(server.asked) == 3
    assert "WorkflowId = 'it\\'s one'" in server.asked[0]


async def test_a_slow_server_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "BETWEEN_LOOKS_S", 0.0)
    server = Server(listed_at=10**9)
    await wait_until_listed(cast(Client, server), "one")
    assert len(server.asked) == ids.LOOKS


async def test_a_server_without_a_list_is_asked_once() -> None:
    refusal = RPCError("no visibility store", RPCStatusCode.INVALID_ARGUMENT, b"")
    server = Server(listed_at=1, fails=refusal)
    await wait_until_listed(cast(Client, server), "one")
    assert len(server.asked) == 1
