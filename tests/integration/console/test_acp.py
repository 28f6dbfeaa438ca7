"""`orga acp` on a real server, with clients of other makers: `acpx`, and the SDK of the protocol."""

import json
import re
import subprocess
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from orga.activities.media import MAX_FRONTEND_MESSAGE_BYTES
from orga.client.frontends.turns import AGAIN_S
from tests.support.model.chat_server import Calls, CallsAtOnce, ChatServer, Says
from tests.support.model.goals import GOOD, a_step
from tests.support.parts.front_ends import front_end_path
from tests.support.programs.acp_client import AcpClient, AcpError, an_editor
from tests.support.programs.orga_command import COMMAND, ROOT, Orga
from tests.support.scenarios.till import REFUNDS, Till, a_till
from tests.support.values.pictures import a_png


@pytest.fixture(scope="module")
def till(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Till]:
    with a_till(tmp_path_factory) as found:
        yield found


@pytest.fixture
def orga(till: Till) -> Orga:
    return till.orga


@pytest.fixture
def model(till: Till) -> ChatServer:
    return till.model


@pytest.fixture(autouse=True)
def refunds(till: Till) -> Path:
    """Return the file of the refunds that were paid in this test."""
    till.paid.write_text("")
    return till.paid


def begin(client: AcpClient, orga: Orga) -> str:
    return client.call("newSession", cwd=str(orga.folder), mcpServers=[])["sessionId"]


def test_a_turn_streams_text_and_calls(orga: Orga, model: ChatServer) -> None:
    model.replies = [Calls("read_file", {"path": "notes.md"}), Says(["It begins ", "on 4 May."]), Says(["Again."])]
    with an_editor(orga) as client:
        session = begin(client, orga)
        assert client.prompts(session, "When?").result(60) == {"stopReason": "end_turn"}
        assert client.text() == "It begins on 4 May."
        assert client.calls() == {"read_file notes.md": ["pending", "in_progress", "completed"]}
        [begun] = [each for each in client.updates if each["sessionUpdate"] == "tool_call"]
        assert (begun["kind"], begun["locations"]) == ("read", [{"path": str(orga.folder / "notes.md")}])
        done = [each for each in client.updates if each.get("status") == "completed"]
        assert "It begins on 4 May." in done[0]["content"][0]["content"]["text"]
        listed = client.call("listSessions")["sessions"]
        assert [each["title"] for each in listed if each["sessionId"] == session] == ["When?"]
        orga("abort", session)
        wait_until(lambda: "aborted" in client.text())
        assert client.text().count("It begins on 4 May.") == 1


def test_pictures_and_documents_of_a_prompt_reach_the_model(orga: Orga, model: ChatServer) -> None:
    model.replies = [Says(["A lamp."]), Says(["Large."]), Says(["Nothing new."])]
    picture, large = a_png(), b"%PDF-1.4 /Type /Page ".ljust(6_000_000, b" ")
    image = {"type": "image", "data": b64encode(picture).decode(), "mimeType": "image/jpeg", "uri": "file:///a/b.png"}
    file = {"uri": "file:///a/our%20plan.pdf", "blob": b64encode(large).decode(), "mimeType": "application/pdf"}
    with an_editor(orga) as client:
        session = begin(client, orga)
        prompts: list[list[dict[str, Any]]] = [
            [{"type": "text", "text": "What is it?"}, image],
            [{"type": "resource", "resource": file}],
        ]
        for prompt in prompts:
            assert client.begin("prompt", sessionId=session, prompt=prompt).result(60) == {"stopReason": "end_turn"}
        assert client.text() == "A lamp.Large."
        first, second = [m["content"] for m in model.requests[-1]["messages"] if m["role"] == "user"]
        for refused, problem in (
            (image | {"data": b64encode(b"<svg/>").decode()}, "'b.png': is no PNG, JPEG, GIF, WebP or PDF. Convert"),
            (image | {"data": "https://a.example/b.png"}, "'b.png': is not base64, and no address is fetched. Send"),
            (image | {"data": b64encode(picture.ljust(4_000_000)).decode()}, "the limit is 3.8 MB. Scale it down"),
        ):
            with pytest.raises(AcpError, match=re.escape(problem)):
                client.call("prompt", sessionId=session, prompt=[{"type": "text", "text": "And?"}, refused])
        with pytest.raises(AcpError, match="there are 11, and the limit is 10"):
            client.call("prompt", sessionId=session, prompt=[image] * 11)
        sound = {"type": "audio", "data": "", "mimeType": "audio/wav"}
        with pytest.raises(AcpError, match="only texts, links, pictures and files are read"):
            client.call("prompt", sessionId=session, prompt=[sound])
        assert client.prompts(session, "And now?").result(60) == {"stopReason": "end_turn"}
    assert b64encode(picture).decode() in json.dumps(first)
    assert "What is it?" in json.dumps(first)
    assert b64encode(large).decode() in json.dumps(second)
    assert "[document our plan.pdf, 1 page, 6.0 MB]" in json.dumps(second)


