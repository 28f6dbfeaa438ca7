"""`orga knowledge` with a real store: what it stores, shows and erases, for whom, and its exit codes."""

import io
import json
from pathlib import Path

import pytest

from orga.client.cli.main import run_command
from tests.support.knowledge.commands import (
    Shown,
    command_json,
    command_output,
    own_folder,
    refusal_line,
    search_results,
)

__all__ = ["own_folder"]

pytestmark = pytest.mark.usefixtures("own_folder")

HOSTILE = "\x1b[2J\x1b]0;owned\x07first\u202e line\nforgotten: 9 facts\r\x9b31m"
"""Clears a screen, sets a window title, reverses the writing direction and forges a line of the command."""


def texts(capsys: Shown, *arguments: str) -> list[str]:
    return [each["text"] for each in search_results(capsys, *arguments)]


def test_a_fact_is_found_with_its_score_and_source(capsys: Shown) -> None:
    stored = command_json(
        capsys, "add", "the api", "is deployed", "on Fridays", "--source", "Ada", "--confidence", "0.9"
    )
    [search_results] = command_json(capsys, "search", "when is the api deployed")
    assert (search_results["id"], search_results["kind"], search_results["text"]) == (
        stored["id"],
        "fact",
        "the api is deployed on Fridays",
    )
    assert (search_results["subject"], search_results["predicate"], search_results["object"]) == (
        "the api",
        "is deployed",
        "on Fridays",
    )
    assert (search_results["provenance"]["source"], search_results["confidence"]) == ("Ada", 0.9)
    assert 0.3 <= search_results["score"] <= 1
    shown = command_output(capsys, "search", "when is the api deployed")
    assert f"{search_results['score']:.2f}  fact        {stored['id']}  the api is deployed on Fridays" in shown
    assert "from Ada, no tenant's, confidence 0.9" in shown


def test_the_same_fact_is_stored_once(capsys: Shown) -> None:
    first = command_json(capsys, "add", "the api", "is deployed", "on Fridays")
    again = command_json(capsys, "add", "the API", "is deployed", "on  Fridays")
    assert (first["change"], again["id"]) == ("added", first["id"])
    assert command_json(capsys, "stats")["counts"]["fact"] == 1


def test_a_newer_fact_is_reported_to_contradict_the_older_one(capsys: Shown) -> None:
    older = command_json(capsys, "add", "the api", "is deployed", "on Fridays")
    assert run_command(["knowledge", "add", "the api", "is deployed", "on Mondays"]) == 0
    assert f"contradicts {older['id']}" in capsys.readouterr().err
    assert texts(capsys, "the api is deployed")[0] == "the api is deployed on Mondays"
    assert "contradicted by k" in command_output(capsys, "show", older["id"])


def test_a_text_is_read_from_standard_input(capsys: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"Ada prefers short answers.\n")))
    stored = command_json(capsys, "add", "-", "--user", "ada", "--expires", "30d")
    shown = command_json(capsys, "show", stored["id"])
    assert (shown["kind"], shown["scope"], shown["owner"]["user"]) == ("memory", "user", "ada")
    assert shown["expires_at"] is not None
    assert "  Ada prefers short answers." in command_output(capsys, "show", stored["id"])


def test_bytes_of_standard_input_that_are_no_text_are_refused(capsys: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"Ada \xff")))
    assert run_command(["knowledge", "add", "-"]) == 2
    assert "standard input: not UTF-8 text (byte 4)" in capsys.readouterr().err


def test_an_item_is_found_by_its_owners_only(capsys: Shown) -> None:
    owners = {
        "ada's": ["--user", "ada"],
        "ada's at acme": ["--user", "ada", "--tenant", "acme"],
        "acme's": ["--tenant", "acme"],
        "the reviewer's": ["--agent", "reviewer"],
        "no tenant's": [],
        "everybody's": ["--scope", "global"],
    }
    for name, options in owners.items():
        command_output(capsys, "add", f"a secret word of {name}", *options)
    seen = {name: set(texts(capsys, "secret word", *options)) for name, options in list(owners.items())[:-1]}
    expected = {
        "ada's": {"ada's", "no tenant's", "everybody's"},
        "ada's at acme": {"ada's at acme", "acme's", "everybody's"},
        "acme's": {"acme's", "everybody's"},
        "the reviewer's": {"the reviewer's", "no tenant's", "everybody's"},
        "no tenant's": {"no tenant's", "everybody's"},
    }
    assert seen == {name: {f"a secret word of {each}" for each in names} for name, names in expected.items()}


