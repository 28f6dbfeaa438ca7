"""A live view while its server is away: one line when it goes and one when it is back, and nothing from the SDK."""

import subprocess
import sys
from pathlib import Path
from uuid import uuid4

from temporalio.client import Client

from tests.support.programs.orga_command import ROOT

VIEWS = """
import asyncio, os, sys

ADDRESS, RUN, ROOT = sys.argv[1:]
sys.path.insert(0, ROOT)

from orga.client.cli.live.screens import PlainScreen
from orga.client.cli.connection import cli_context
from orga.client.cli.live.watch import Watch
from tests.support.web.cut_connection import Way

LINES = set()


class Screen(PlainScreen):
    def note(self, text):
        super().note(text)
        LINES.add(text)


async def until(told):
    while not any(told in line for line in LINES):
        await asyncio.sleep(0.1)


async def main():
    way = Way(ADDRESS)
    await way.open()
    os.environ["TEMPORAL_ADDRESS"] = way.address
    async with cli_context(None) as here, Watch(here.client, here.run(RUN), "q", Screen()).refreshing():
        await asyncio.sleep(1)
        way.cut()
        await until("does not answer")
        await asyncio.sleep(3)
        await way.open()
        await until("answers again")
    await asyncio.sleep(3)  # what the core says comes a moment later
    os._exit(0)  # the way is still open


asyncio.run(asyncio.wait_for(main(), 60))
"""


async def test_the_view_reports_that_the_server_is_away_and_back(client: Client, tmp_path: Path) -> None:
    handle = await client.start_workflow("AgentWorkflow", {"task": "t"}, id=f"away-{uuid4()}", task_queue="nobody")
    program = tmp_path / "views.py"
    program.write_text(VIEWS)
    command = [sys.executable, str(program), client.service_client.config.target_host, handle.id, str(ROOT)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=90, check=False)
    await handle.terminate()
    assert ran.returncode == 0, ran.stderr
    lines = [line for line in ran.stderr.splitlines() if "waiting for a worker" not in line]
    assert [line[9:] for line in lines] == [
        "the Temporal server does not answer: waiting for it",
        "the Temporal server answers again",
    ]
