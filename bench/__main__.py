"""`python -m bench`: our loop beside a hand-written one, each figure beside its limit. Exit code 1: a limit not met."""

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

from bench import (
    audit,
    crowd,
    decisions,
    endurance,
    engines,
    first_activity,
    history_size,
    replay,
    start_cost,
    throughput,
    wall,
)
from bench.assumptions import header
from bench.figures import Figure, table
from bench.rig import Rig, rig

MEASURES = {
    "a": "history bytes",
    "b": "wall time",
    "c": "start to first activity",
    "d": "replay",
    "e": "a run of 5,000 iterations",
    "f": "decisions",
    "g": "policy engines",
    "h": "audit and verify",
    "i": "throughput",
    "j": "start cost",
    "k": "crowd",
}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    names = ", ".join(f"{letter} {name}" for letter, name in MEASURES.items())
    parser.add_argument("--only", default=",".join(MEASURES), metavar="a,b,…", help=names)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, 1,000 iterations for e")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    options.only = options.only.split(",")
    unknown = [letter for letter in options.only if letter not in MEASURES]
    if unknown:
        parser.error(f"--only: there is no measure {unknown[0]!r}; there are: {', '.join(MEASURES)}")
    return options


async def _measured(rig: Rig, letter: str, quick: bool) -> list[Figure]:
    match letter:
        case "a":
            figures, events = await history_size.measure(rig)
            _say(events + "\n")
        case "b":
            figures = await wall.measure(rig, pairs=5 if quick else 11)
        case "c":
            figures = await first_activity.measure(rig, runs=10 if quick else 30)
        case "d":
            figures = await replay.measure(rig, pairs=5 if quick else 15)
        case "f":
            figures = await decisions.measure(rig, replays=3 if quick else 7)
        case "g":
            figures = await engines.measure(rig, rounds=3 if quick else 11)
        case "h":
            figures = await audit.measure(rig, iterations=1_000, rounds=3 if quick else 5)
        case "i":
            figures = await throughput.measure(rig, pairs=3 if quick else 7)
        case "j":
            figures = await start_cost.measure(rig, rounds=5 if quick else 15)
        case "k":
            figures = await crowd.measure(rig, runs=50 if quick else 200)
        case _:
            figures = await endurance.measure(rig, iterations=1_000 if quick else 5_000)
    return figures


async def _bench(options: argparse.Namespace) -> list[Figure]:
    figures: list[Figure] = []
    async with rig() as both:
        for letter in options.only:
            sys.stderr.write(f"measuring {MEASURES[letter]}\n")
            figures += await _measured(both, letter, options.quick)
    return figures


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


def main() -> int:
    """Measure, print, and return the exit code."""
    options = _options()
    _say(header() + "\n")
    figures = asyncio.run(_bench(options))
    _say(table(figures))
    if options.json:
        options.json.write_text(json.dumps([figure.as_json() for figure in figures], indent=2) + "\n")
    return 0 if all(figure.is_met for figure in figures) else 1


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # The SDK's threads may abort the interpreter as it ends, with exit code 134.
