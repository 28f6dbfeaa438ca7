"""Which engine decides: what is asked for, else Cedar files, else OPA, else the fail-closed default."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from orga.activities.adapters.policy.allow_all import AllowAll
from orga.activities.adapters.policy.cedar import CedarPolicies
from orga.activities.adapters.policy.listed import ListedTools
from orga.activities.adapters.policy.opa_server import OpaServer
from orga.activities.adapters.policy.opa_wasm import OpaWasm
from orga.activities.ports import PolicyEngine

EngineName = Literal["cedar", "opa", "default", "allow"]


@dataclass(frozen=True)
class PolicySettings:
    """What the configuration says about policies."""

    engine: EngineName | None = None
    folder: Path | None = None
    surface: str | None = None
    opa_url: str | None = None
    opa_wasm: Path | None = None
    opa_path: str = "orga/decision"
    opa_timeout_s: float = 3.0
    opa_token: str | None = None


def engine_name(settings: PolicySettings) -> EngineName:
    """Return the engine that decides."""
    if settings.engine is not None:
        return settings.engine
    if settings.folder is not None:
        return "cedar"
    return "opa" if settings.opa_url or settings.opa_wasm else "default"


def policy_engine(settings: PolicySettings) -> PolicyEngine:
    """Return the engine, ready to judge.

    Raises:
        ValueError: It cannot be had; the text says why. Nothing else takes its place.
    """
    match engine_name(settings):
        case "cedar":
            return _cedar(settings)
        case "opa":
            return _opa(settings)
        case "allow":
            return AllowAll()
        case "default":
            return ListedTools()


def gate_execution(engine: PolicyEngine) -> Literal["local", "activity"]:
    """Return how the gate runs: a server is asked in an activity of its own, all else within the workflow task."""
    return "local" if engine.is_embedded else "activity"


def policy_version(engine: PolicyEngine) -> str:
    """Return the version of the rules that judge now; "" where the engine has none, or a server has them."""
    return engine.version if isinstance(engine, CedarPolicies | OpaWasm) else ""


def _cedar(settings: PolicySettings) -> CedarPolicies:
    if settings.folder is None:
        raise ValueError('policy.dir: engine = "cedar" needs a folder with *.cedar files; orga policy check explains')
    return CedarPolicies(settings.folder, settings.surface)


def _opa(settings: PolicySettings) -> PolicyEngine:
    if settings.opa_url and settings.opa_wasm:
        raise ValueError("policy.opa: url and wasm exclude each other; remove one")
    if settings.opa_wasm:
        return OpaWasm(settings.opa_wasm, settings.opa_path)
    if not settings.opa_url:
        raise ValueError('policy.opa: engine = "opa" needs the url of a server, or wasm, a compiled policy')
    return OpaServer(settings.opa_url, settings.opa_path, token=settings.opa_token, timeout_s=settings.opa_timeout_s)
