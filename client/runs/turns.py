"""The turns of a session, from outside: their results, waited for however long that takes."""

import asyncio
from datetime import timedelta

import uuid_utils
from temporalio.client import WorkflowExecutionStatus
from temporalio.client import WorkflowUpdateFailedError as UpdateFailed
from temporalio.client import WorkflowUpdateRPCTimeoutOrCancelledError as UpdateUnanswered
from temporalio.service import RPCError, RPCStatusCode

from orga.client.errors import OrgaError, RunNotFound, ServerLost, TurnUnknown
from orga.client.runs.agents import AgentHandle
from orga.client.runs.exchange import UNPROCESSED, refusal_of, says_ended, translated
from orga.workflows.types.sessions.result import SessionResult, TurnResult

_AGAIN_S = 0.2
"""Between two looks for a turn's end, where the run that was asked has gone on as another."""

_LOOK_S = 2.0
"""Between two queries, where too many wait for a turn by an update."""

_FULL_S = 60.0
"""Until a run is asked again that has taken all the updates which the server allows: it will continue as new."""

_LOST_S = 1.0
"""Until a server that was lost is asked again."""

_WAIT = timedelta(seconds=60)
"""Of one request that waits for a turn; then the same is asked again."""

_LEFT_BEHIND = {"AcceptedUpdateCompletedWorkflow", UNPROCESSED}
"""How the server fails an update of a run that has gone on as another; that one is asked anew."""


class TurnWaiter(AgentHandle):
    """The part of a session's handle that waits for turns."""

    async def _latest(self) -> list[TurnResult]:
        """Return the results that the session keeps."""
        return [TurnResult.model_validate(each) for each in await self._exchange.query("turns")]

    async def _until_ended(self, turn: int) -> TurnResult:
        """Wait until a turn has ended, and return its result; raises as `SessionHandle.result_of`."""
        update_id = _update_id(turn)
        while True:
            try:
                answer = await self._exchange.ask_update("await_turn", {"turn": turn}, _WAIT, update_id=update_id)
            except UpdateUnanswered:
                await asyncio.sleep(_LOST_S)
            except UpdateFailed as error:
                refused = refusal_of(error)
                if refused.kind not in _LEFT_BEHIND:
                    raise refused from None
                update_id = _update_id(turn)
                await asyncio.sleep(_AGAIN_S)
            except RPCError as error:
                if says_ended(error):
                    return await self._as_it_ended(turn)
                if error.status is RPCStatusCode.FAILED_PRECONDITION and "updates" in error.message:
                    await self._look_out(turn, _FULL_S)
                    continue
                if not isinstance(told := translated(error, self.id), ServerLost):
                    raise told from error
                await asyncio.sleep(_LOST_S)
            else:
                if found := answer.get("result"):
                    return TurnResult.model_validate(found)
                update_id = _update_id(turn)
                await self._look_out(turn, answer.get("again_in_s", 0.0))

    async def _look_out(self, turn: int, within_s: float) -> None:
        """Wait until a turn has ended, or its session, or for so long; it leaves nothing in the history.

        Raises:
            RunNotFound: The server has no such session any more.
        """
        until = asyncio.get_running_loop().time() + within_s
        await asyncio.sleep(_AGAIN_S)
        while (left := until - asyncio.get_running_loop().time()) > 0:
            try:
                is_live = (await self.describe()).status == WorkflowExecutionStatus.RUNNING
                if not is_live or any(each.turn == turn for each in await self._latest()):
                    return
            except RunNotFound:
                raise
            except OrgaError:  # who cannot be asked now is asked again
                pass
            await asyncio.sleep(min(_LOOK_S, max(left, 0.0)))

    async def _as_it_ended(self, turn: int) -> TurnResult:
        ended = SessionResult.model_validate((await self.result()).model_dump())
        found = next((each for each in ended.latest if each.turn == turn), None)
        if found is None:
            raise TurnUnknown(f"session {self.id!r} has ended and keeps no turn {turn}; `orga journal` tells of it")
        return found


def _update_id(turn: int) -> str:
    return f"turn-{turn}-{uuid_utils.uuid4()}"
