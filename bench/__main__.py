"""`python -m bench`: compares our loop with a hand-written one. Exit code 1 if a figure misses its limit."""

import argparse
import asyncio
import json
import os
import platform
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import temporalio.service

from bench import start_up
from bench.figures import Figure, table
from bench.knowledge import knowing, reading, recall_quality, recall_time
from bench.policy import audit, engines
from bench.runs import (
    crowd,
    decisions,
    endurance,
    first_activity,
    goals,
    history_size,
    replay,
    start_cost,
    throughput,
    wall,
)
from bench.sides.rig import rig
from bench.sides.script import RESULT_BYTES


class Measure(NamedTuple):
    """A measure: its function, and the number of repetitions, also for `--quick`."""

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


ASSUMPTIONS = f"""\
One server (the `temporal` command's, in memory, fast transfer queue, eager activities), both workers in this process.
Both sides: a model and a tool activity per iteration. The model answers at once with the same text, one tool call and
usage, with a call id of 29 characters. The tool returns {RESULT_BYTES:,} bytes at once. Everything is warm.
Floor: bench/sides/floor.py. Model input: conversation id (uuid), its length, digest of the tools (sha256, hex), model
  name, temperature, output limit, iteration. Tool input: call id, arguments, idempotency key (uuid). Start-to-close
  timeout, heartbeat timeout, retry policy. Plain dicts; no gate, limits, signals, heartbeats, summaries or context.
  Worker with the SDK's defaults, pydantic_data_converter.
The same activities: the floor with a prepare activity and a local activity as the gate of each call.
Ours: the production worker (prepare, reason, gate as local activity, tool; summaries, current details, search
  attributes) with a scripted provider and the default policy. All settings are defaults except the limits on
  iterations, tokens and time. Every run ends at its limit on iterations.
Bytes are the server's own count. Times are measured in turn, ours then floor. Ratios are medians over the pairs.
Replay: one Replayer per replay, each side with the sandbox and data converter of its worker (the floor's are the
  SDK's). Its construction is not timed. Memory: resident set (Linux), reported by the worker process itself.
Decisions: the functions of workflows/decisions and workflows/types, called from elsewhere, in replays of a run with 20
  tools, two to four calls an iteration, failed steps, open circuits and a full context (bench/runs/busy.py). A
  profiler gives their share. Processor time of the workflow tasks is measured without it.
Policy engines: the same run under each in turn, with a worker for each and bench/policy/policies. OPA: a server over
  loopback, called in an activity of its own, and compiled to WebAssembly in the worker's process.
Audit: bench/policy/policies judge all proposals of a run again; verify: all its checks. The replay that they are
  compared with has the same histories in memory. Times are the fastest of several, measured in turn, because other
  work on the machine only adds time.
Goals: a plan of 8 independent steps, each a tool of half a second; under "floor" the same goal, one step at a time.
  Its model answers at once. With 4 at a time, a quarter would be ideal; plan, scores and answer add to both.
Recall: 118 passages and 230 questions of SQuAD 2.0 (bench/knowledge/questions, with their licence), the default
  embedder; under "floor" words and vectors together. Its time: passages of 40 words, all visible to the reader, one at
  a time.
Start-up: processor time of a whole command, user and system, in an empty folder, warm; under "floor" an interpreter
  that imports temporalio.client and ends. The run that status and steer use is live and paused."""
"""Printed above the figures."""


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


def _header() -> str:
    versions = f"Python {platform.python_version()}, temporalio {temporalio.service.__version__}"
    return f"{versions}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n{ASSUMPTIONS}"


async def _bench(options: argparse.Namespace) -> list[Figure]:
    figures: list[Figure] = []
    async with rig() as both:
        for letter in options.only:
            measure = MEASURES[letter]
            sys.stderr.write(f"measuring {measure.name}\n")
            figures += await measure.by(both, **measure.times | (measure.quick if options.quick else {}))
    return figures


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


def main() -> int:
    """Measure, print, and return the exit code."""
    options = _options()
    _print(_header() + "\n")
    figures = asyncio.run(_bench(options))
    _print(table(figures))
    if options.json:
        options.json.write_text(json.dumps([figure.as_json() for figure in figures], indent=2) + "\n")
    return 0 if all(figure.is_met for figure in figures) else 1


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # The SDK's threads may abort the interpreter as it ends, with exit code 134.
