"""`make bench-rivals`: compares orga with other agent frameworks, on one errand with a scripted model and a tool."""

import argparse
import asyncio
import json
import os
import platform
import resource
import sys
import tempfile
import time
import uuid
from pathlib import Path
from statistics import median

from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from bench.rivals.killed import Killed, killed
from bench.rivals.sides import SIDES, Side
from bench.sides.rig import SERVER_ARGUMENTS
from orga.client.server.obtain import locate
from orga.client.server.search_attributes import KEYS

SHORT, LONG = 1, 51
"""Payments of the compared runs. The start is what they have in common."""

Row = dict[str, float]
"""Values of each side, by name."""


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.rivals", description=__doc__)
    parser.add_argument(
        "--rounds",
        type=int,
        default=5,
        help="in turn; the figures are medians",
    )
    parser.add_argument("--keep", action="store_true", help="take the environments that are there")
    return parser.parse_args()


async def _measure(rounds: int, folder: Path) -> None:
    async with await WorkflowEnvironment.start_local(  # pyright: ignore[reportUnknownMemberType]
        dev_server_existing_path=str(await locate(print)),
        search_attributes=KEYS,
        dev_server_extra_args=SERVER_ARGUMENTS,
    ) as environment:
        address = environment.client.service_client.config.target_host
        rows: list[tuple[str, str, Row]] = [
            ("installed", "MB", {side.name: side.megabytes() for side in SIDES}),
            ("lines of the program", "", {side.name: side.lines() for side in SIDES}),
        ]
        for side in SIDES:
            await _question(side, address, folder)
        each = [
            {side.name: await _round(side, environment.client, address, folder) for side in SIDES}
            for _ in range(rounds)
        ]
        for what, unit in each[0]["orga"]:
            rows.append((what, unit, {s.name: median(r[s.name][what, unit] for r in each) for s in SIDES}))
        _print(_table(rows))
        for side in SIDES:
            for effect in ("irreversible", "idempotent") if side.name == "orga" else ("",):
                found = await killed(side, address, folder / f"killed-{side.name}{effect}", effect)
                _print(_killed_line(side, effect, found))


async def _round(side: Side, client: Client, address: str, folder: Path) -> dict[tuple[str, str], float]:
    sys.stderr.write(f"measuring {side.name}\n")
    question_s, question_cpu_s = await _question(side, address, folder)
    place = folder / str(uuid.uuid4())
    place.mkdir()
    surroundings = {"RIVALS_ADDRESS": address, "RIVALS_FOLDER": str(place)}
    times = json.loads(await side.output(surroundings, "times", str(SHORT), str(LONG)))

    def ms_per_payment(key: str) -> float:
        return (times["long"][key] - times["short"][key]) * 1_000 / (LONG - SHORT)

    return {
        ("one question, the whole process", "s"): question_s,
        ("of it the processor", "s"): question_cpu_s,
        ("one payment in a run", "ms"): ms_per_payment("wall_s"),
        ("of it the processor, in the worker", "ms"): ms_per_payment("cpu_s"),
        (f"kept of a run of {LONG} payments", "kB"): await _kept(place, client, times["run"]) / 1_000,
    }


async def _question(side: Side, address: str, folder: Path) -> tuple[float, float]:
    """Return the wall and processor time, in seconds, of a program that asks once and calls no tool."""
    spent, began = _children_s(), time.perf_counter()
    surroundings = {"RIVALS_ADDRESS": address, "RIVALS_FOLDER": str(folder)}
    await side.output(surroundings, "start", str(uuid.uuid4()), "0")
    return time.perf_counter() - began, _children_s() - spent


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def _kept(place: Path, client: Client, run: str) -> float:
    """Return the size of checkpoints or of the history, in bytes."""
    if files := list(place.glob("checkpoints.sqlite*")):
        return sum(file.stat().st_size for file in files)
    described = await client.get_workflow_handle(run).describe()
    return described.raw_description.workflow_execution_info.history_size_bytes


def _table(rows: list[tuple[str, str, Row]]) -> str:
    lines = ["| | " + " | ".join(side.title for side in SIDES) + " |", "|---|" + "---|" * len(SIDES)]
    for what, unit, row in rows:
        cells = [f"{row[s.name]:,.4g} ({row[s.name] / row['orga']:.2f})" for s in SIDES]
        lines.append(f"| {what}{', ' if unit else ''}{unit} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _killed_line(side: Side, effect: str, found: Killed) -> str:
    name = f"{side.title} ({effect})" if effect else side.title
    return f"killed: {name}: paid {found.paid}, answer {found.resumed_s:.0f} s after the next start: {found.answer!r}"


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> None:
    options = _options()
    for side in SIDES:
        if not (options.keep and side.python.exists()):
            sys.stderr.write(f"installing {side.name}\n")
            side.install()
    _print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for side in SIDES:
        _print(f"{side.title}: {side.versions()}")
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_measure(options.rounds, Path(folder)))
    _print(f"load at the end {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
