"""Reads test cases of policies from TOML files, lets an engine judge them, and compares the verdicts."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError

from orga.activities.adapters.toml_text import TomlTooDeep, read_toml
from orga.activities.adapters.tools.catalog import builtin_specs
from orga.activities.ports import PolicyEngine
from orga.client.config.file import ConfigError, line_of
from orga.client.config.problems import KeySource, problem_lines
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.record import CheckedInput
from orga.workflows.types.tool_calls.gate import GateRequest, ProposedStep, Purpose, Verdict
from orga.workflows.types.tool_calls.loop_tools import loop_tool
from orga.workflows.types.tool_calls.tools import Effect, ToolOptions, ToolSpec

SUFFIX = ".test.toml"

Outcome = Literal["allow", "deny", "approval"]

Read = TypeVar("Read", bound=CheckedInput)


class CaseTool(CheckedInput):
    """`[tools.NAME]`: a tool that is not built in, or that differs from the built-in one."""

    effect: Effect = "irreversible"
    tags: tuple[str, ...] = ()
    verified: bool = False
    approval: bool = False
    parameters: dict[str, Any] = {}
    """JSON Schema of its arguments."""


class CaseStep(CheckedInput):
    skill: str = Field(min_length=1)
    """The name of a tool or of an agent."""
    goal: str = ""
    arguments: dict[str, Any] | None = None
    depends_on: tuple[str, ...] = ()

    def proposed_step(self, step_id: str) -> ProposedStep:
        return ProposedStep(
            id=step_id, skill=self.skill, goal=self.goal, arguments=self.arguments, depends_on=self.depends_on
        )


class PolicyCase(CheckedInput):
    """`[[test]]`: a proposal (by `tool`, `answer` or `plan`) and the expected verdict."""

    name: str = Field(min_length=1)
    agent: str = "default"
    tool: str | None = None
    """The tool's name. `delegate` and `terminate` are possible too."""
    arguments: dict[str, Any] = {}
    answer: str | None = None
    plan: tuple[CaseStep, ...] = ()
    trusted: dict[str, Any] = {}
    values: dict[str, Any] = {}
    """The latest value of each tool with an output schema."""
    tenant: str | None = None
    iteration: int = 1
    depth: int = 0
    left: dict[str, float] = {}
    """The rest of each limited budget, such as `tokens` or `cost_usd`."""
    taint: tuple[str, ...] = ()
    purpose: Purpose = "reply"
    approved_by: str = ""
    expect: Outcome
    expect_policies: tuple[str, ...] | None = None
    """Ids of all policies that decide, in any order."""
    expect_approvers: tuple[str, ...] | None = None
    expect_tools: tuple[str, ...] | None = None
    """The tools that the other agent may use, in a delegation."""
    expect_reason: str = ""
    """Text that the reason must contain."""


class CaseTables(CheckedInput):
    """The tables of a file, before its tests are checked."""

    tools: dict[str, CaseTool] = {}
    test: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class CaseFile:
    tools: dict[str, CaseTool]
    test: tuple[PolicyCase, ...]


class BadCases(ConfigError):
    """A file of tests cannot be used. The text has one line per problem."""


def case_files(path: Path) -> list[Path]:
    """Return the file, or the test files of a folder and its direct subfolders. Raise BadCases if there are none."""
    if path.is_file():
        return [path]
    files = sorted([*path.glob(f"*{SUFFIX}"), *path.glob(f"*/*{SUFFIX}")])
    if not files:
        raise BadCases(f"{path}: there is no *{SUFFIX}; docs/policies.md shows one")
    return files


def read_cases(path: Path) -> CaseFile:
    """Return the tests of a file. Raise BadCases with file and line of each problem."""
    try:
        text = path.read_text(encoding="utf-8")
        content = read_toml(text)
    except TomlTooDeep as error:
        raise BadCases(f"{path}: {error}; no policy sees more than 20 levels") from None
    except (OSError, ValueError) as error:
        raise BadCases(f"{path}: cannot be read: {error}") from None
    tables = _read(CaseTables, content, lambda key: f"{path}:{line_of(text, key) or 1}")
    lines = text.splitlines()
    headers = [number for number, line in enumerate(lines, start=1) if line.strip().startswith("[[test]]")]
    headers += [_NO_HEADER] * len(tables.test)
    tests = zip(tables.test, headers, strict=False)
    return CaseFile(tables.tools, tuple(_read_case(path, lines, header, test) for test, header in tests))


_NO_HEADER = 0
"""The line number of the header of a test in an inline array. Such a test is looked for in the whole file."""


