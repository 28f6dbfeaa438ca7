"""Kills a process in the middle of a payment, lets another one continue, and counts the payments."""

import asyncio
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from bench.rivals.sides import Side

PAYMENTS, HELD = 3, 1
"""The process is killed during the second of three payments, after the first and before the third."""
STARTED_WITHIN_S = 120


@dataclass(frozen=True)
class Killed:
    """The outcome of one side."""

    paid: tuple[int, ...]
    """The number of times that each payment was made."""
    resumed_s: float
    """Seconds from the start of the second process to the run's answer."""
    answer: str


async def killed(side: Side, address: str, folder: Path, effect: str) -> Killed:
    folder.mkdir()
    surroundings = {"RIVALS_ADDRESS": address, "RIVALS_FOLDER": str(folder), "RIVALS_EFFECT": effect}
    run = f"{side.name}-{uuid.uuid4()}"
    victim = await side.process(surroundings | {"RIVALS_HELD": str(HELD)}, "start", run, str(PAYMENTS))
    try:
        await _paid(folder, HELD)
    finally:
        victim.kill()
        await victim.wait()
    began = time.perf_counter()
    answer = await side.output(surroundings, "resume", run)
    made = _made(folder)
    return Killed(tuple(map(made.count, range(PAYMENTS))), time.perf_counter() - began, answer.strip())


async def _paid(folder: Path, number: int) -> None:
    async with asyncio.timeout(STARTED_WITHIN_S):
        while number not in _made(folder):
            await asyncio.sleep(0.1)
    await asyncio.sleep(1)  # time for the programs to write their output


def _made(folder: Path) -> list[int]:
    file = folder / "payments"
    return [int(line) for line in file.read_text().splitlines()] if file.exists() else []
