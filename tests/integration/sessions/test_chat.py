"""`orga chat` on a real server: a script that talks through a pipe, and a person who types at a terminal."""

import json
import re
import shlex
import signal
import subprocess
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orga.workflows.types.json_text import as_object, as_objects, as_text
from tests.support.model.chat_server import Calls, ChatServer, Says, chat_server
from tests.support.programs.inline_command import InlineOrga
from tests.support.programs.orga_command import ROOT, Orga, Running, an_orga
from tests.support.programs.terminal import Terminal, at_a_terminal
from tests.support.values.pictures import a_png

APPROVALS = (ROOT / "docs" / "approvals.md").read_text()
ENTER, ALT_ENTER, CTRL_C, CTRL_D = "\r", "\x1b\r", "\x03", "\x04"
PROMPT = "›"


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", APPROVALS, re.DOTALL | re.MULTILINE)
    assert found
    return found[1]


@pytest.fixture(scope="module")
def model() -> Iterator[ChatServer]:
    with chat_server(Says(["nothing"])) as chat:
        yield chat


@pytest.fixture(scope="module")
def orga(tmp_path_factory: pytest.TempPathFactory, model: ChatServer) -> Iterator[Orga]:
    folder, home = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("home")
    (folder / "orga.toml").write_text(block("toml") + '\n[agents.default]\ntools = ["ask_user", "read_file"]\n')
    (folder / "till.py").write_text(block("python"))
    (folder / "policies").mkdir()
    (folder / "policies" / "refunds.cedar").write_text(block("cedar"))
    (folder / "notes.md").write_text("It begins\x1b[2J on 4 May.\n")
    settings = {"ORGA_MODELS__BASE_URLS": json.dumps({"openai-compatible": model.url}), "LOGNAME": "ada"}
    command = InlineOrga(folder, an_orga(folder, home, ORGA_MODELS__DEFAULT="openai-compatible:m", **settings).env)
    yield command
    command("server", "--stop")


@pytest.fixture(scope="module", autouse=True)
def worker(orga: Orga) -> Iterator[Running]:
    with orga.started("worker") as running:
        running.line("polls task queue")
        yield running


def conversation_of(model: ChatServer) -> list[str]:
    """Return the messages of the person and the model in its last request."""
    messages: list[dict[str, Any]] = model.requests[-1]["messages"]
    return [str(each["content"]) for each in messages if each["role"] in {"user", "assistant"}]


def state_of(orga: Orga, session: str) -> str:
    """Return the state of a session in the list of runs."""
    return next(row["state"] for row in json.loads(orga("list", "--json").out) if row["id"] == session)


def sends(terminal: Terminal, text: str) -> int:
    """Type a message and return its position."""
    at = len(terminal.text)
    terminal.types(text + ENTER)
    return at


def test_a_script_sends_line_after_line_and_returns_later(orga: Orga, model: ChatServer) -> None:
    model.replies = [Says(["One."]), Says(["Two."]), Says(["Three."]), Says(["Four."])]
    done = orga("chat", "--id", "script", "--json", stdin=b"I am Ada.\n\nAnd?\nWho am I?\n")
    assert done.code == 0, done.err
    turns = [json.loads(line) for line in done.out.splitlines()]
    assert [(each["session"], each["turn"], each["output"]) for each in turns] == [
        ("script", 1, "One."),
        ("script", 2, "Two."),
        ("script", 3, "Three."),
    ]
    assert {each["iterations"] for each in turns} == {1}
    assert conversation_of(model) == ["I am Ada.", "One.", "And?", "Two.", "Who am I?"]
    assert "To return: orga chat script" in done.err

    later = orga("chat", "--last", "--say", "Still there?\nYes?", "--history", "1")
    assert (later.code, later.out) == (0, "Four.\n")
    assert "── turn 3" in later.err
    assert "── turn 2" not in later.err
    assert conversation_of(model)[-1] == "Still there?\nYes?"
    while state_of(orga, "script") != "running (idle)":  # the server's list lags a moment
        time.sleep(0.1)


