"""docs/production.md is followed in order, in a fresh folder, on a real server, and its output is compared."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.parts.free_port import free_port
from tests.support.programs.inline_command import InlineOrga
from tests.support.programs.orga_command import ROOT, Orga, an_orga

GUIDE = (ROOT / "docs" / "production.md").read_text()
BLOCK = re.compile(r"^```(\w+)( file)?\n(.*?)^```", re.DOTALL | re.MULTILINE)
FILES = {"toml", "cedar"}
SEEN_S = 60.0


@dataclass
class Newcomer:
    """A person who types what the guide says."""

    orga: Orga
    port: int
    running: ExitStack

    def follow(self, guide: str) -> list[str]:
        """Write each file, type each line and check each output. Return one line for each difference."""
        wrong: list[str] = []
        output, last = "", ""
        for language, is_file, content in BLOCK.findall(guide):
            if language in FILES or is_file:
                self._write(content)
            elif language == "sh":
                output, last = "", ""
                for line in content.splitlines():
                    last, (code, text) = line, self._typed(line)
                    output += text
                    expected = int(found[1]) if (found := re.search(r"# exit code (\d)", line)) else 0
                    wrong += [] if code == expected else [f"{line}: {code}\n{text}"]
            else:
                wrong += self._looked(last, output, content)
        return wrong

    def _typed(self, line: str) -> tuple[int, str]:
        words = shlex.split(line, comments=True)
        match words:
            case ["cd", folder]:
                object.__setattr__(self.orga, "folder", self.orga.folder / folder)
            case ["export", setting]:
                name, _, value = setting.partition("=")
                self.orga.env[name] = value
            case ["python", program, "&"]:
                self._begin(program)
            case ["orga", "worker", "--json-logs", "2>", "worker.log", "&"]:
                self.running.enter_context(self.orga.started("worker", "--json-logs")).line("polls task queue")
            case ["orga", *arguments]:
                done = self.orga(*arguments)
                return done.code, f"{done.out}\n{done.err}\n"
            case _:
                done = subprocess.run(words, cwd=self.orga.folder, capture_output=True, text=True, check=False)
                return done.returncode, f"{done.stdout}\n{done.stderr}\n"
        return 0, ""

    def _looked(self, last: str, output: str, shown: str) -> list[str]:
        """Return the expected lines that do not appear. Repeat a query until the run waits for a person."""
        deadline = time.monotonic() + SEEN_S
        while (unseen := _unseen(output, shown)) and last == "orga inbox" and time.monotonic() < deadline:
            output += self._typed(last)[1]
        return [f"{line!r} is not in:\n{output}" for line in unseen]

    def _write(self, content: str) -> None:
        path = self.orga.folder / content.splitlines()[0].lstrip("/# ")
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)

    def _begin(self, program: str) -> None:
        command = [sys.executable, program, str(self.port)]
        process = self.running.enter_context(subprocess.Popen(command, cwd=self.orga.folder))
        self.running.callback(process.kill)


def _unseen(output: str, shown: str) -> list[str]:
    """Return the lines whose words do not follow each other in any line of the output."""
    patterns = {line: ".*".join(map(re.escape, line.split())) for line in shown.splitlines()}
    return [line for line, pattern in patterns.items() if not re.search(pattern, output)]


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Newcomer]:
    folder, port = tmp_path / "project", free_port()
    shutil.copytree(ROOT / "examples", folder / "examples")
    urls = json.dumps({"openai-compatible": f"http://127.0.0.1:{port}/v1"})
    env = an_orga(folder, tmp_path / "home", ORGA_MODELS__BASE_URLS=urls).env
    del env["ORGA_TRUST"]  # the guide says what to trust
    with ExitStack() as running:
        found = Newcomer(InlineOrga(folder, env), port, running)
        yield found
        found.orga("server", "--stop")


def test_the_guide_works_from_its_first_line_to_its_last(newcomer: Newcomer) -> None:
    assert newcomer.follow(GUIDE) == []
    assert (newcomer.orga.folder / "ledger").read_text().splitlines() == ["A-7 90000", "A-7 900"]
    assert (newcomer.orga.folder / "audit.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("output", "shown", "unseen"),
    [
        pytest.param("a  b c\nd", "d\na c", [], id="with other words in between"),
        pytest.param("a\nc", "a c", ["a c"], id="words on two lines"),
        pytest.param("b a", "a b", ["a b"], id="words in another order"),
        pytest.param("a", "b", ["b"], id="another word"),
    ],
)
def test_expected_output_is_compared_word_by_word(output: str, shown: str, unseen: list[str]) -> None:
    assert _unseen(output, shown) == unseen