def test_conventions_are_found_by_their_directory(capsys: Shown) -> None:
    command_output(capsys, "add", "Handlers hold no SQL.", "--directory", "src/api/")
    command_output(capsys, "add", "Sign your commits.", "--directory", ".", "--confidence", "1")
    command_output(capsys, "add", "No semicolons.", "--directory", "web")
    command_output(capsys, "add", "Await everything.", "--language", "Python")
    assert texts(capsys, "--directory", "src/api/users.py") == [
        "Handlers hold no SQL.",
        "Sign your commits.",
        "Await everything.",
    ]
    assert texts(capsys, "--directory", "web", "--language", "go") == ["No semicolons.", "Sign your commits."]


FORGOTTEN = {
    "by subject": (["--subject", "the api"], ["ada's", "acme's", "a word"]),
    "by subject in other letters": (["--subject", "The  API"], ["ada's", "acme's", "a word"]),
    "by user": (["--user", "ada"], ["the api is up", "acme's", "a word"]),
    "by tenant": (["--tenant", "acme"], ["the api is up", "ada's", "a word"]),
    "by no tenant": (["--tenant", ""], ["acme's"]),
    "by source": (["--source", "Bob"], ["the api is up", "ada's", "acme's"]),
    "only items that match all options": (
        ["--user", "ada", "--tenant", "acme"],
        ["the api is up", "ada's", "acme's", "a word"],
    ),
}


@pytest.mark.parametrize(("options", "left"), FORGOTTEN.values(), ids=FORGOTTEN)
def test_only_items_that_match_the_options_are_erased(
    capsys: Shown, monkeypatch: pytest.MonkeyPatch, options: list[str], left: list[str]
) -> None:
    """The confirmation names exactly what is then erased."""
    command_output(capsys, "add", "the api", "is", "up")
    command_output(capsys, "add", "ada's", "--user", "ada")
    command_output(capsys, "add", "acme's", "--tenant", "acme")
    command_output(capsys, "add", "a word", "--source", "Bob")
    asked: list[str] = []
    for stream in ("stdin", "stderr"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True)

    def agrees(question: str, **_: object) -> bool:
        asked.append(question)
        return True

    monkeypatch.setattr("typer.confirm", agrees)
    gone = command_output(capsys, "forget", *options)
    assert asked == ([gone.replace("forgotten: ", "Erase ").replace("\n", " for ever?")] if len(left) < 4 else [])
    search_results = {*texts(capsys, "--user", "ada"), *texts(capsys, "--tenant", "acme")}
    assert search_results == set(left)


def test_scripts_erase_with_yes_without_a_question(capsys: Shown) -> None:
    command_output(capsys, "add", "ada's", "--user", "ada")
    assert command_json(capsys, "forget", "--yes", "--user", "ada") == {"forgotten": 1, "kinds": {"memory": 1}}
    assert command_json(capsys, "forget", "--yes", "--user", "ada") == {"forgotten": 0, "kinds": {}}


def test_a_user_is_erased_only_in_the_named_tenant(capsys: Shown) -> None:
    """Without a tenant, the user belongs to no tenant. The same name in another tenant is another person."""
    tenants = {"": [], "acme": ["--tenant", "acme"], "shop": ["--tenant", "shop"]}
    for name, options in tenants.items():
        command_output(capsys, "add", f"ada's of {name or 'none'}", "--user", "ada", *options)

    def left() -> list[str]:
        return [name for name, options in tenants.items() if texts(capsys, "--user", "ada", *options)]

    assert command_output(capsys, "forget", "--yes", "--user", "ada") == "forgotten: 1 memory\n"
    assert left() == ["acme", "shop"]
    assert run_command(["knowledge", "forget", "--yes", "--user", "ada"]) == 0
    assert "--all-tenants" in capsys.readouterr().err
    command_output(capsys, "forget", "--yes", "--user", "ada", "--tenant", "acme")
    assert left() == ["shop"]
    command_output(capsys, "add", "ada's again", "--user", "ada")
    assert command_output(capsys, "forget", "--yes", "--user", "ada", "--all-tenants") == "forgotten: 2 memories\n"
    assert left() == []


