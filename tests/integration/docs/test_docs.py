"""The commands in the documents run, and the product's own code reads the files that they show."""

import re
import shlex
import shutil
import time
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orga.activities.adapters.tools.python_function import PythonFunction
from orga.client.config.sections import OrgaConfig
from tests.support.programs.inline_command import an_inline_orga
from tests.support.programs.orga_command import ROOT, Orga
from tests.support.values.pictures import a_png

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(language: str) -> list[tuple[str, str]]:
    """Return every block of a language with the name of its document."""
    return [
        (path.name, block)
        for path in DOCUMENTS
        for block in re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)
    ]


def commands() -> list[list[str]]:
    """Return the commands of all `console` blocks without comments, in order."""
    lines = [line for _, block in blocks("console") for line in block.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


@pytest.fixture(scope="module")
def orga(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orga]:
    home = tmp_path_factory.mktemp("home")
    folder = tmp_path_factory.mktemp("project")
    (folder / "photo.png").write_bytes(a_png(640, 480))
    (folder / "README.md").write_text("# Project\n\nRetries are configured with `max_attempts`.\n")
    for document in (*(ROOT / "examples" / "library").iterdir(), ROOT / "examples" / "tools" / "pets.yaml"):
        shutil.copy(document, folder)
    command = an_inline_orga(folder, home)
    yield command
    command("server", "--stop")


@pytest.mark.timeout(400)
def test_the_commands_of_the_documents_run(orga: Orga) -> None:
    """They run in the order of the documents. `ID` is a live run, paused, so that it can be steered."""
    with orga.started("worker") as worker:
        worker.line("polls task queue")
        live = orga("run", "How are retries configured?", "--detach", "--no-worker").out.strip()
        ended = orga("run", "How are retries configured?", "--json")
        assert ended.code == 0, ended.err
        failed = [shown for words in commands() if (shown := _failure(orga, words, live))]
    assert failed == []


def _failure(orga: Orga, words: list[str], run: str) -> str:
    if words[0] == "make":
        return "" if f"\n{words[1]}:" in (ROOT / "Makefile").read_text() else f"no target {words[1]}"
    assert words[0] == "orga", words
    while words[1] in {"fork", "rewind"} and "ReasoningComplete" not in orga("journal", run, "--json").out:
        time.sleep(0.1)  # an earlier command has rewound the run
    done = orga(*[run if word == "ID" else word for word in words[1:]])
    has_ended = done.code == 6 and "has ended" in done.err
    return "" if done.code == 0 or has_ended else f"{' '.join(words)}: {done.code} {done.err}"


def test_the_example_goals_print_what_the_guide_shows(tmp_path: Path, orga: Orga) -> None:
    """The folder holds only the documents of the examples. Each line shown is a line of the last command's output."""
    here = replace(orga, folder=Path(shutil.copytree(ROOT / "examples" / "library", tmp_path / "library")))
    guide = (ROOT / "docs" / "goals.md").read_text()
    examples = re.findall(r"^```console\n([^`]*)^```\n\n```text\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)
    assert len(examples) == 3
    with here.started("worker") as worker:
        worker.line("polls task queue")
        for typed, shown in examples:
            ran = [here(*shlex.split(line.replace("late-books", "shown-books"))[1:]) for line in typed.splitlines()]
            assert [done.code for done in ran] == [0] * len(ran), [done.err for done in ran]
            assert set(shown.splitlines()) <= set(ran[-1].out.splitlines()), ran[-1].out


@pytest.mark.parametrize(("name", "block"), blocks("toml"))
def test_the_settings_of_the_documents_are_valid(name: str, block: str) -> None:
    OrgaConfig.model_validate(tomllib.loads(block), extra="forbid")


def test_the_tool_of_the_guide_is_valid() -> None:
    namespace: dict[str, object] = {}
    exec(next(block for name, block in blocks("python") if name == "agents.md"), namespace)
    spec = PythonFunction(namespace["word_count"]).spec  # pyright: ignore[reportArgumentType]
    assert (spec.name, spec.effect, spec.description) == ("word_count", "read_only", "Count the words of a text.")


def test_the_first_tool_of_the_readme_is_called(tmp_path: Path, orga: Orga) -> None:
    here = replace(orga, folder=tmp_path)
    section = (ROOT / "README.md").read_text().split("## Your first tool")[1].split("\n## ")[0]
    written = dict(re.findall(r"^```(\w+)\n(.*?)^```", section, re.DOTALL | re.MULTILINE))
    (tmp_path / "shop.py").write_text(written["python"])
    (tmp_path / "orga.toml").write_text(written["toml"])
    ran = [here(*shlex.split(line, comments=True)[1:]) for line in written["sh"].splitlines()]
    assert [done.code for done in ran] == [0, 0, 0], [done.err for done in ran]
    assert ran[1].out == "two lamps, sent on Monday\n"


@pytest.mark.parametrize(("name", "expected"), [("goals.md", "status='done'"), ("schedules.md", "hourly-20")])
async def test_the_python_of_the_documents_runs(
    name: str, expected: str, orga: Orga, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ORGA_HOME", orga.env["ORGA_HOME"])
    monkeypatch.chdir(orga.folder)
    block = next(block for each, block in blocks("python") if each == name)
    body = "".join(f"    {line}\n" for line in block.splitlines())
    namespace: dict[str, object] = {}
    exec(f"async def example():\n{body}", namespace)
    with orga.started("worker") as worker:
        worker.line("polls task queue")
        await namespace["example"]()  # pyright: ignore[reportCallIssue, reportGeneralTypeIssues]
    assert expected in capsys.readouterr().out


def test_the_links_of_the_documents_have_targets() -> None:
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target, place in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)", _prose(path)):
            there = path.parent / target if target else path
            assert there.exists(), f"{path.name} links to {target}"
            assert not place or place in headings(there), f"{path.name} links to {target}#{place}"


def headings(path: Path) -> set[str]:
    """Return the names under which its headings can be linked."""
    found: set[str] = set()
    for text in re.findall(r"^#+ (.*)$", _prose(path), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        same = sum(re.fullmatch(rf"{re.escape(name)}(-\d+)?", each) is not None for each in found)
        found.add(f"{name}-{same}" if same else name)
    return found


def _prose(path: Path) -> str:
    return re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def test_a_link_to_a_missing_heading_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(
        "# A page\n\n## `orga list`: [runs](b.md)\n\n## Runs\n\n## Runs\n\n```sh\n# none\n```\n"
    )
    assert headings(tmp_path / "a.md") == {"a-page", "orga-list-runs", "runs", "runs-1"}
