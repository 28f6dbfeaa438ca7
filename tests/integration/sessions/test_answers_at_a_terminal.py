"""Questions at a terminal: the person types the answer under the live view."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.model.chat_server import Calls, Says, chat_server
from tests.support.programs.inline_command import InlineOrga
from tests.support.programs.orga_command import Orga, Running, an_orga
from tests.support.programs.terminal import at_a_terminal

ASKS = Calls("ask_user", {"question": "Which year?", "options": ["1998", "1999"]})
CONFIG = '[agents.default]\ntools = ["ask_user"]\n'
LINE = r"answer \(1998, 1999; Enter: later\) ›"


@pytest.fixture(scope="module")
def orga(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orga]:
    folder, home = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("home")
    (folder / "orga.toml").write_text(CONFIG)
    with chat_server(ASKS, Says(["It is known."])) as chat:
        settings = {"ORGA_MODELS__BASE_URLS": json.dumps({"openai-compatible": chat.url}), "LOGNAME": "ada"}
        env = an_orga(folder, home, ORGA_MODELS__DEFAULT="openai-compatible:m", **settings).env
        command = InlineOrga(folder, env)
        yield command
        command("server", "--stop")


@pytest.fixture(scope="module", autouse=True)
def worker(orga: Orga) -> Iterator[Running]:
    with orga.started("worker") as running:
        running.line("polls task queue")
        yield running


def answers_in_journal(orga: Orga, run_id: str) -> list[tuple[Any, Any, Any]]:
    entries = [json.loads(line) for line in orga("journal", run_id, "--json").out.splitlines()]
    reported = [each["data"] for each in entries if each["event"] == "QuestionAnswered"]
    return [(data["choice"], data.get("answer"), data.get("by")) for data in reported]


def test_typed_text_is_the_answer(orga: Orga) -> None:
    with at_a_terminal(orga, "run", "when was it?", "--id", "typed") as terminal:
        terminal.shows(LINE)
        terminal.types("1999\r")
        terminal.shows("It is known.")
        assert terminal.code() == 0
    assert answers_in_journal(orga, "typed") == [("result", "1999", "ada")]


def test_a_refused_answer_is_shown_and_can_be_corrected(orga: Orga) -> None:
    with at_a_terminal(orga, "run", "when was it?", "--id", "mended") as terminal:
        first = terminal.shows(LINE)
        terminal.types("2001\r")
        reported = terminal.shows("not answered: .*1998, 1999", first)
        terminal.shows(LINE, reported)
        terminal.types("1998\r")
        assert terminal.code() == 0
    assert answers_in_journal(orga, "mended") == [("result", "1998", "ada")]


@pytest.mark.parametrize("keys", ["\r", "\x04"], ids=["Enter", "Ctrl-D"])
def test_an_empty_line_leaves_the_question_for_another_command(orga: Orga, keys: str) -> None:
    run_id = f"later{ord(keys)}"
    with at_a_terminal(orga, "run", "when was it?", "--id", run_id) as terminal:
        asked = terminal.shows(LINE)
        terminal.types(keys)
        terminal.shows("waits for you", asked)
        assert orga("answer", run_id, "1999", "--by", "grace").code == 0
        assert terminal.code() == 0
    assert answers_in_journal(orga, run_id) == [("result", "1999", "grace")]


def test_the_input_line_disappears_when_somebody_else_answers(orga: Orga) -> None:
    with at_a_terminal(orga, "run", "when was it?", "--id", "elsewhere") as terminal:
        terminal.shows(LINE)
        terminal.types("19")
        assert orga("answer", "elsewhere", "1998", "--by", "grace").code == 0
        terminal.shows("It is known.")
        assert terminal.code() == 0
    assert answers_in_journal(orga, "elsewhere") == [("result", "1998", "grace")]


def test_ctrl_c_in_the_line_detaches_and_keeps_the_question(orga: Orga) -> None:
    with at_a_terminal(orga, "run", "when was it?", "--id", "left") as terminal:
        terminal.shows(LINE)
        terminal.types("\x03")
        terminal.shows("To come back: orga attach left")
        assert terminal.code() == 130
    [item] = [each for each in json.loads(orga("inbox", "--json").out) if each["run"] == "left"]
    assert item["question"] == "Which year?"
    assert orga("answer", "left", "1999").code == 0


def test_without_a_keyboard_the_command_is_shown(orga: Orga) -> None:
    with orga.started("run", "when was it?", "--id", "piped") as running:
        running.line("waits for you: Which year\\? → orga answer piped")
        assert orga("answer", "piped", "1999").code == 0
        assert running.code() == 0
