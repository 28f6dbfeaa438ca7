"""The pictures of terminals in the docs, recorded by `make pictures` at a real terminal of 80 columns."""

import re
import xml.etree.ElementTree as Xml
from collections import defaultdict

import pytest

from tests.support.programs.orga_command import ROOT

PICTURES = ROOT / "docs" / "pictures"
COLUMNS = 80


def picture_lines(picture: str) -> list[str]:
    """Return the lines of a terminal's picture; a gap in one is a space."""
    found: dict[str, list[str]] = defaultdict(list)
    for text in Xml.parse(PICTURES / f"{picture}.svg").iter("{http://www.w3.org/2000/svg}text"):
        found[text.get("clip-path", "")].append((text.text or "").replace("\xa0", " "))
    return [" ".join(parts).rstrip() for line, parts in found.items() if line]


@pytest.mark.parametrize("picture", ["run", "live", "plan", "list"])
def test_each_picture_is_shown_in_a_document(picture: str) -> None:
    documents = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    assert [path.name for path in documents if f"pictures/{picture}.svg)" in path.read_text()]
    assert picture_lines(picture)[0].startswith("$ orga ")


def test_the_picture_of_a_report_is_shown_in_a_document_and_recorded_with_the_others() -> None:
    assert (PICTURES / "report.png").read_bytes().startswith(b"\x89PNG")
    assert "(pictures/report.png)" in (ROOT / "docs" / "command-line.md").read_text()
    assert '_browse("report", page)' in (PICTURES / "record.py").read_text()


def test_parallel_calls_show_arguments_and_times_and_a_finished_one_has_stopped() -> None:
    shown = [re.match(r"(•| ) (ask_branch .+?) +(\d+\.\d) s", row) for row in picture_lines("live")]
    calls = [(found[1], found[2], float(found[3])) for found in shown if found]
    assert [(mark, call) for mark, call, _ in calls] == [
        ("•", "ask_branch Harbour Street"),
        ("•", "ask_branch Old Town"),
        (" ", "ask_branch University"),
    ]
    assert sorted({took for *_, took in calls}) == [took for *_, took in calls]


@pytest.mark.parametrize("picture", ["live", "plan"])
def test_the_meters_fit_on_one_line(picture: str) -> None:
    last = picture_lines(picture)[-1]
    assert re.search(r"/25 iterations|/15 rounds", last)
    assert re.search(r"\d tokens.* \d+/[\d,]+ s", last)
    assert len(last) <= COLUMNS