def test_a_goal_begins_with_a_picture_and_its_guidance_has_none(orga: Orga, model: ChatServer) -> None:
    plan = {"steps": [a_step("pay", "refund", order="A", cents=1)]}
    model.replies = [Says([json.dumps(plan)]), Says(["never"])]
    image = {"type": "image", "data": b64encode(a_png()).decode(), "mimeType": "image/png"}
    with an_editor(orga, "--goal") as client:
        session = begin(client, orga)
        client.begin("prompt", sessionId=session, prompt=[{"type": "text", "text": "Pay this bill"}, image])
        client.ask(1)
        assert b64encode(a_png()).decode() in json.dumps(model.requests[-1]["messages"])
        with pytest.raises(AcpError, match="answers and guidance have no pictures"):
            client.call("prompt", sessionId=session, prompt=[{"type": "text", "text": "Like this"}, image])
        client.call("cancel", sessionId=session)


def test_a_repeated_prompt_is_one_turn(orga: Orga, model: ChatServer) -> None:
    model.replies = [Says(["One."]), Says(["Two."])]
    with an_editor(orga) as client:
        session = begin(client, orga)
        for _ in range(2):
            assert client.prompts(session, "Hello", _meta={"messageId": "m 1"}).result(60) == {"stopReason": "end_turn"}
        assert client.text() == "One."
    entries = [json.loads(line) for line in orga("journal", session, "--json").out.splitlines()]
    assert [each["event"] for each in entries].count("TurnStarted") == 1
    assert {each["data"]["by"] for each in entries if each["data"].get("kind") == "send"} == {"ada"}


def test_each_held_call_is_asked_once_and_never_for_always(orga: Orga, model: ChatServer, refunds: Path) -> None:
    model.replies = [REFUNDS, Says(["Decided."])]
    with an_editor(orga) as client:
        session = begin(client, orga)
        ended = client.prompts(session, "Pay")
        asks = [client.ask(1), client.ask(2)]
        assert [ask.options for ask in asks] == [["allow_once", "reject_once"]] * 2
        for ask in asks:
            arguments = ask.params["toolCall"]["rawInput"]
            client.selects(ask, "allow" if arguments["order"] == "A" else "reject")
        assert ended.result(60) == {"stopReason": "end_turn"}
        assert len(client.asked) == 2
        assert refunds.read_text() == "A 1\n"
        states = client.calls()
        assert (states["refund A"][-1], states["refund B"][-1]) == ("completed", "failed")
        assert client.text() == "Decided."


