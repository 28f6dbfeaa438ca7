"""Creates the policy engine. If none is named, it is Cedar for a policy folder, else OPA if configured, else a default.

The default engine allows the tools that the agent lists.
"""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from orga.activities.adapters.policy.cedar import CedarPolicies
from orga.activities.adapters.policy.opa import OpaServer, OpaWasm
from orga.activities.ports import PolicyEngine
from orga.workflows.types.tool_calls.gate import ApprovalTerms, GateRequest, Verdict

_log = logging.getLogger(__name__)


class AllowAll:
    """Allows every proposal. It logs a warning when it is created."""

    is_embedded = True

    def __init__(self) -> None:
        _log.warning(
            "POLICY IS OFF: every tool call of every agent is allowed; set another [policy] engine for real work"
        )

    async def judge(self, proposal: GateRequest) -> Verdict:
        return Verdict(decision="allow")


class ListedTools:
    """Denies calls of tools that the agent does not list. A listed tool whose options say so needs an approval.

    Final answers are allowed. Plans are allowed too, because each step is judged later as a call.
    """

    is_embedded = True

    async def judge(self, proposal: GateRequest) -> Verdict:
        if proposal.call is None:
            return Verdict(decision="allow")
        name = proposal.call.name
        if name not in proposal.offered:
            listed = ", ".join(proposal.offered) or "none"
            return Verdict(decision="deny", reason=f"{name} is not listed for this agent; listed: {listed}")
        spec = proposal.spec(name)
        if spec is not None and spec.options.approval:
            return Verdict(decision="approval", reason=f"{name} is marked for approval", approval=ApprovalTerms())
        return Verdict(decision="allow")


EngineName = Literal["cedar", "opa", "code", "default", "allow"]


@dataclass(frozen=True, kw_only=True)
class PolicySettings:
    engine: EngineName | None = None
    folder: Path | None = None
    surface: str | None = None
    opa_url: str | None = None
    opa_wasm: Path | None = None
    opa_path: str
    opa_timeout_s: float
    opa_token: str | None = None


def engine_name(settings: PolicySettings) -> EngineName:
    if settings.engine is not None:
        return settings.engine
    if settings.folder is not None:
        return "cedar"
    return "opa" if settings.opa_url or settings.opa_wasm else "default"


def policy_engine(settings: PolicySettings) -> PolicyEngine:
    """Create the engine. Raise ValueError if that is impossible, because no other engine may take its place."""
    match engine_name(settings):
        case "cedar":
            if settings.folder is None:
                needs = 'engine = "cedar" needs a folder with *.cedar files'
                raise ValueError(f"policy.dir: {needs}; orga policy check explains")
            return CedarPolicies(settings.folder, settings.surface)
        case "opa":
            return _opa_engine(settings)
        case "code":
            raise ValueError('policy.engine: "code" is the engine of an application: OrgaPlugin(policy=...)')
        case "allow":
            return AllowAll()
        case "default":
            return ListedTools()


def gate_execution(engine: PolicyEngine) -> Literal["local", "activity"]:
    """Return how the gate runs: as a local activity, or as an ordinary activity if the engine asks a server."""
    return "local" if engine.is_embedded else "activity"


def policy_version(engine: PolicyEngine) -> str:
    """Return the version of the current policies. Return "" if the engine has none, or a server holds them."""
    return str(getattr(engine, "version", ""))


def _opa_engine(settings: PolicySettings) -> PolicyEngine:
    if settings.opa_url and settings.opa_wasm:
        raise ValueError("policy.opa: url and wasm exclude each other; remove one")
    if settings.opa_wasm:
        return OpaWasm(settings.opa_wasm, settings.opa_path)
    if not settings.opa_url:
        raise ValueError('policy.opa: engine = "opa" needs the url of a server, or wasm, a compiled policy')
    return OpaServer(settings.opa_url, settings.opa_path, token=settings.opa_token, timeout_s=settings.opa_timeout_s)
