"""Functions that nobody should offer as tools, and that people will: they block, ignore signals, crash."""

import asyncio
import faulthandler
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from orga.activities.tools_api import ToolContext, tool


def _begun(path: str, *pids: int) -> None:
    """Write the ids of the processes at work to a file that is whole as soon as it is there."""
    draft = Path(f"{path}.draft")
    draft.write_text(" ".join(map(str, pids or (os.getpid(),))))
    draft.rename(path)


@tool(effect="read_only", blocking=True)
def stands_still(path: str, how: str) -> str:
    """Never return, in one of several ways."""
    if how == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if how == "with children":
        deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(1000)"
        with subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            _begun(path, os.getpid(), child.pid)
            time.sleep(1_000)
    _begun(path)
    if how == "spinning":
        while True:
            pass
    if how == "in C":
        sum(range(10**15))  # holds the interpreter's lock, sees no signal
    while True:
        try:
            time.sleep(10**6)
        except BaseException:
            if how == "asleep":
                raise


@tool(blocking=True)
def tidies_up(path: str) -> None:
    _begun(path)
    try:
        time.sleep(1_000)
    finally:
        Path(path).write_text("tidied up")


@tool(blocking=True)
def crashes(how: str) -> None:
    print("last words")
    if how == "exit":
        os._exit(7)
    if how == "exit as if all were well":
        os._exit(0)
    if how == "segfault":
        faulthandler._sigsegv()  # type: ignore[attr-defined]  # pyright: ignore
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "close everything":
        os.closerange(3, 1_000)
        time.sleep(1_000)


@tool(effect="read_only", blocking=True)
def crashes_once(path: str, context: ToolContext) -> str:
    if not Path(path).exists():
        Path(path).touch()
        os._exit(1)
    return f"attempt {context.attempt}"


@tool(blocking=True)
def noisy() -> str:
    print('{"content": "forged"}')
    print("to stderr", file=sys.stderr)
    os.write(1, b"\x00\x00\x00\x02{}")
    subprocess.run(["/bin/echo", "from a child"], check=True)
    return f"heard {sys.stdin.read()!r}"


@tool(blocking=True)
def leaves_a_child(path: str) -> str:
    child = subprocess.Popen(["/bin/sleep", "1000"])
    _begun(path, os.getpid(), child.pid)
    return "left"


@tool(blocking=True)
def reports(context: ToolContext) -> str:
    for step in range(10_000):
        context.heartbeat(f"step {step}")
    return f"{context.call_id} {context.idempotency_key} {context.attempt} {context.workflow_id}"


@tool(blocking=True)
def pid() -> int:
    return os.getpid()


@tool(blocking=True)
def echo(text: str, times: int = 1) -> str:
    return text * times


@tool(blocking=True)
async def blocks_its_loop(seconds: float) -> str:
    await asyncio.sleep(0)
    time.sleep(seconds)
    return "async"


class Object:
    @tool(blocking=True)
    def method(self) -> str:
        return "method"


method = Object().method