def test_a_call_outlives_the_agent_and_is_asked_again(orga: Orga, model: ChatServer, refunds: Path) -> None:
    model.replies = [REFUNDS, Says(["Paid."]), Says(["You asked me to pay."])]
    with an_editor(orga) as client:
        session = begin(client, orga)
        client.prompts(session, "Pay both")
        client.ask(2)
        client.kill()
    with an_editor(orga) as client:
        client.call("loadSession", sessionId=session, cwd=str(orga.folder), mcpServers=[])
        assert client.text("user_message_chunk") == "Pay both"
        ended = client.prompts(session, "And?")
        for number in (1, 2):
            client.selects(client.ask(number), "allow")
        assert ended.result(60) == {"stopReason": "end_turn"}
        assert client.text() == "\n\nPaid.\n\nYou asked me to pay." or client.text() == "Paid.You asked me to pay."
        assert sorted(refunds.read_text().splitlines()) == ["A 1", "B 2"]
    with an_editor(orga) as client:
        client.call("resumeSession", sessionId=session, cwd=str(orga.folder), mcpServers=[])
        assert client.updates == []
        client.call("loadSession", sessionId=session, cwd=str(orga.folder), mcpServers=[])
        assert client.calls() == {name: ["pending", "in_progress", "completed"] for name in ("refund A", "refund B")}
        assert "Pay both" in client.text("user_message_chunk")


LEFT = {"outcome": {"outcome": "cancelled"}}


def test_a_question_is_answered(orga: Orga, model: ChatServer) -> None:
    which = Calls("ask_user", {"question": "Which?", "options": ["red", "blue"]})
    model.replies = [which, Calls("ask_user", {"question": "Why?"}), Says(["I see."])]
    with an_editor(orga) as client:
        session = begin(client, orga)
        ended = client.prompts(session, "Ask me")
        ask = client.ask(1)
        assert ask.options == ["allow_once", "allow_once"]
        client.selects(ask, "1")
        assert ended.result(60) == {"stopReason": "end_turn"}
        assert client.text().endswith("Why?\nYour next message answers it.\n")
        assert client.prompts(session, "because").result(60) == {"stopReason": "end_turn"}
        assert client.text().endswith("I see.")
    answers = [each["text"] for each in json.loads(orga("conversation", session, "--json").out) if each["tool"]]
    assert ["blue" in answers[0], "because" in answers[1]] == [True, True]


def test_an_answer_that_is_no_option_is_refused_and_the_question_stays(orga: Orga, model: ChatServer) -> None:
    model.replies = [Calls("ask_user", {"question": "Which?", "options": ["red", "blue"]}), Says(["Noted."])]
    with an_editor(orga) as client:
        session = begin(client, orga)
        ended = client.prompts(session, "Ask me")
        client.answer(client.ask(1), LEFT)
        assert ended.result(60) == {"stopReason": "end_turn"}
        assert client.text().endswith("Which?\n- red\n- blue\nYour next message answers it.\n")
        with pytest.raises(AcpError, match="answer with one of: red, blue"):
            client.prompts(session, "green").result(60)
        assert client.prompts(session, "blue").result(60) == {"stopReason": "end_turn"}
        assert client.text().endswith("Noted.")


def test_two_questions_at_once_are_answered_one_after_the_other(orga: Orga, model: ChatServer) -> None:
    questions = [Calls("ask_user", {"question": question}) for question in ("Where?", "When?")]
    model.replies = [CallsAtOnce(questions), Says(["I see."])]
    with an_editor(orga) as client:
        session = begin(client, orga)
        for text in ("Ask me", "one", "two"):
            assert client.prompts(session, text).result(60) == {"stopReason": "end_turn"}
        assert client.text().endswith("I see.")


def test_what_was_left_open_is_asked_again_with_the_next_prompt(orga: Orga, model: ChatServer, refunds: Path) -> None:
    model.replies = [REFUNDS, Says(["Paid."]), Says(["Next."])]
    with an_editor(orga) as client:
        session = begin(client, orga)
        ended = client.prompts(session, "Pay")
        for number in (1, 2):
            client.answer(client.ask(number), LEFT)
        assert ended.result(60) == {"stopReason": "end_turn"}
        assert client.text().count("It waits in `orga inbox`") == 2
        prompted = time.monotonic()
        ended = client.prompts(session, "And?")
        for number in (3, 4):
            client.selects(client.ask(number), "allow")
        assert time.monotonic() - prompted < AGAIN_S
        assert ended.result(60) == {"stopReason": "end_turn"}
        assert client.text().endswith("Paid.Next.")
        assert sorted(refunds.read_text().splitlines()) == ["A 1", "B 2"]


