"""What both sides assume, printed above the figures."""

import os
import platform

import temporalio.service

from bench.script import RESULT_BYTES

TEXT = f"""\
One server (the `temporal` command's, in memory, fast transfer queue, eager activities), both workers in this process.
Both sides: a model and a tool activity per iteration; the model answers at once with the same text, one tool call
and usage, under a call id of 29 characters; the tool returns {RESULT_BYTES:,} bytes at once. Warm when measured.
Floor: bench/floor.py. Model input: conversation id (uuid), its length, digest of the tools (sha256, hex), model name,
  temperature, output limit, iteration. Tool input: call id, arguments, idempotency key (uuid). Start-to-close timeout,
  heartbeat timeout, retry policy. Plain dicts; no gate, limits, signals, heartbeats, summaries or context. Worker with
  the SDK's defaults, pydantic_data_converter.
The same activities: the floor with a prepare of its own and a local activity for the gate of each call.
Ours: the production worker (prepare, reason, gate as local activity, tool; summaries, current details, search
  attributes) with a scripted provider and the default policy. All settings default but the limits on iterations,
  tokens and time; every run ends by its limit on iterations.
Bytes are the server's own count. Times are taken in turn, ours then floor; ratios are medians over the pairs.
Replay: one Replayer for each replay, each side with the sandbox and data converter of its worker (the floor's are the
  SDK's); its construction is not timed. Memory: resident set (Linux), told by the worker process itself.
Decisions: the functions of workflows/decisions and workflows/types, called from elsewhere, in replays of a run with 20
  tools, two to four calls an iteration, failed steps, open circuits and a context at its budget (bench/busy.py). Their
  share is a profiler's; processor time of the workflow tasks is measured without it.
Policy engines: the same run under each in turn, on a worker each, with bench/policies. OPA: a server over loopback,
  asked in an activity of its own, and compiled to WebAssembly in the worker's process.
Audit: all proposals of a run judged anew by bench/policies; verify: all its checks. The replay beside has the same
  histories at hand. Times are the least of several, taken in turn: what else the machine does only adds to one.
Goals: a plan of 8 independent steps, each a tool of half a second; under "floor" the same goal, one step at a time.
  Its model answers at once. A quarter would be the best of 4 at a time; plan, scores and answer add to both.
Recall: 118 passages and 230 questions of SQuAD 2.0 (bench/questions, with their licence), the default embedder; under
  "floor" words and vectors together. Its time: passages of 40 words, all visible to the reader, one at a time.
Start-up: processor time of a whole command, the user's and the system's, in an empty folder, warm; under "floor" an
  interpreter that imports temporalio.client and ends. The run that status and steer ask is live and paused."""


def header() -> str:
    versions = f"Python {platform.python_version()}, temporalio {temporalio.service.__version__}"
    return f"{versions}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n{TEXT}"
