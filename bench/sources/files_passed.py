"""`python -m bench.sources.files_passed`: counts the files of `workflows/` that a recorded run executes.

A file counts if its code runs after the imports. To follow such a run, one has to read these files.
"""

import asyncio
import json
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from orga.client.history.values import data_converter
from orga.client.runners.workflows import REPLAY_BUILD
from orga.workflows.agent import AgentWorkflow

ROOT = Path(__file__).parents[2]
HISTORIES = ROOT / "tests" / "replay" / "histories"
RUNS = {"a plain answer": "answer", "calls and a denial": "tools-and-a-denial", "a criticised answer": "criticised"}


async def files_passed(name: str) -> set[str]:
    """Return the files that the replay of a recorded history executes, as paths in the repository."""
    found: set[str] = set()
    folder = str(ROOT / "orga" / "workflows")

    def look(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_name != "<module>" and code.co_filename.startswith(folder):
            found.add(str(Path(code.co_filename).relative_to(ROOT)))

    replayer = Replayer(
        workflows=[AgentWorkflow],
        data_converter=data_converter,
        build_id=REPLAY_BUILD,
    )
    history = WorkflowHistory.from_json(name, json.loads((HISTORIES / f"{name}.json").read_text()))
    threading.setprofile(look)
    try:
        await replayer.replay_workflow(history)
    finally:
        threading.setprofile(None)
    return found


async def _main() -> None:
    for label, name in RUNS.items():
        found = await files_passed(name)
        print(f"{label}: {len(found)} files")
        if "--list" in sys.argv:
            print("".join(f"  {file}\n" for file in sorted(found)), end="")


if __name__ == "__main__":
    asyncio.run(_main())