@pytest.mark.parametrize("option", ["--id", "--subject", "--run", "--user", "--source"])
@pytest.mark.parametrize("empty", ["", " "])
def test_an_empty_option_erases_nothing(capsys: Shown, option: str, empty: str) -> None:
    """An unset variable of a script would otherwise erase everything of the tenant."""
    stored = command_json(capsys, "add", "acme's", "--tenant", "acme")["id"]
    others = ["--id", stored] if option == "--id" else ["--tenant", "acme"]
    assert f"{option}: is empty" in refusal_line(capsys, "forget", "--yes", option, empty, *others)
    assert texts(capsys, "--tenant", "acme") == ["acme's"]


def test_several_ids_are_erased_at_once(capsys: Shown) -> None:
    ids = [command_json(capsys, "add", text)["id"] for text in ("one", "two", "three")]
    assert command_output(capsys, "forget", "--yes", "--id", ids[0], "--id", ids[2]) == "forgotten: 2 memories\n"
    assert texts(capsys) == ["two"]


def test_the_confirmation_lists_what_would_be_erased(capsys: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(7):
        command_output(capsys, "add", f"word {number}", "--user", "ada")
    command_output(capsys, "add", "another's", "--user", "bob")
    asked: list[str] = []

    def answers(question: str, **_: object) -> bool:
        asked.append(question)
        return len(asked) == 2

    for stream in ("stdin", "stderr"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", answers)
    assert run_command(["knowledge", "forget", "--user", "ada"]) == 130
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("word "), "and 2 more" in shown.err) == ("", 5, True)
    assert "another's" not in shown.err
    assert len(texts(capsys, "--user", "ada", "--limit", "9")) == 7, "nothing is erased without a confirmation"
    assert command_output(capsys, "forget", "--user", "ada") == "forgotten: 7 memories\n"
    assert asked == ["Erase 7 memories for ever?"] * 2
    assert command_output(capsys, "forget", "--user", "ada") == "forgotten: nothing\n"
    assert len(asked) == 2, "no question if nothing matches"


def test_hostile_texts_cannot_control_a_terminal(capsys: Shown) -> None:
    stored = command_json(capsys, "add", HOSTILE, "--user", HOSTILE, "--source", HOSTILE)
    for arguments in (["search", "--user", HOSTILE], ["show", stored["id"]], ["forget", "--yes", "--user", HOSTILE]):
        shown = command_output(capsys, *arguments)
        assert not set("\x1b\x07\x9b\u202e\r") & set(shown), arguments
        assert [line for line in shown.splitlines() if line.startswith("forgotten: 9")] == []


def test_reindex_reports_its_result(capsys: Shown) -> None:
    command_output(capsys, "add", "one")
    assert command_output(capsys, "reindex") == "the indexes are up to date\n"
    assert command_json(capsys, "reindex") == {"indexed": 0}


def test_a_change_of_embedder_is_reported_until_the_store_is_reindexed(
    capsys: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    command_output(capsys, "add", "one")
    monkeypatch.setenv("ORGA_KNOWLEDGE__EMBEDDER", "wordllama")
    command_output(capsys, "add", "two")
    assert command_json(capsys, "stats")["unindexed"] == 1
    assert run_command(["knowledge", "stats"]) == 0
    shown = capsys.readouterr()
    assert "embedder  hashing-256-v1, wordllama" in shown.out
    assert "1 items have no vectors of the configured embedder" in shown.err
    assert "orga knowledge reindex" in shown.err
    assert command_output(capsys, "reindex").startswith("1 item")
    assert run_command(["knowledge", "stats"]) == 0
    assert capsys.readouterr().err == ""


def test_expired_items_are_counted_and_can_be_erased(capsys: Shown) -> None:
    line = {"kind": "memory", "text": "an old word", "expires_at": "2020-01-01T00:00:00Z"}
    Path("old.jsonl").write_text(json.dumps(line))
    command_output(capsys, "import", "old.jsonl")
    command_output(capsys, "add", "a new word", "--expires", "1d")
    assert texts(capsys, "word") == ["a new word"]
    assert run_command(["knowledge", "stats"]) == 0
    shown = capsys.readouterr()
    assert "1 expired" in shown.out
    assert "orga knowledge forget --expired" in shown.err
    assert command_output(capsys, "forget", "--expired", "--yes") == "forgotten: 1 memory\n"
    assert command_json(capsys, "stats")["counts"] == {"memory": 1}
    assert run_command(["knowledge", "stats"]) == 0
    assert capsys.readouterr().err == ""


def test_stats_count_by_kind(capsys: Shown) -> None:
    command_output(capsys, "add", "the api", "is", "up")
    command_output(capsys, "add", "the api", "is", "down")
    command_output(capsys, "add", "one")
    shown = command_output(capsys, "stats")
    assert "2 facts, 1 memory" in shown
    assert "0 expired, 1 contradicted, 0 tainted" in shown
    assert command_json(capsys, "stats")["counts"] == {"fact": 2, "memory": 1}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(["add", "a", "b"], "2 arguments: quote a fact as three", id="half a fact"),
        pytest.param(["add", " "], "its text is empty", id="an empty text"),
        pytest.param(["add", "a", "", "c"], "none of them empty", id="an empty part of a fact"),
        pytest.param(["add", "x" * 100_001], "import it as a document", id="a book"),
        pytest.param(
            ["add", "x", "--scope", "all"], "--scope 'all': unknown scope. Use one of user, agent,", id="no such scope"
        ),
        pytest.param(
            ["add", "x", "--scope", "user"],
            "--scope user: needs an owner. Add --user NAME",
            id="a user scope without a user",
        ),
        pytest.param(
            ["add", "x", "--scope", "global", "--tenant", "a"],
            "does not apply to --scope global",
            id="an owner of a global item",
        ),
        pytest.param(["add", "x", "--user", "a", "--agent", "b"], "Add --scope user", id="two owners"),
        pytest.param(["add", "x", "--expires", "soon"], "not a duration. Write it as 90s", id="no time"),
        pytest.param(["add", "x", "--expires", "2020-01-01T00:00"], "is in the past", id="expired already"),
        pytest.param(["add", "x", "--confidence", "2"], "'--confidence'", id="too sure"),
        pytest.param(
            ["add", "a", "b", "c", "--language", "go"],
            "are for conventions, which are one text",
            id="a fact of a language",
        ),
        pytest.param(
            ["search", "x", "--kind", "rumour"], "--kind 'rumour': unknown kind. Use one of fact", id="no kind"
        ),
        pytest.param(["search", "x", "--directory", "."], "Remove QUERY", id="words and a place"),
        pytest.param(["search", "--language", "go"], "needs --directory", id="a language alone"),
        pytest.param(["search", "x", "--limit", "0"], "'--limit'", id="no limit"),
        pytest.param(["show", "k0"], "there is no item 'k0'", id="no such item"),
        pytest.param(["forget", "--yes"], "name what to erase: --id, --subject", id="forget everything"),
        pytest.param(
            ["forget", "--yes", "--all-tenants"], "--all-tenants: needs --user", id="all tenants without a user"
        ),
        pytest.param(
            ["forget", "--yes", "--all-tenants", "--user", "a", "--tenant", "b"],
            "cannot be combined with --tenant",
            id="one and all",
        ),
        pytest.param(["forget", "--user", "a"], "no terminal to ask for confirmation. Add --yes", id="nobody to ask"),
        pytest.param(["import-conventions", "gone"], "gone: is not a folder", id="no project"),
        pytest.param(["import-conventions", "--at", "../x"], "contains `..`", id="out of the root"),
        pytest.param(["import-conventions", "--project", "a:b"], "letters, digits", id="no name"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(capsys: Shown, arguments: list[str], says: str) -> None:
    why = refusal_line(capsys, *arguments)
    assert says in why
    assert why.startswith("orga: ")


def test_a_damaged_store_is_reported_with_the_way_to_restore_it(capsys: Shown) -> None:
    command_output(capsys, "add", "one")
    Path(command_json(capsys, "stats")["place"]).write_bytes(b"no database" * 1_000)
    assert run_command(["knowledge", "search", "one"]) == 6
    shown = capsys.readouterr().err
    assert "is damaged" in shown
    assert "The way back" in shown


def test_the_help_of_every_command_has_an_example(capsys: Shown) -> None:
    assert run_command(["knowledge", "--help"]) == 0
    overview = capsys.readouterr().out
    for name in ("add", "search", "show", "forget", "import", "import-conventions", "export", "stats", "reindex"):
        assert f"│ {name} " in overview
        assert run_command(["knowledge", name, "--help"]) == 0
        assert "Example: orga knowledge " in capsys.readouterr().out, name