def test_a_person_who_may_not_decide_reads_why(orga: Orga, model: ChatServer, refunds: Path) -> None:
    model.replies = [REFUNDS, Says(["Paid."])]
    with an_editor(replace(orga, env=orga.env | {"LOGNAME": "bob"})) as client:
        session = begin(client, orga)
        ended = client.prompts(session, "Pay")
        for number in (1, 2):
            client.selects(client.ask(number), "allow")
        assert ended.result(60) == {"stopReason": "end_turn"}
        assert re.search("Not decided: .*bob.* It waits in `orga inbox`", client.text())
    orga("abort", session)
    assert refunds.read_text() == ""


def test_cancelling_ends_the_turn_and_its_question(orga: Orga, model: ChatServer, refunds: Path) -> None:
    model.replies = [REFUNDS, Says(["Next."])]
    with an_editor(orga) as client:
        session = begin(client, orga)
        first, second = client.prompts(session, "Pay"), client.prompts(session, "Pay more")
        ask = client.ask(2)
        client.call("cancel", sessionId=session)
        client.answer(ask, {"outcome": {"outcome": "cancelled"}})
        assert (first.result(60), second.result(60)) == ({"stopReason": "cancelled"},) * 2
        assert client.prompts(session, "Hello?").result(60) == {"stopReason": "end_turn"}
        assert client.text().endswith("Next.")
        assert refunds.read_text() == ""
        client.call("closeSession", sessionId=session)
        with pytest.raises(AcpError, match="is not open here"):
            client.prompts(session, "Hello?").result(60)


def test_a_goal_is_started_shows_its_plan_and_is_loaded(orga: Orga, model: ChatServer) -> None:
    plan, scores = {"steps": [a_step("pay", "refund", order="A", cents=1)]}, {"steps": [{"id": "pay", **GOOD}]}
    step = Calls("refund", {"order": "A", "cents": 1})  # nobody asks the model for it: the plan has the arguments
    model.replies = [Says([json.dumps(plan)]), step, Says([json.dumps(scores)]), Says(["Paid one cent."])]

    def plans(client: AcpClient) -> list[list[str]]:
        found = [each["entries"] for each in client.updates if each["sessionUpdate"] == "plan"]
        return [[entry["status"] for entry in entries] for entries in found]

    with an_editor(orga, "--goal") as client:
        goal = begin(client, orga)
        ended = client.prompts(goal, "Pay one cent")
        client.selects(client.ask(1), "allow")
        assert ended.result(60) == {"stopReason": "end_turn"}
        assert plans(client)[0] == ["pending"]
        assert plans(client)[-1] == ["completed"]
        assert client.text() == "Paid one cent."
        assert client.calls()["refund A"][-1] == "completed"
        with pytest.raises(AcpError, match="has ended"):
            client.prompts(goal, "More").result(60)
    with an_editor(orga) as client:
        client.call("loadSession", sessionId=goal, cwd=str(orga.folder), mcpServers=[])
        assert client.text("user_message_chunk") == "Pay one cent"
        assert plans(client)[-1] == ["completed"]
        assert client.text() == "Paid one cent."


def test_a_live_goal_is_loaded_guided_and_cancelled(orga: Orga, model: ChatServer, refunds: Path) -> None:
    plan = {"steps": [a_step("pay", "refund", order="A", cents=1)]}
    model.replies = [Says([json.dumps(plan)]), Says(["never"])]
    goal = orga("goal", "Pay", "--detach", "--no-worker").out.strip()
    with an_editor(orga) as client:
        client.call("loadSession", sessionId=goal, cwd=str(orga.folder), mcpServers=[])
        client.ask(1)
        guided = client.prompts(goal, "Only one cent")
        wait_until(lambda: "Only one cent" in orga("journal", goal, "--json").out)
        client.call("cancel", sessionId=goal)
        assert guided.result(60) == {"stopReason": "cancelled"}
    assert "aborted" in orga("journal", goal, "--json").out
    assert refunds.read_text() == ""


