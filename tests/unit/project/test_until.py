"""`wait_until` of the tests accepts only real answers."""

import pytest
from temporalio.service import RPCError, RPCStatusCode

from tests.support.hold import wait_until


class Asked:
    """A condition that fails twice with a server error before it holds."""

    def __init__(self, status: RPCStatusCode) -> None:
        self.times = 0
        self._status = status

    async def __call__(self) -> bool:
        self.times += 1
        if self.times < 3:
            raise RPCError("timeout expired", self._status, b"")
        return True


@pytest.mark.parametrize("status", [RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED])
async def test_a_cancelled_or_timed_out_question_is_asked_again(status: RPCStatusCode) -> None:
    asked = Asked(status)
    await wait_until(asked, 5)
    assert asked.times == 3


async def test_another_error_is_an_answer() -> None:
    with pytest.raises(RPCError, match="timeout expired"):
        await wait_until(Asked(RPCStatusCode.NOT_FOUND), 5)


async def test_a_condition_that_never_holds_times_out() -> None:
    async def never() -> bool:
        return False

    with pytest.raises(TimeoutError):
        await wait_until(never, 0.2)
