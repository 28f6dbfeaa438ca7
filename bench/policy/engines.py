"""(g) The cost of a policy engine per iteration: the same run under each engine in turn, compared with the default."""

import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter

from bench.figures import Figure
from bench.sides.ours import our_worker
from bench.sides.rig import Rig
from bench.sides.script import Script
from orga.activities.adapters.policy.cedar import CedarPolicies
from orga.activities.adapters.policy.engines import ListedTools
from orga.activities.adapters.policy.opa import OpaServer, OpaWasm
from orga.activities.ports import PolicyEngine
from orga.workflows.types.tool_calls.gate import GateRequest, Verdict
from tests.support.parts.opa import bundle, running_opa

ITERATIONS = 100
MAX_CEDAR_MS = 1.0
CEDAR = Path(__file__).with_name("policies")
REGO = CEDAR / "reading.rego"
RULE = "orga/decision"
STANDARD = "default"


class Timed:
    """An engine, with the time of its decisions."""

    def __init__(self, engine: PolicyEngine) -> None:
        self.engine = engine
        self.is_embedded = engine.is_embedded
        self.spent_ms: list[float] = []

    async def judge(self, proposal: GateRequest) -> Verdict:
        began = perf_counter()
        judgement = await self.engine.judge(proposal)
        self.spent_ms.append((perf_counter() - began) * 1_000)
        return judgement


async def measure(rig: Rig, rounds: int) -> list[Figure]:
    """Return the figures. Only Cedar's decisions have a limit, because iterations vary with the machine's load."""
    async with engines(rig) as timed:
        for name in timed:
            await _ms_per_iteration(rig, name)
        each: dict[str, list[float]] = {name: [] for name in timed}
        for engine in timed.values():
            engine.spent_ms.clear()
        for _ in range(rounds):
            for name, taken in each.items():
                taken.append(await _ms_per_iteration(rig, name))
    return [figure for name in timed if name != STANDARD for figure in _figures(name, each, timed[name])]


def _figures(name: str, each: dict[str, list[float]], timed: Timed) -> list[Figure]:
    added = median(one - other for one, other in zip(each[name], each[STANDARD], strict=True))
    what = f"iteration under {name}, compared with the default"
    limit = MAX_CEDAR_MS if name == "cedar" else None
    return [
        Figure("g", what, "ms", median(each[name]), median(each[STANDARD])),
        Figure("g", f"added by {name}, median of {len(each[name])} pairs", "ms", added),
        Figure("g", f"of it one decision of {name}", "ms", median(timed.spent_ms), limit=limit),
    ]


async def _ms_per_iteration(rig: Rig, name: str) -> float:
    began = perf_counter()
    run = await rig.ours.on(name).run(ITERATIONS)
    taken_ms = (perf_counter() - began) * 1_000 / ITERATIONS
    assert (await run.result())["iterations"] == ITERATIONS, "a policy has ended the run"
    return taken_ms


@asynccontextmanager
async def engines(rig: Rig) -> AsyncGenerator[dict[str, Timed]]:
    """Run a worker for each engine, on a task queue of its name."""
    async with AsyncExitStack() as stack:
        url, wasm = stack.enter_context(_opa())
        found: dict[str, PolicyEngine] = {
            STANDARD: ListedTools(),
            "cedar": CedarPolicies(CEDAR),
            "wasm": OpaWasm(wasm, RULE),
            "opa": OpaServer(url, RULE),
        }
        timed = {name: Timed(engine) for name, engine in found.items()}
        for name, engine in timed.items():
            await stack.enter_async_context(our_worker(rig.ours.client, name, Script(), engine))
        yield timed


@contextmanager
def _opa() -> Generator[tuple[str, Path]]:
    with tempfile.TemporaryDirectory() as folder, running_opa(REGO) as url:
        yield url, bundle(REGO, Path(folder) / "policy.tar.gz", "-t", "wasm", "-e", RULE)