def test_twenty_prompts_at_once_are_twenty_turns_in_their_order(orga: Orga, model: ChatServer) -> None:
    model.replies = [Says(["Yes."])]
    with an_editor(orga) as client:
        session = begin(client, orga)
        endings = [client.prompts(session, f"Question {n}") for n in range(20)]
        assert [ending.result(60) for ending in endings] == [{"stopReason": "end_turn"}] * 20
    sent = [each["text"] for each in json.loads(orga("conversation", session, "--json").out) if each["role"] == "user"]
    assert sent == [f"Question {n}" for n in range(20)]


def test_what_is_not_there_is_refused(orga: Orga, tmp_path: Path) -> None:
    other = orga("run", "Hello", "--detach", "--no-worker", "--tenant", "acme").out.strip()
    chat = json.loads(orga("chat", "--say", "Hello", "--tenant", "acme", "--json").out)["session"]
    with an_editor(orga, "--tenant", "other") as client:
        here = str(orga.folder)
        for session in (other, chat, "session-none", "x" * 5_000, "\x00", ""):
            with pytest.raises(AcpError, match="there is no run"):
                client.call("loadSession", sessionId=session, cwd=here, mcpServers=[])
        with pytest.raises(AcpError, match=re.escape(f"cwd: this agent acts in {here}, not in {tmp_path}")):
            client.call("newSession", cwd=str(tmp_path), mcpServers=[])
        assert client.call("listSessions")["sessions"] == []


