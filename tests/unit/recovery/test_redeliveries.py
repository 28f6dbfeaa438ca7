"""The messages of `orga requeue`: an unknown delivery is not sent, and a known one is reported with its outcome."""

from typing import Any, cast

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from orga.activities.ports import NotifyError, RunKey
from orga.client.errors import OrgaError
from orga.client.runs.redeliveries import NEVER_SENT, record_sending

GOAL = RunKey(workflow_id="goal-1", run_id="r")
GONE = RPCError("the server is gone", RPCStatusCode.UNAVAILABLE, b"")


class _Server:
    """Starts a delivery and is unavailable when its outcome is recorded, or is unavailable immediately."""

    def __init__(self, *, begins: bool = True) -> None:
        self._begins = begins

    async def start_workflow(self, *_: Any, **__: Any) -> "_Server":
        if not self._begins:
            raise GONE
        return self

    async def terminate(self, **_: Any) -> None:
        raise GONE


async def _send(server: _Server, sent: list[str], error: NotifyError | None = None) -> None:
    async with record_sending(cast("Client", server), GOAL, "hook", NEVER_SENT):
        sent.append("the answer")
        if error is not None:
            raise error


async def test_a_delivery_that_the_server_does_not_record_is_not_sent() -> None:
    sent: list[str] = []
    with pytest.raises(OrgaError, match="it is not sent, since the server does not record it: the server is gone"):
        await _send(_Server(begins=False), sent)
    assert sent == []


REFUSED = NotifyError("refused", kind="http", retryable=False)
CUT_OFF = NotifyError("cut off", kind="http", retryable=False, may_have_arrived=True)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(None, "it was delivered, which", id="delivered"),
        pytest.param(REFUSED, "it was not taken, which", id="refused"),
        pytest.param(CUT_OFF, "whether it was taken is not known, which", id="cut off"),
    ],
)
async def test_the_outcome_is_reported_if_the_server_does_not_record_it(
    error: NotifyError | None, expected: str
) -> None:
    with pytest.raises(OrgaError, match=f"^{expected} the server does not record: the server is gone$"):
        await _send(_Server(), [], error)
