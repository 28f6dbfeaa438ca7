"""Policies that would crash or block the process are refused before native code reads them."""

import asyncio
import io
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.activities.adapters.policy import cedar, cedar_files
from orga.activities.adapters.policy.cedar import CedarPolicies, compile_policies
from orga.activities.adapters.policy.cedar_files import PolicyFile
from orga.activities.adapters.policy.cedar_policy import MAX_DEPTH, PolicyStatement, nesting_depth, parse_policy
from orga.activities.adapters.policy.cedar_types import operands
from orga.activities.adapters.policy.opa import OpaWasm
from orga.activities.adapters.problem import MAX_PROBLEMS_SHOWN, BrokenPolicies
from orga.client.policies.cases import BadCases, read_cases
from tests.support.parts.opa import bundle
from tests.support.values.policies import PERMIT_ALL, a_folder, a_tool_proposal

BEGIN = "permit (principal, action, resource) "


def when(condition: str) -> str:
    return f"{BEGIN}when {{ {condition} }};"


def refusal(folder: Path) -> str:
    with pytest.raises(BrokenPolicies) as raised:
        CedarPolicies(folder)
    return str(raised.value)


NESTED: dict[str, Callable[[int], str]] = {
    "parentheses": lambda n: when("(" * n + "true" + ")" * n),
    "sets": lambda n: when("[" * n + "1" + "]" * n + " == [1]"),
    "records": lambda n: when("{a: " * n + "1" + "}" * n + " == {a: 1}"),
    "negations of parentheses": lambda n: when("!(" * n + "true" + ")" * n),
    "negations": lambda n: when("!" * n + "true"),
    "minus signs": lambda n: when("-(" * n + "1" + ")" * n + " == 1"),
    "arguments of methods": lambda n: when("[1].contains(" * n + "1" + ")" * n),
    "attributes": lambda n: when("context" + ".a" * n),
    "indices": lambda n: when("context" + '["a"]' * n),
    "a chain of has": lambda n: when("context has a" + ".a" * n),
    "methods": lambda n: when("context" + ".contains(1)" * n),
    "sums": lambda n: when("1 + " * n + "1 == 2"),
    "open brackets": lambda n: "permit(" * n,
    "brackets behind a broken text": lambda n: when('"' + "(" * n),
    "parentheses after a comment that a carriage return ends": lambda n: when("// \r" + "(" * n + "true" + ")" * n),
    "or": lambda n: when("true || " * n + "true"),
    "and": lambda n: when("true && " * n + "true"),
    "then": lambda n: when("if true then " * n + "true" + " else false" * n),
    "else": lambda n: when("if false then false else " * n + "true"),
    "conditions": lambda n: BEGIN + "when { true } " * n + ";",
    "exceptions": lambda n: BEGIN + "unless { false } " * n + ";",
}


@pytest.mark.parametrize("count", [60, 1_000, 20_000])
@pytest.mark.parametrize("shape", NESTED)
def test_a_policy_that_nests_too_deeply_is_refused(tmp_path: Path, shape: str, count: int) -> None:
    found = refusal(a_folder(tmp_path, a=PERMIT_ALL + "\n" + NESTED[shape](count)))
    assert found.startswith("policies/a.cedar:2: ")
    assert f"at most {MAX_DEPTH} may be" in found or "at most 30,000 are allowed" in found
    assert "split it" in found


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(NESTED["or"](40), id="40 alternatives"),
        pytest.param(NESTED["else"](40), id="40 choices"),
        pytest.param(NESTED["conditions"](40), id="40 conditions"),
        pytest.param(NESTED["parentheses"](40), id="40 parentheses"),
        pytest.param(when("[" + ", ".join(f'"tool_{i}"' for i in range(2_000)) + '].contains("a")'), id="a long list"),
        pytest.param(f"// {'(' * 5_000}\n{PERMIT_ALL}", id="brackets in a comment"),
        pytest.param(when(f'"{"(" * 5_000}" != ""'), id="brackets in a text"),
    ],
)
async def test_ordinary_policies_are_judged(tmp_path: Path, text: str) -> None:
    engine = CedarPolicies(a_folder(tmp_path, a=text))
    assert (await engine.judge(a_tool_proposal())).version


EXPRESSIONS = st.recursive(
    st.sampled_from(
        [
            *("true", "context has tenant", "context.depth > 1 + 2 * 3", "context.arguments has a.b.c.d"),
            '["a"].contains("a")',
        ]
    ),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["&&", "||"]), inner).map(" ".join),
        st.tuples(inner, inner, inner).map(lambda three: "(if ({}) then ({}) else ({}))".format(*three)),
        inner.map(lambda one: f"!({one})"),
        inner.map(lambda one: f"{{a: ({one})}}.a"),
        inner.map(lambda one: f"{{a: ({one})}}[\"a\"]"),
        st.tuples(inner, inner).map(lambda two: f"[({two[0]}), ({two[1]})].contains({two[1]})"),
    ),
    max_leaves=12,
)  # fmt: skip


