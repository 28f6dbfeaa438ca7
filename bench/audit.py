"""(h) How long it takes to judge a long run anew, beside a bare replay of it."""

from statistics import median
from time import perf_counter

from activities.adapters.policy.cedar import CedarPolicies
from bench.engines import CEDAR
from bench.figures import Figure
from bench.rig import Rig
from client.audit import audited
from client.chain import RunHistory, histories, run_chain
from client.rejudged import Rejudge

MAX_RATIO = 2.0


async def measure(rig: Rig, iterations: int, rounds: int) -> list[Figure]:
    run = (await rig.ours.run(iterations)).id
    chain = await histories(rig.ours.client, await run_chain(rig.ours.client, run))
    ours: list[float] = []
    floor: list[float] = []
    for _ in range(rounds):
        ours.append(await _audit_s(rig, run))
        floor.append(await _replay_s(rig, chain))
    ratio = median(a / b for a, b in zip(ours, floor, strict=True))
    what = f"audit of {iterations:,} iterations, a replay beside"
    return [Figure("h", what, "s", median(ours), median(floor), ratio, MAX_RATIO)]


async def _audit_s(rig: Rig, run: str) -> float:
    began = perf_counter()
    judged = [audit async for audit in audited(rig.ours.client, [run], Rejudge(CedarPolicies(CEDAR)))]
    assert not any(audit.not_rebuilt for audit in judged)
    return perf_counter() - began


async def _replay_s(rig: Rig, chain: list[RunHistory]) -> float:
    began = perf_counter()
    for part in chain:
        await rig.ours.replayer(None).replay_workflow(part.history)
    return perf_counter() - began
