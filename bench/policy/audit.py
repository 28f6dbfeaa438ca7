"""(h) The time to judge a long run again, and to verify it, each compared with a bare replay of it."""

from collections.abc import Awaitable
from time import perf_counter

from bench.figures import Figure, ratio_of
from bench.policy.engines import CEDAR
from bench.sides.rig import Rig
from orga.activities.adapters.policy.cedar import CedarPolicies
from orga.client.history.chain import RunHistory, histories, run_chain
from orga.client.proof.audit import Rejudger, run_audits
from orga.client.proof.verify import verify

MAX_RATIO = 1.3


async def measure(rig: Rig, iterations: int, rounds: int) -> list[Figure]:
    """Run audit, replay and verify in turn. The fastest of each counts, because a busy machine only adds time."""
    run = (await rig.ours.run(iterations)).id
    chain = await histories(rig.ours.client, await run_chain(rig.ours.client, run))
    audits: list[float] = []
    verifications: list[float] = []
    replays: list[float] = []
    for _ in range(rounds):
        audits.append(await _timed(_audit(rig, run)))
        replays.append(await _timed(_replay(rig, chain)))
        verifications.append(await _timed(_verify(rig, run)))
    what = f"of {iterations:,} iterations, compared with a replay"
    return [
        ratio_of("h", f"audit {what}", "s", min(audits), min(replays), MAX_RATIO),
        ratio_of("h", f"verify {what}", "s", min(verifications), min(replays), MAX_RATIO),
    ]


async def _timed(work: Awaitable[None]) -> float:
    began = perf_counter()
    await work
    return perf_counter() - began


async def _audit(rig: Rig, run: str) -> None:
    judged = [audit async for audit in run_audits(rig.ours.client, [run], Rejudger(CedarPolicies(CEDAR)))]
    assert not any(audit.not_rebuilt for audit in judged)


async def _verify(rig: Rig, run: str) -> None:
    assert (await verify(rig.ours.client, run)).ok


async def _replay(rig: Rig, chain: list[RunHistory]) -> None:
    for part in chain:
        await rig.ours.replayer(None).replay_workflow(part.history)