def request(number: object, method: object, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()


HOSTILE_LINES = {
    "no JSON": b"{",
    "no UTF-8": b"\xff\xfe",
    "half a character": b'{"id": 1, "method": "\\ud800"}',
    "too deep": b"[" * 100_000,
    "too long": b'"' + b"x" * (MAX_FRONTEND_MESSAGE_BYTES + 1) + b'"',
    "a batch": b"[1, 2]",
    "a number": b"5",
    "no method": b"{}",
    "an answer to nothing": b'{"id": 99, "result": {}}',
    "an error that is none": b'{"id": 0, "error": "no"}',
    "an id that is a list": b'{"id": [1], "result": {}}',
    "a method that is a list": b'{"id": 1, "method": []}',
}


def test_a_hostile_line_is_refused_and_the_next_one_is_read(orga: Orga) -> None:
    lines = [
        *HOSTILE_LINES.values(),
        request(1, "nothing/such"),
        request(2, "session/prompt", sessionId=5),
        request(3, "session/prompt", sessionId="s", prompt=[{"type": "image", "data": "", "mimeType": "image/png"}]),
        request(4, "session/new", cwd="\0", mcpServers=[]),
        request(5, "session/fork", sessionId="s", cwd="/"),
        request("last", "initialize", protocolVersion=1),
    ]
    done = subprocess.run(
        [*COMMAND, "acp", "--no-worker"],
        input=b"\n".join(lines) + b"\n",
        stdout=subprocess.PIPE,
        cwd=orga.folder,
        env=orga.env,
        timeout=60,
        check=False,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    errors = {each["id"]: each["error"]["code"] for each in answers if each.get("id") in range(1, 6)}
    assert errors == {1: -32601, 2: -32602, 3: -32002, 4: -32602, 5: -32601}
    assert {each["error"]["code"] for each in answers if each["id"] is None} == {-32600}
    assert [each["result"]["protocolVersion"] for each in answers if each["id"] == "last"] == [1]
    assert done.returncode == 0


def test_a_client_that_never_reads_holds_nothing_up(orga: Orga, model: ChatServer) -> None:
    """Its unread messages stay bounded, and others go on."""
    model.replies = [Says(["x" * 60_000])]
    command = [*COMMAND, "acp", "--no-worker"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=orga.folder, env=orga.env
    ) as silent:
        assert silent.stdin is not None
        assert silent.stdout is not None
        silent.stdin.write(request(1, "session/new", cwd=str(orga.folder), mcpServers=[]) + b"\n")
        silent.stdin.flush()
        session = json.loads(silent.stdout.readline())["result"]["sessionId"]
        for number in range(20):
            text = [{"type": "text", "text": f"Question {number}"}]
            silent.stdin.write(request(number + 2, "session/prompt", sessionId=session, prompt=text) + b"\n")
        silent.stdin.flush()
        with an_editor(orga) as client:
            other = begin(client, orga)
            assert client.prompts(other, "Hi").result(60) == {"stopReason": "end_turn"}
        silent.kill()
    assert "Question 0" in orga("journal", session, "--json").out


def test_text_of_a_model_cannot_act_on_a_terminal(orga: Orga, model: ChatServer) -> None:
    evil = "\x1b[2J\x07\u202egnp.exe\x9b1mdone\n\tcode"
    model.replies = [Calls("read_file", {"path": f"a\x1b]0;{evil}"}), Says([evil])]
    with an_editor(orga) as client:
        assert client.prompts(begin(client, orga), "Go").result(60) == {"stopReason": "end_turn"}
        assert client.text() == "gnp.exedone\n\tcode"
        [call] = [each for each in client.updates if each["sessionUpdate"] == "tool_call"]
        assert not re.search("[\x00-\x08\x0b-\x1f\u202e\x9b]", call["title"] + call["locations"][0]["path"])


def test_the_settings_of_the_guide_start_the_agent(orga: Orga) -> None:
    guide = (ROOT / "docs" / "front-ends.md").read_text()
    blocks = re.findall(r"^```json\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)
    named = [json.loads(each)["agent_servers"]["orga"]["args"] for each in blocks if "agent_servers" in each]
    assert len(named) == 2
    assert {command for command, *_ in named} == {"acp"}
    [options] = {tuple(rest) for _, *rest in named}
    with an_editor(orga, *options) as client:
        assert begin(client, orga).startswith("session-")


def test_acpx_talks_decides_and_is_killed_amid_a_turn(
    orga: Orga, model: ChatServer, refunds: Path, tmp_path: Path
) -> None:
    slow = Says(["Slow ", "but done."], hold=True)
    model.replies = [Says(["Hello."]), REFUNDS, Says(["Paid."]), REFUNDS, Says(["Not paid."]), slow, Says(["Last."])]
    agent = " ".join(f"'{word}'" for word in (*COMMAND, "acp", "--no-worker"))
    env = orga.env | {"PATH": front_end_path(), "HOME": str(tmp_path)}

    def command(*words: str, permissions: str = "--approve-all") -> list[str]:
        return ["acpx", permissions, "--ttl", "30", "--agent", agent, *words]

    def acpx(*words: str, permissions: str = "--approve-all") -> str:
        typed = command(*words, permissions=permissions)
        done = subprocess.run(typed, cwd=orga.folder, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    session = acpx("sessions", "new")
    assert "Hello." in acpx("Hi")
    assert "Paid." in acpx("Pay")
    assert refunds.read_text() == "A 1\nB 2\n"
    assert "Not paid." in acpx("Pay again", permissions="--deny-all")
    assert refunds.read_text() == "A 1\nB 2\n"
    before = len(model.requests)
    with subprocess.Popen(command("Take your time"), cwd=orga.folder, env=env, stdout=subprocess.DEVNULL):
        wait_until(lambda: len(model.requests) > before)
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("HOME") == str(tmp_path):  # acpx, its own server, and the agent
                    process.kill()
    model.release.set()
    assert "Last." in acpx("And?")
    found = re.search(r"session-[0-9a-f-]+", session)
    assert found
    assert "Slow but done." in orga("conversation", found[0]).out
    acpx("sessions", "close")


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)
