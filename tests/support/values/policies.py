"""Builders of policy folders and of the proposals that are put to them."""

from pathlib import Path
from typing import Any

from orga.activities.ports import Proposal
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.tools import Effect, ToolOptions, ToolSpec

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
) -> Proposal:
    """Return the proposal of a tool call."""
    options = ToolOptions(tags=tags, verified=verified, approval=approval)
    spec = ToolSpec(name=name, effect=effect, parameters=parameters or {}, options=options)
    call = ToolCall(call_id="c1", name=name, arguments=arguments or {})
    return Proposal(agent=agent, iteration=fields.pop("iteration", 1), call=call, spec=spec, **fields)


def an_answer(text: str = "done", agent: str = "default") -> Proposal:
    """Return the proposal of a final answer."""
    return Proposal(agent=agent, iteration=1, answer=text)
