"""Builders of policy folders, and of proposals for policies."""

from pathlib import Path
from typing import Any

from orga.workflows.types.messages import ToolCall
from orga.workflows.types.tool_calls.gate import GateRequest, ProposedStep, Verdict
from orga.workflows.types.tool_calls.tools import Effect, ToolOptions, ToolSpec

PERMIT_ALL = '@id("all") permit (principal, action, resource);'


def a_folder(root: Path, **files: str) -> Path:
    """Write Cedar files into `policies`, `prod__x` as `prod/x.cedar`, and return the folder."""
    folder = root / "policies"
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.cedar"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return folder


def a_tool_proposal(
    name: str = "read_file",
    *,
    effect: Effect = "read_only",
    tags: tuple[str, ...] = (),
    verified: bool = False,
    approval: bool = False,
    parameters: dict[str, Any] | None = None,
    arguments: dict[str, Any] | None = None,
    agent: str = "default",
    **fields: Any,
) -> GateRequest:
    """Return the proposal of a tool call."""
    options = ToolOptions(tags=tags, verified=verified, approval=approval)
    spec = ToolSpec(name=name, effect=effect, parameters=parameters or {}, options=options)
    call = ToolCall(call_id="c1", name=name, arguments=arguments or {})
    return GateRequest(agent=agent, iteration=fields.pop("iteration", 1), calls=(call,), specs=(spec,), **fields)


def a_plan_proposal(*specs: ToolSpec, agent: str = "default", **skills: dict[str, Any] | None) -> GateRequest:
    """Return the proposal of a plan with a step for each skill. The tools among the skills are given here."""
    steps = tuple(
        ProposedStep(id=f"s{n}", skill=skill, goal=f"use {skill}", arguments=arguments)
        for n, (skill, arguments) in enumerate(skills.items(), start=1)
    )
    return GateRequest(agent=agent, iteration=1, plan=steps, specs=specs, purpose="plan")


def an_answer(text: str = "done", agent: str = "default") -> GateRequest:
    """Return the proposal of a final answer."""
    return GateRequest(agent=agent, iteration=1, answer=text)


def a_verdict(allowed: bool, reason: str = "", **fields: Any) -> Verdict:
    """Return the verdict of an engine. An allowed call with approval terms waits for a person."""
    decision = "deny" if not allowed else "approval" if fields.get("approval") else "allow"
    return Verdict(decision=decision, reason=reason, **fields)