def _read_case(path: Path, lines: list[str], header: int, test: dict[str, Any]) -> PolicyCase:
    """Return the test whose keys follow line number `header`. Raise BadCases with file and line of each problem."""
    block = "\n".join(lines[header:])

    def place(line_in_block: int) -> str:
        return f"{path}:{max(header + line_in_block, 1)}"

    case = _read(PolicyCase, test, lambda key: place(line_of(block, key) or 0))
    kinds_of_proposal = [case.tool is not None, case.answer is not None, bool(case.plan)]
    if kinds_of_proposal.count(True) != 1:
        raise BadCases(f"{place(0)}: {case.name!r}: give it either a tool, or an answer, or a plan")
    return case


def _read(model: type[Read], table: dict[str, Any], source: KeySource) -> Read:
    try:
        return model.model_validate(table, extra="forbid")
    except ValidationError as error:
        raise BadCases("\n".join(problem_lines(error, model, source))) from None


def case_proposal(case: PolicyCase, tools: dict[str, CaseTool], known: Mapping[str, ToolSpec]) -> GateRequest:
    """Return the proposal of a case. Raise BadCases if its tool is unknown, because its effect and tags are missing."""
    if case.tool is None:
        calls: tuple[ToolCall, ...] = ()
        names = [step.skill for step in case.plan if step.skill in {*tools, *known}]
    else:
        calls = (ToolCall(call_id="test", name=case.tool, arguments=case.arguments),)
        names = [case.tool]
    return GateRequest(
        agent=case.agent,
        iteration=case.iteration,
        calls=calls,
        answer=case.answer,
        plan=tuple(step.proposed_step(f"s{number}") for number, step in enumerate(case.plan, start=1)),
        specs=tuple(_tool_spec(name, tools, known) for name in names),
        tenant=case.tenant,
        trusted_context=case.trusted,
        values=case.values,
        purpose=case.purpose,
        depth=case.depth,
        taint=case.taint,
        left=case.left,
    )


def _tool_spec(name: str, tools: dict[str, CaseTool], known: Mapping[str, ToolSpec]) -> ToolSpec:
    if tool := tools.get(name):
        options = ToolOptions(tags=tool.tags, verified=tool.verified, approval=tool.approval)
        return ToolSpec(name=name, parameters=tool.parameters, effect=tool.effect, options=options)
    if loop_tool(name).action != "tool_call":  # `delegate` or `terminate`, which policies know by their action
        return ToolSpec(name=name)
    if name not in known:
        raise BadCases(f"{name!r} is no built-in tool; describe it: [tools.{name}] effect = ..., tags = [...]")
    return known[name]


@dataclass(frozen=True)
class CaseResult:
    name: str
    outcome: Outcome
    verdict: Verdict
    faults: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.faults


async def case_results(engine: PolicyEngine, cases: CaseFile) -> AsyncGenerator[CaseResult]:
    """Judge each case in order. An error of the engine is a denial, as at the gate."""
    known = builtin_specs()
    for case in cases.test:
        proposal = case_proposal(case, cases.tools, known)
        verdict = await _judge(engine, proposal)
        if case.approved_by:  # judged once more, as an approved call is in a run
            proposal = proposal.with_approval(case.approved_by, verdict.version)
            verdict = await _judge(engine, proposal)
        outcome = _outcome(proposal, verdict)
        yield CaseResult(case.name, outcome, verdict, tuple(_faults(case, outcome, verdict)))


async def _judge(engine: PolicyEngine, proposal: GateRequest) -> Verdict:
    try:
        return await engine.judge(proposal)
    except Exception as error:  # any error of an engine is a denial
        return Verdict(decision="deny", reason=f"the policy engine failed: {type(error).__name__}: {error}")


def _outcome(proposal: GateRequest, verdict: Verdict) -> Outcome:
    if verdict.decision == "deny":
        return "deny"
    return "allow" if verdict.missing_approval(proposal) is None else "approval"


def _faults(case: PolicyCase, outcome: Outcome, verdict: Verdict) -> list[str]:
    approvers = verdict.approval.approvers if verdict.approval else ()
    expectations = [
        ("", case.expect, outcome),
        ("policies ", _names_text(case.expect_policies), _names_text(verdict.policies)),
        ("approvers ", _names_text(case.expect_approvers), _names_text(approvers)),
        ("tools ", _names_text(case.expect_tools), _names_text(verdict.tools or ())),
    ]
    faults = [
        f"{what}{expected}, not {found}" for what, expected, found in expectations if expected not in (None, found)
    ]
    if case.expect_reason not in verdict.reason:
        faults.append(f"a reason with {case.expect_reason!r}, not {verdict.reason!r}")
    return faults


def _names_text(names: tuple[str, ...] | None) -> str | None:
    return None if names is None else ", ".join(sorted(names)) or "none"
