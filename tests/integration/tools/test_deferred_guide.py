"""The guide's example of a deferred tool: its files and its commands, on the embedded server, with a real worker."""

import json
import re
import shlex
from collections.abc import Iterator

import pytest

from tests.support.model.chat_server import Calls, Says, chat_server
from tests.support.programs.orga_command import ROOT, Done, Orga, an_orga

SECTION = (ROOT / "docs" / "your-own-tools.md").read_text().partition("## Results that come later")[2]


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", SECTION, re.DOTALL | re.MULTILINE)
    assert found
    return found[1]


@pytest.fixture(scope="module")
def orga(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orga]:
    folder, home = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("home")
    (folder / "orga.toml").write_text(block("toml"))
    (folder / "bureau.py").write_text(block("python"))
    with chat_server(Calls("credit_check", {"person": "Ada"}), Says(["She may."])) as chat:
        settings = {"ORGA_MODELS__BASE_URLS": json.dumps({"openai-compatible": chat.url}), "LOGNAME": "ada"}
        command = an_orga(folder, home, ORGA_MODELS__DEFAULT="openai-compatible:m", **settings)
        with command.started("worker") as worker:
            worker.line("polls task queue")
            yield command
        command("server", "--stop")


def test_the_commands_of_the_guide(orga: Orga) -> None:
    run, inbox, complete = (shlex.split(line)[1:] for line in block("sh").splitlines())
    assert orga(*run).code == 0

    def waiting() -> Done:
        found = orga(*inbox)
        while "nothing waits" in found.err:
            found = orga(*inbox)
        return found

    shown = waiting().out
    [order] = orga.folder.glob("order-*.json")
    ordered = json.loads(order.read_text())
    assert (ordered["person"], ordered["run"]) == ("Ada", "loan-7")
    assert shown.splitlines()[0].startswith(f"result  loan-7 (clerk)  {ordered['call']}  ")
    assert re.search(r", expires in (14 d|13 d 23 h)", shown)
    assert "asks: the result of credit_check" in shown
    assert f"→ orga complete loan-7 {ordered['call']} --result JSON (or --error TEXT)" in shown
    assert re.search(r"waits +result .*: the result of credit_check, expires in 1", orga("status", "loan-7").out)

    refused = orga("complete", "loan-7", "--result", '{"score": "high"}')
    assert (refused.code, "does not fit the output schema: $.score" in refused.err) == (2, True), refused.err
    done = orga(*complete)
    assert done.code == 0, done.err
    assert f"completed {ordered['call']} of loan-7" in done.err

    assert orga("attach", "loan-7").code == 0
    assert "She may." in orga("status", "loan-7").out
    assert '"score":640' in orga("conversation", "loan-7").out
    journal = orga("journal", "loan-7", "--json").out
    assert '"choice": "completed"' in journal or '"choice":"completed"' in journal
    assert orga("verify", "loan-7").code == 0


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "give one of --result JSON, --error TEXT"),
        (("--result", "1", "--error", "no"), "give one of --result JSON, --error TEXT"),
        (("--result", "{"), "--result: this is no valid JSON"),
        (("--result", "null"), "--result: is empty"),
        (("--result", "1", "--nothing-done"), "--nothing-done: belongs to --error"),
        (("--result", "@missing.json"), "the file cannot be read"),
    ],
)
def test_a_command_that_completes_nothing_is_refused(orga: Orga, arguments: tuple[str, ...], why: str) -> None:
    refused = orga("complete", "loan-7", *arguments)
    assert (refused.code, why in refused.err) == (2, True), refused.err
