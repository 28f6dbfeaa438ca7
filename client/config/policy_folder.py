"""The default folder of policies, and digests that distinguish one folder's policies from another's."""

from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from orga.client.config.sections import OrgaConfig
from orga.workflows.types.tool_calls.gate import RULES, policy_text

FOLDER = "policies"

LOCATION_CHARS = 12


def with_policy_folder(config: OrgaConfig, base: Path) -> OrgaConfig:
    """Return the configuration with `base`'s folder `policies`, if it names no folder and that one has Cedar files."""
    folder = base.absolute() / FOLDER
    if config.policy.dir is not None or not (any(folder.glob("*.cedar")) or any(folder.glob("*/*.cedar"))):
        return config
    return config.with_policy(config.policy.with_dir(folder))


def policy_location_digest(config: OrgaConfig) -> str:
    """Return a short digest of the place of the rules in use: a folder, a file or a server."""
    policy = config.policy
    folder, file = (path and path.absolute() for path in (policy.dir, policy.opa.wasm))
    where = {"cedar": folder, "opa": policy.opa.url or file}.get(_engine(config))
    return sha256(f"{_engine(config)}\0{where or ''}".encode(errors="surrogateescape")).hexdigest()[:LOCATION_CHARS]


def starter_policy(config: OrgaConfig) -> str:
    """Return the policy under which this folder starts runs, or "" if it has no rules."""
    from orga.activities.adapters.policy.cedar_files import BrokenPolicies, files_version, policy_files

    engine = _engine(config)
    if engine not in RULES:
        return ""
    version = ""
    if engine == "cedar" and config.policy.dir is not None:
        with suppress(BrokenPolicies):  # no worker starts with broken policies
            version = files_version(policy_files(config.policy.dir, config.policy.surface))
    return policy_text(engine, policy_location_digest(config), version)


def _engine(config: OrgaConfig) -> str:
    """Return the engine as `ladder.engine_name` does, but without loading the libraries of all engines."""
    policy = config.policy
    has_opa = policy.opa.url is not None or policy.opa.wasm is not None
    return policy.engine or ("cedar" if policy.dir else "opa" if has_opa else "default")