def pictures_of(model: ChatServer) -> list[list[str]]:
    """Return the base64 of the pictures in each message of a person in the last request."""
    messages = [as_objects(each["content"]) for each in model.requests[-1]["messages"] if each["role"] == "user"]
    addresses = [[as_text(as_object(part.get("image_url")).get("url")) for part in parts] for parts in messages]
    return [[address.partition(",")[2] for address in each if address] for each in addresses]


def test_a_person_attaches_pictures_to_messages(orga: Orga, model: ChatServer) -> None:
    first, second, third = (a_png(colour=colour) for colour in (1, 2, 3))
    for name, data in (("first photo.png", first), ("second.png", second), ("third.png", third)):
        (orga.folder / name).write_bytes(data)
    model.replies = [Says(["A lamp."]), Says(["Another lamp."]), Says(["Dark."])]
    with at_a_terminal(orga, "chat", "--id", "seen", "--attach", "first photo.png") as terminal:
        terminal.shows(r"\[image first photo.png, 4x3, \d+ bytes\] goes with the next message")
        at = sends(terminal, "/attach notes.md")
        terminal.shows(r"/attach 'notes.md': is no PNG, JPEG, GIF, WebP or PDF\.", at)
        sends(terminal, "/attach 'second.png'")
        terminal.shows(r"\[image second.png, ")
        (orga.folder / "second.png").unlink()
        sends(terminal, "What is it?")
        terminal.shows("A lamp.")
        at = sends(terminal, "/attach")
        terminal.shows("nothing is attached", at)
        sends(terminal, "And now?")
        terminal.shows("Another lamp.")
        terminal.types(CTRL_D)
        assert terminal.code() == 0
    encoded = [b64encode(each).decode() for each in (first, second, third)]
    assert pictures_of(model) == [encoded[:2], []]

    done = orga("chat", "seen", "--attach", "third.png", "--say", "And this?")
    assert (done.code, done.out) == (0, "Dark.\n"), done.err
    assert pictures_of(model) == [encoded[:2], [], encoded[2:]]
    done = orga("chat", "seen", "--attach", "notes.md", "--say", "And this?")
    assert (done.code, "--attach 'notes.md': is no PNG" in done.err) == (2, True)
    assert "turn 1: What is it? [image first photo.png, 4x3" in orga("journal", "seen").out
    past = orga("chat", "seen", stdin=b"/history\n").err
    assert re.search(r"› And this\?\s+\[image third.png, 4x3", past), past


