"""`python -m bench`: our loop beside a hand-written one, each figure beside its limit. Exit code 1: a limit not met."""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from bench import (
    audit,
    crowd,
    decisions,
    endurance,
    engines,
    first_activity,
    goals,
    history_size,
    knowing,
    reading,
    recall_quality,
    recall_time,
    replay,
    start_cost,
    start_up,
    throughput,
    wall,
)
from bench.assumptions import header
from bench.figures import Figure, table
from bench.rig import rig


class Measure(NamedTuple):
    """What is measured, by what, how often; and how often where it has to be quick."""

    name: str
    by: Callable[..., Awaitable[list[Figure]]]
    times: dict[str, int] = {}
    quick: dict[str, int] = {}


MEASURES = {
    "a": Measure("history bytes", history_size.measure),
    "b": Measure("wall time", wall.measure, {"pairs": 11}, {"pairs": 5}),
    "c": Measure("start to first activity", first_activity.measure, {"runs": 30}, {"runs": 10}),
    "d": Measure("replay", replay.measure, {"pairs": 15}, {"pairs": 5}),
    "e": Measure("a run of 5,000 iterations", endurance.measure, {"iterations": 5_000}, {"iterations": 1_000}),
    "f": Measure("decisions", decisions.measure, {"replays": 7}, {"replays": 3}),
    "g": Measure("policy engines", engines.measure, {"rounds": 11}, {"rounds": 3}),
    "h": Measure("audit and verify", audit.measure, {"iterations": 1_000, "rounds": 5}, {"rounds": 3}),
    "i": Measure("throughput", throughput.measure, {"pairs": 7}, {"pairs": 3}),
    "j": Measure("start cost", start_cost.measure, {"rounds": 15}, {"rounds": 5}),
    "k": Measure("crowd", crowd.measure, {"runs": 200}, {"runs": 50}),
    "l": Measure("parallel steps of a goal", goals.measure, {"pairs": 5}, {"pairs": 1}),
    "m": Measure("quality of recall", recall_quality.measure),
    "n": Measure("time of recall", recall_time.measure, {"items": 100_000}, {"items": 10_000}),
    "o": Measure("history with knowledge", knowing.measure),
    "p": Measure("answers of the offline reader", reading.measure),
    "q": Measure("start-up of commands", start_up.measure, {"rounds": 5}, {"rounds": 3}),
}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    names = ", ".join(f"{letter} {measure.name}" for letter, measure in MEASURES.items())
    parser.add_argument("--only", default=",".join(MEASURES), metavar="a,b,…", help=names)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, 1,000 iterations for e")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    options.only = options.only.split(",")
    unknown = [letter for letter in options.only if letter not in MEASURES]
    if unknown:
        parser.error(f"--only: there is no measure {unknown[0]!r}; there are: {', '.join(MEASURES)}")
    return options


async def _bench(options: argparse.Namespace) -> list[Figure]:
    figures: list[Figure] = []
    async with rig() as both:
        for letter in options.only:
            measure = MEASURES[letter]
            sys.stderr.write(f"measuring {measure.name}\n")
            figures += await measure.by(both, **measure.times | (measure.quick if options.quick else {}))
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
