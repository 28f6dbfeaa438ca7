"""The benchmark: all that measures is among its measures, and documents name those that there are."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.__main__ import MEASURES
from bench.start_up import commands, processor_s

ROOT = Path(__file__).parents[3]
MEASURING = sorted(file for file in (ROOT / "bench").rglob("*.py") if "async def measure(" in file.read_text())
GUIDE = (ROOT / "docs/command-line.md").read_text()
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("file", MEASURING, ids=lambda file: file.stem)
def test_what_measures_is_among_the_measures_by_the_letter_that_it_tells(file: Path) -> None:
    [letter] = re.findall(r'\A"""\(([a-z])\) ', file.read_text())
    assert MEASURES[letter].by.__module__ == ".".join(file.relative_to(ROOT).with_suffix("").parts)


def test_no_measure_is_there_twice() -> None:
    assert len({measure.by for measure in MEASURES.values()}) == len(MEASURES) == len(MEASURING)


def test_documents_name_measures_that_there_are() -> None:
    said = {
        letter for file in DOCUMENTS for only in re.findall(r"--only ([a-z,]+)", file.read_text()) for letter in only
    }
    assert said - {","} <= MEASURES.keys()


def test_the_table_of_commands_has_all_that_are_measured() -> None:
    table = re.findall(r"^\| `(orga [^`]+)` \| \d+\.\d\d \| \d+\.\d\d \|$", GUIDE, re.MULTILINE)
    assert table == list(commands("x"))


BUSY = "import time\nwhile time.process_time() < 0.2: pass"


def test_all_processor_time_of_a_program_counts(tmp_path: Path) -> None:
    assert processor_s((sys.executable, "-c", BUSY), str(tmp_path), "127.0.0.1:1") >= 0.2


def test_a_command_that_fails_is_no_figure(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        processor_s((sys.executable, "-c", "raise SystemExit(3)"), str(tmp_path), "127.0.0.1:1")