@given(EXPRESSIONS)
def test_the_bound_is_at_least_the_depth_of_the_parser(expression: str) -> None:
    text = when(expression)
    depth = nesting_depth(text)
    if depth > MAX_DEPTH:
        return
    policy = parse_policy(PolicyStatement("a.cedar", 1, text))
    assert policy
    assert max(_height(condition["body"]) for condition in policy.node["conditions"]) <= depth
    assert compile_policies((PolicyFile("a.cedar", "a.cedar", text.encode()),)).policies


def _height(node: Any) -> int:
    inner = operands(node)[1]
    return 1 + max(map(_height, inner)) if inner else 0


def test_an_error_has_its_line_and_comments_are_not_read_as_code(tmp_path: Path) -> None:
    """Only `\\n` begins a line here. Some other line ends are part of a comment."""
    hidden = "// \u2028when { " + "(" * 4_000 + "true" + ")" * 4_000 + " };\v nonsense"
    assert "a.cedar:3: cannot be parsed" in refusal(a_folder(tmp_path, a=f"{BEGIN}{hidden}\nnonsense\n;"))


def test_many_files_are_refused_quickly(tmp_path: Path) -> None:
    folder = a_folder(tmp_path)
    for number in range(cedar_files.MAX_FILES + 1):
        (folder / f"{number}.cedar").touch()
    begun = time.monotonic()
    assert refusal(folder).startswith(f"{folder}: there are 1,001 policy files; at most 1,000 are allowed")
    assert time.monotonic() - begun < 5


def test_large_files_are_refused_together(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, a="// " + "x" * 600_000, b="// " + "x" * 600_000)
    assert refusal(folder).startswith(f"{folder}/b.cedar: the policy files have more than 1,000,000 bytes together")


def test_reading_has_a_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cedar, "MAX_READ_S", 0.02)
    text = "\n".join(when("context.arguments has a" + ".a" * 40) for _ in range(1_000))
    assert "reading the policies up to here took 0.02 s" in refusal(a_folder(tmp_path, a=text))


def test_a_long_list_of_problems_is_cut(tmp_path: Path) -> None:
    lines = refusal(a_folder(tmp_path, a="nonsense;\n" * 500)).splitlines()
    assert len(lines) == MAX_PROBLEMS_SHOWN + 1
    assert lines[-1] == "and 480 more problems"


@pytest.mark.parametrize("value", [pytest.param("[" * 5_000 + "]" * 5_000, id="lists"),
                                   pytest.param("{a = " * 5_000 + "1" + "}" * 5_000, id="tables")])  # fmt: skip
def test_a_policy_test_that_nests_too_deeply_is_refused(tmp_path: Path, value: str) -> None:
    file = tmp_path / "a.test.toml"
    file.write_text(f'[[test]]\nname = "a"\nexpect = "deny"\narguments = {value}\n')
    with pytest.raises(BadCases, match="nested too deeply"):
        read_cases(file)


@pytest.fixture(scope="module")
def opa_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a compiled policy."""
    folder = tmp_path_factory.mktemp("opa")
    (folder / "p.rego").write_text("package orga\ndecision := data.allowed == true")
    built = bundle(folder / "p.rego", folder / "p.tar.gz", "-t", "wasm", "-e", "orga/decision")
    with tarfile.open(built) as opened:
        return {part.name: found.read() for part in opened if (found := opened.extractfile(part))}


def packed(folder: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(folder / "p.tar.gz", "w:gz", compresslevel=1) as target:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            target.addfile(entry, io.BytesIO(content))
    return folder / "p.tar.gz"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        pytest.param(b'{"a": ' + b"[" * 5_000 + b"]" * 5_000 + b"}", "its data.json is nested too deeply", id="deep"),
        pytest.param(b" " * 60_000_000, "it holds more than 50,000,000 bytes", id="large once unpacked"),
    ],
)
def test_hostile_data_of_a_bundle_is_refused(
    tmp_path: Path, opa_files: dict[str, bytes], data: bytes, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        OpaWasm(packed(tmp_path, opa_files | {"/data.json": data}), "orga/decision")


@pytest.mark.parametrize("keep", [10, 1_000])
def test_a_truncated_bundle_is_refused(tmp_path: Path, opa_files: dict[str, bytes], keep: int) -> None:
    file = packed(tmp_path, opa_files)
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"neither a \.wasm module nor a bundle"):
        OpaWasm(file, "orga/decision")


def test_arguments_that_nest_too_deeply_are_an_error_and_no_crash(tmp_path: Path, opa_files: dict[str, bytes]) -> None:
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    engine = OpaWasm(packed(tmp_path, opa_files), "orga/decision")
    with pytest.raises(Exception, match="recursion"):
        asyncio.run(engine.judge(a_tool_proposal(arguments={"a": deep})))


def test_a_wrong_test_in_an_inline_array_is_shown_at_the_first_line(tmp_path: Path) -> None:
    file = tmp_path / "a.test.toml"
    file.write_text('test = [{name = "no subject", expect = "allow"}]\n')
    with pytest.raises(BadCases, match=r"a\.test\.toml:1: 'no subject': give it either a tool"):
        read_cases(file)
