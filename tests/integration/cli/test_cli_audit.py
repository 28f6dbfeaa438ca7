"""`orga audit` and signed exports as users run them: the commands of the guide, then attacks on a file."""

import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orga.workflows.types.status import JournalEntry
from tests.support.programs.inline_command import InlineOrga, an_inline_orga
from tests.support.programs.orga_command import ROOT, Done, Orga
from tests.support.values.journals import rechained, without_entry

RUN = "agent-audited"
PERMIT = '@id("all") permit (principal, action, resource);\n'
NO_READING = PERMIT + '@id("no-reading") forbid (principal, action == Action::"tool_call", resource == Tool::"TOOL");'


@pytest.fixture(scope="module")
def orga(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orga]:
    """An ended run with a signed export, and policies that forbid its tool. No worker is running."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "notes.md").write_text("# Notes\n\nThe retry limit is five attempts.\n")
    command = an_inline_orga(folder, tmp_path_factory.mktemp("home"), ORGA_SIGNING_KEY_FILE="audit.key")
    assert command("run", "What is the retry limit?", "--id", RUN).code == 0
    tool = next(found for line in command("journal", RUN, "--json").out.splitlines() for found in _tools(line))
    for name, text in (("policies-next", NO_READING.replace("TOOL", tool)), ("policies-same", PERMIT)):
        (folder / name).mkdir()
        (folder / name / "all.cedar").write_text(text)
    yield command
    command("server", "--stop")


def _tools(line: str) -> list[str]:
    entry = json.loads(line)
    return [tool["tool"] for tool in entry["data"].get("tools", [])] if entry["event"] == "ToolsDispatched" else []


def verified(orga: Orga, path: Path, *more: str) -> Done:
    return orga("verify", RUN, "--journal", str(path), "--key", "audit.key.pub", *more)


def test_the_shell_blocks_of_the_guide_run(orga: Orga, tmp_path: Path) -> None:
    newcomer = InlineOrga(tmp_path, orga.env)
    shutil.copytree(orga.folder / "policies-next", tmp_path / "policies-next")
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs" / "audit.md").read_text(), re.DOTALL | re.MULTILINE)
    done: list[tuple[str, int, str]] = []
    for line in "".join(blocks).splitlines():
        words = [RUN if word == "ID" else word for word in shlex.split(line)]
        if words[0] == "export":
            assert words[1] == "ORGA_SIGNING_KEY_FILE=audit.key"
        else:
            found = newcomer(*words[1:])
            done.append((" ".join(words[:3]), found.code, found.err))
    assert [code for _, code, _ in done] == [0, 0, 0, 6, 0], done
    assert (tmp_path / "audit.key").stat().st_mode & 0o777 == 0o600


def test_the_export_is_signed_and_verify_checks_its_head(orga: Orga) -> None:
    found = verified(orga, a_signed_export(orga), "--json")
    assert found.code == 0, found.err
    (head,) = [check for check in json.loads(found.out)["checks"] if check["name"] == "head"]
    assert re.fullmatch(r"\d+ entries, signed at \S+Z by key [0-9a-f]{16}", head["detail"])
    untrusted = orga("verify", RUN, "--journal", str(a_signed_export(orga)))
    assert (untrusted.code, "which is not trusted; trusted: none" in untrusted.out) == (6, True)
    key = (orga.folder / "audit.key.pub").read_text().strip()
    trusting = orga("verify", RUN, "--journal", str(a_signed_export(orga)), ORGA_AUDIT__TRUSTED_KEYS=json.dumps([key]))
    assert trusting.code == 0


def a_signed_export(orga: Orga) -> Path:
    if not (orga.folder / "audit.key").exists():
        assert orga("audit", "keygen", "--out", "audit.key").code == 0
    path = orga.folder / "signed.jsonl"
    if not path.exists():
        assert orga("journal", RUN, "--export", "signed.jsonl", "--sign").code == 0
    return path


Lines = list[str]


def forged(lines: Lines, change: Callable[[list[JournalEntry]], list[JournalEntry]]) -> Lines:
    entries = [JournalEntry.model_validate_json(line) for line in lines[:-1]]
    return [*(json.dumps(entry.model_dump(mode="json")) for entry in rechained(change(entries))), lines[-1]]


Attack = Callable[[Lines], Lines]

ATTACKS: dict[str, tuple[Attack, str]] = {
    "an edit": (
        lambda lines: [*lines[:2], lines[2].replace('"iteration":', '"iteration":1'), *lines[3:]],
        "its chain breaks at entry 2",
    ),
    "a swap": (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], "breaks at entry 2"),
    "a drop": (lambda lines: [*lines[:3], *lines[4:]], "breaks at entry 4"),
    "a cut tail": (lambda lines: [*lines[:-3], lines[-1]], "is missing: the head counts"),
    "no head": (lambda lines: lines[:-1], "it has no head"),
    "a cut tail without a head": (lambda lines: lines[:-3], "it has no head"),
    "a drop, with a rebuilt chain": (
        lambda lines: forged(lines, lambda entries: without_entry(entries, 2)),
        "is missing",
    ),
    "an edit, with a rebuilt chain": (
        lambda lines: forged(lines, lambda entries: [entries[0].model_copy(update={"agent": "x"}), *entries[1:]]),
        "entry 0 differs from the history in agent",
    ),
    "the head of another run": (
        lambda lines: [*lines[:-1], lines[-1].replace(RUN, "agent-other")],
        "its head is that of agent-other",
    ),
    "a key that no hash covers": (
        lambda lines: [lines[0].replace("{", '{"approved": true, ', 1), *lines[1:]],
        "forged.jsonl:1 is no journal entry: entry 0 was changed",
    ),
}


@pytest.mark.parametrize(("change", "expected"), [pytest.param(*attack, id=name) for name, attack in ATTACKS.items()])
def test_an_attack_on_the_file_is_named(orga: Orga, change: Attack, expected: str) -> None:
    path = orga.folder / "forged.jsonl"
    path.write_text("".join(f"{line}\n" for line in change(a_signed_export(orga).read_text().splitlines())))
    found = verified(orga, path)
    assert (found.code, expected in found.out + found.err) == (6, True), found


def test_a_head_signed_with_another_key_is_refused(orga: Orga) -> None:
    a_signed_export(orga)
    assert orga("audit", "keygen", "--out", "other.key").code == 0
    assert orga("journal", RUN, "--export", "other.jsonl", "--sign", ORGA_SIGNING_KEY_FILE="other.key").code == 0
    assert "which is not trusted" in verified(orga, orga.folder / "other.jsonl").out
    unsigned = orga("journal", RUN, "--export", "bare.jsonl")
    assert (unsigned.code, "not signed" in unsigned.err) == (0, True)
    assert "its head is not signed" in verified(orga, orga.folder / "bare.jsonl").out
    assert orga("verify", RUN, "--journal", "bare.jsonl").code == 0


def test_a_past_run_is_judged_by_other_policies(orga: Orga) -> None:
    assert orga("audit", RUN, "--policy", "policies-same").code == 0
    changed = orga("audit", RUN, "--policy", "policies-next")
    assert (changed.code, "allow→deny" in changed.out, "no-reading" in changed.out) == (6, True, True)
    reported = json.loads(orga("audit", RUN, "--policy", "policies-next", "--all", "--json").out)
    assert reported["runs"] == [RUN]
    assert reported["counts"]["allow→deny"] >= 1
    assert reported["counts"]["same"] >= 1
    assert sum(reported["counts"].values()) == len(reported["judgements"])
    assert reported["not_rebuilt"] == []
    denied = [judgement for judgement in reported["judgements"] if judgement["change"] == "allow→deny"]
    assert {judgement["now"]["policies"][0] for judgement in denied} == {"no-reading"}


def test_a_run_is_audited_by_an_id_prefix_or_as_the_newest(orga: Orga) -> None:
    for named in (RUN[: len(RUN) - 1], "--last"):
        found = orga("audit", named, "--engine", "allow", "--json")
        assert (found.code, json.loads(found.out)["runs"]) == (0, [RUN])
        assert f"run {RUN}" in found.err.splitlines()


def test_the_runs_of_a_query_are_audited(orga: Orga) -> None:
    found = orga("audit", "--query", f"WorkflowId = '{RUN}'", "--engine", "allow", "--json")
    assert (found.code, json.loads(found.out)["runs"]) == (0, [RUN])
    assert json.loads(orga("audit", "--query", "WorkflowId = 'none'", "--json").out)["runs"] == []


def test_runs_over_the_limit_are_reported(orga: Orga) -> None:
    assert orga("run", "What is the retry limit?", "--id", "agent-another").code == 0
    either = f"WorkflowId = '{RUN}' OR WorkflowId = 'agent-another'"
    found = orga("audit", "--query", either, "--engine", "allow", "--limit", "1", "--json")
    assert (found.code, json.loads(found.out)["runs"]) == (0, ["agent-another"])
    assert "finds more than 1 runs, so only the newest are judged. Raise --limit" in found.err
    assert "more than" not in orga("audit", "--query", either, "--engine", "allow", "--limit", "2").err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(["audit", RUN, "--query", "x"], "name either one run, or many with --query", id="both"),
        pytest.param(
            ["audit", "--engine", "opa", "--policy", "policies-same", RUN], "--engine opa does not read", id="engine"
        ),
        pytest.param(["audit", RUN, "--policy", "nowhere"], "nowhere: is not a folder", id="no folder"),
        pytest.param(["audit", "no-such-run"], "there is no run 'no-such-run'", id="no run"),
        pytest.param(["journal", RUN, "--sign"], "--sign: signs an export", id="nothing to sign"),
        pytest.param(
            ["journal", RUN, "--export", "x", "--follow"], "--export: can be combined only with --sign", id="follow"
        ),
        pytest.param(["verify", RUN, "--key", "ed25519:x"], "--key: checks an export", id="a key for nothing"),
    ],
)
def test_contradictory_options_are_refused(orga: Orga, arguments: list[str], expected: str) -> None:
    found = orga(*arguments)
    assert (found.code, expected in found.err) == (2, True), found


def test_a_missing_or_unprotected_key_signs_nothing(orga: Orga) -> None:
    sign = ["journal", RUN, "--export", "unsigned.jsonl", "--sign"]
    lacking = orga(*sign, ORGA_SIGNING_KEY_FILE="")
    assert (lacking.code, "Create a key with: orga audit keygen" in lacking.err) == (2, True)
    assert "cannot be read" in orga(*sign, ORGA_SIGNING_KEY_FILE="nowhere.key").err
    assert not (orga.folder / "unsigned.jsonl").exists()
