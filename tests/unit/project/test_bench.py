"""The benchmark: every measuring module is registered, and documents name only existing measures."""

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
def test_each_measuring_module_is_registered_by_the_letter_in_its_docstring(file: Path) -> None:
    [letter] = re.findall(r'\A"""\(([a-z])\) ', file.read_text())
    assert MEASURES[letter].by.__module__ == ".".join(file.relative_to(ROOT).with_suffix("").parts)


def test_no_measure_is_registered_twice() -> None:
    assert len({measure.by for measure in MEASURES.values()}) == len(MEASURES) == len(MEASURING)


def test_documents_name_existing_measures() -> None:
    named = {
        letter
        for file in DOCUMENTS
        for only in re.findall(r"bench --only ([a-z,]+)", file.read_text())
        for letter in only
    }
    assert named - {","} <= MEASURES.keys()


def test_the_table_of_commands_contains_all_measured_commands() -> None:
    table = re.findall(r"^\| `(orga [^`]+)` \| \d+\.\d\d \| \d+\.\d\d \|$", GUIDE, re.MULTILINE)
    assert table == list(commands("x"))


BUSY = "import time\nwhile time.process_time() < 0.2: pass"


def test_all_processor_time_of_a_program_is_counted(tmp_path: Path) -> None:
    assert processor_s((sys.executable, "-c", BUSY), str(tmp_path), "127.0.0.1:1") >= 0.2


def test_a_failing_command_gives_no_figure(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        processor_s((sys.executable, "-c", "raise SystemExit(3)"), str(tmp_path), "127.0.0.1:1")