def test_the_pipes_of_the_guide_send_their_input(tmp_path: Path, orga: Orga, model: ChatServer) -> None:
    """Each line of the guide runs with the output of the command before its pipe."""
    guide = (ROOT / "docs" / "chat.md").read_text()
    (lines,) = re.findall(r"^```bash\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)
    (tmp_path / "changed.md").write_text("A line that is new.\n")
    subprocess.run("git init -q && git add -N changed.md", shell=True, cwd=tmp_path, check=True)
    model.replies = [Says(["Here."])]
    assert orga("chat", "--id", "piped", "--say", "Wait.").code == 0
    conversations: list[tuple[list[int], list[str]]] = []
    for line in lines.splitlines():
        source, _, typed = line.partition(" | ")
        piped = subprocess.run(["bash", "-c", source], cwd=tmp_path, capture_output=True, check=True).stdout
        model.replies = [Says(["One."]), Says(["Two."])]
        done = orga(*shlex.split(typed.replace("chat ID", "chat piped"))[1:], stdin=piped)
        assert done.code == 0, done.err
        conversations.append(([json.loads(turn)["turn"] for turn in done.out.splitlines()], conversation_of(model)))
    (of_diff, diff), (of_lines, ada) = conversations
    assert (of_diff, of_lines) == ([2], [1, 2])
    assert "+A line that is new." in diff[-1]
    assert ada == ["I am Ada.", "One.", "Who am I?"]


def test_a_turn_that_reaches_a_limit_sets_the_exit_code(orga: Orga, model: ChatServer) -> None:
    model.replies = [Calls("read_file", {"path": "notes.md"})]
    done = orga("chat", "--set", "max_iterations=1", "--say", "Read on.", "--json")
    assert (done.code, json.loads(done.out)["termination"]["reason"]) == (3, "max_iterations")


def test_a_person_types_several_lines_leaves_and_returns(orga: Orga, model: ChatServer) -> None:
    model.replies = [Says(["Noted, **Ada**."]), Says(["Again."])]
    with at_a_terminal(orga, "chat", "--id", "typed") as terminal:
        terminal.shows(PROMPT)
        terminal.types(f"I am Ada{ALT_ENTER}and this is mine")
        sends(terminal, "")
        terminal.shows("Noted, Ada")
        at = terminal.shows("turn 1: completed")
        terminal.shows(PROMPT, at)
        terminal.types(CTRL_D)
        terminal.shows("the session goes on. To return: orga chat typed")
        assert terminal.code() == 0
    assert conversation_of(model) == ["I am Ada\nand this is mine"]
    with at_a_terminal(orga, "chat", "type") as terminal:
        terminal.shows(r"── turn 1, \d+ \w+ ago\s+› I am Ada\s+and this is mine\s+Noted, \*\*Ada\*\*")
        at = terminal.shows(PROMPT, terminal.shows("mine"))
        sends(terminal, "Hello again")
        at = terminal.shows("turn 2: completed", at)
        assert orga("chat", "typed", "--say", "/close").code == 0  # a script sends it as text
        terminal.shows("turn 3: completed", terminal.shows("turn 3: /close", at))
        terminal.types(CTRL_C)
        assert terminal.code() == 0
    assert conversation_of(model)[2:] == ["Hello again", "Again.", "/close"]


def test_ctrl_c_interrupts_the_turn_then_sends_what_was_typed_and_a_second_one_leaves(
    orga: Orga, model: ChatServer
) -> None:
    model.release.clear()
    model.replies = [Says(["It is a long", " story."], hold=True), Says(["never"])]
    with at_a_terminal(orga, "chat", "--id", "cut") as terminal:
        terminal.shows(PROMPT)
        sends(terminal, "Tell me all")
        terminal.shows("It is a long")  # while it is written
        sends(terminal, "In short?")
        at = terminal.shows("turn 2 waits")
        terminal.types(CTRL_C)
        at = terminal.shows("interrupting the turn", at)
        at = terminal.shows("turn 1: interrupted", at)
        at = terminal.shows("turn 2: In short?", at)
        terminal.shows("It is a long", at)
        terminal.types(CTRL_C)
        at = terminal.shows("interrupting the turn", at)
        terminal.shows("turn 2: interrupted", at)
        at = sends(terminal, "Once more")
        terminal.shows("It is a long", at)
        terminal.types(CTRL_C + CTRL_C)
        terminal.shows("the session goes on", at)
        assert terminal.code() == 130
    model.release.set()


def test_a_turn_is_steered_from_the_input_line(orga: Orga, model: ChatServer) -> None:
    model.release.clear()
    model.replies = [Says(["It is a long", " story."], hold=True), Says(["In short."])]
    with at_a_terminal(orga, "chat") as terminal:
        terminal.shows(PROMPT)
        sends(terminal, "Tell me all")
        terminal.shows("It is a long")
        sends(terminal, "/steer Be brief")
        terminal.shows("the current turn reads it at its next step")
        model.release.set()
        terminal.shows("turn 1: completed: 2 iterations")
        terminal.types(CTRL_D)
        assert terminal.code() == 0
    assert any("Be brief" in str(message["content"]) for message in model.requests[-1]["messages"])


def test_ctrl_c_in_a_script_interrupts_its_turn(orga: Orga, model: ChatServer) -> None:
    model.release.clear()
    model.replies, before = [Says(["It is a long", " story."], hold=True)], len(model.requests)
    with orga.started("chat", "--say", "Tell me all") as running:
        running.line("^session ")
        while len(model.requests) == before:
            time.sleep(0.05)
        running.send(signal.SIGINT)
        running.line("interrupting the turn")
        running.line("turn 1: interrupted")
        assert running.code() == 5
    model.release.set()


def test_calls_are_folded_and_unfolded_and_cannot_control_the_terminal(orga: Orga, model: ChatServer) -> None:
    model.replies = [Calls("read_file", {"path": "notes.md"}), Says(["In May.\x1b]0;mine\x07"])]
    with at_a_terminal(orga, "chat") as terminal:
        terminal.shows(PROMPT)
        sends(terminal, "When?")
        at = terminal.shows("turn 1: completed", terminal.shows(r"✓ read_file notes.md \(\d"))
        assert "→ read_file" not in terminal.text
        sends(terminal, "/tools")
        terminal.shows("It begins on 4 May.", terminal.shows("→ read_file notes.md", at))
        sends(terminal, "/budget")
        at = terminal.shows("turn 1: 2 of 25 iterations")
        sends(terminal, "/nonsense")
        terminal.shows("/nonsense: no such command", at)
        sends(terminal, "/close")
        terminal.shows("the session has ended")
        assert terminal.code() == 0
    assert b"\x1b]0;mine" not in terminal.raw


def test_a_question_of_a_turn_is_answered_in_the_input_line(orga: Orga, model: ChatServer) -> None:
    model.replies = [
        Calls("ask_user", {"question": "Which year?", "options": ["1998", "1999"]}),
        Says(["It is known."]),
    ]
    with at_a_terminal(orga, "chat", "--id", "asked") as terminal:
        terminal.shows(PROMPT)
        sends(terminal, "When was it?")
        terminal.shows(r"\? asks: Which year\?\s")  # a question of the model must not look like a held call
        terminal.shows(r"answer \(1998, 1999; Enter: later\) ›")
        sends(terminal, "1999")
        terminal.shows("It is known.")
        terminal.types(CTRL_D)
        assert terminal.code() == 0
    entries = [json.loads(line) for line in orga("journal", "asked", "--json").out.splitlines()]
    answers = [each["data"] for each in entries if each["event"] == "QuestionAnswered"]
    assert [(each["answer"], each["by"]) for each in answers] == [("1999", "ada")]


def test_a_held_call_is_approved_in_the_chat(orga: Orga, model: ChatServer) -> None:
    model.replies = [Calls("refund", {"order": "A-7", "cents": 900}), Says(["Refunded."])]
    with at_a_terminal(orga, "chat", "--agent", "cashier") as terminal:
        terminal.shows(PROMPT)
        sends(terminal, "/approve")
        terminal.shows("nothing waits for your approval")
        sends(terminal, "Refund it")
        terminal.shows("waits for your approval: refund")
        sends(terminal, "/approve It is small")
        terminal.shows("approved: refund")
        terminal.shows("Refunded.")
        terminal.types(CTRL_D)
        assert terminal.code() == 0
    assert (orga.folder / "refunds").exists()


def test_anything_but_an_open_session_is_refused_with_a_remedy(orga: Orga, model: ChatServer) -> None:
    model.replies = [Says(["done"])]
    assert orga("run", "a task", "--id", "a-run").code == 0
    assert orga("chat", "--id", "over", stdin=b"hello\n/close\n").code == 0
    for arguments, reported in (
        (["chat", "nobody", "--say", "x"], "there is no run 'nobody'"),
        (["chat", "What is here?"], "To send this as a message: orga chat --say 'What is here?'"),
        (["chat", "a-run", "--say", "x"], "is the run of one task, not a session. `orga attach a-run`"),
        (["chat", "over", "--say", "x"], "session over has ended"),
        (["chat", "over", "--model", "m"], "are fixed when a session starts"),
        (["chat", "--agent", "nobody", "--say", "x"], "nobody"),
        (["chat", "--say", " "], "--say: the message is empty"),
    ):
        done = orga(*arguments)
        assert done.code == 2, (arguments, done.err)
        assert reported in done.err


def test_a_session_without_messages_is_closed(orga: Orga) -> None:
    with at_a_terminal(orga, "chat", "--id", "silent") as terminal:
        terminal.shows(PROMPT)
        terminal.types(CTRL_D)
        terminal.shows("nothing was sent, so the session is closed")
        assert terminal.code() == 0


def test_a_session_whose_first_message_is_refused_is_closed(orga: Orga) -> None:
    for number, conversation_of in enumerate((b"x" * 60_000, b"/nonsense\n")):
        done = orga("chat", "--id", f"refused-{number}", stdin=conversation_of)
        assert done.code, done.err
        assert "nothing was sent, so the session is closed" in done.err
        done = orga("chat", f"refused-{number}", "--say", "Hello")
        assert (done.code, "has ended" in done.err) == (2, True), done.err
