"""Users' own type checkers (mypy and pyright) accept correct code and find mistakes."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

GOOD = '''\
import asyncio

from orga import AgentInput, GoalConfig, GoalInput, GoalResult, LoopConfig, SessionStatus
from orga import connect, start_agent, start_goal, start_session, tool
from orga.workflow import run_agent


@tool(effect="read_only")
def word_count(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


async def main() -> str:
    asked = AgentInput(task="How many words?", tools=["word_count"], config={"max_iterations": 5, "timeout_s": 60})
    also = AgentInput(task="How many words?", config=LoopConfig(max_iterations=5))
    async with connect() as client:
        handle = await start_agent(client, asked)
        result = await handle.result()
    return result.output + also.task + str(word_count("a b") + 1)


async def more() -> tuple[GoalResult, SessionStatus]:
    async with connect() as client:
        goal = await start_goal(client, GoalInput(goal="Know.", config=GoalConfig(max_iterations=2)))
        ended = await goal.result()
        print((await goal.status()).plan, ended.confidence, *ended.sources, *(each.id for each in ended.steps))
        session = await start_session(client)
        print((await session.result()).latest[0].turn)
        return ended, await session.status()


async def in_a_workflow() -> str:
    return (await run_agent("Look.", config={"recovery": {"strategy": "retry", "max_attempts": 3}})).output


asyncio.run(main())
'''

BAD = """\
from orga import AgentInput

key = AgentInput(task="x", config={"max_iteration": 5})
value = AgentInput(task="x", config={"timeout_s": "soon"})
"""

CHECKERS = {
    "mypy": ["-m", "mypy", "--strict", "--no-error-summary", f"--cache-dir={ROOT / '.cache' / 'mypy'}"],
    "pyright": ["-m", "pyright", "--pythonpath", sys.executable],
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("checker", CHECKERS)
def test_a_users_file_is_accepted_and_a_wrong_config_is_found(checker: str, tmp_path: Path) -> None:
    for name, text in (("good.py", GOOD), ("bad.py", BAD)):
        (tmp_path / name).write_text(f"# pyright: strict\n{text}" if checker == "pyright" else text)
    command = [sys.executable, *CHECKERS[checker], "good.py", "bad.py"]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    first = 4 if checker == "pyright" else 3
    found = [line for line in checked.stdout.splitlines() if ".py:" in line]
    assert not [line for line in found if "good.py" in line], checked.stdout
    wrong = {line.partition("bad.py:")[2].split(":")[0] for line in found if "bad.py:" in line}
    assert wrong == {str(first), str(first + 1)}, checked.stdout + checked.stderr
