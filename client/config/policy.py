"""`[policy]`: its default folder, a digest of the rules' location, and the settings of the policy engines.

No engine is loaded before it is used: most commands need none.
"""

from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from orga.client.config.sections import OrgaConfig, PolicyConfig
from orga.client.errors import ConfigError
from orga.workflows.types.tool_calls.gate import RULES, policy_text

if TYPE_CHECKING:
    from orga.activities.adapters.policy.engines import PolicySettings

FOLDER = "policies"
LOCATION_CHARS = 12  # hexadecimal characters of a digest
TOKEN = "OPA_TOKEN"  # the variable with the token for an OPA server


def with_policy_folder(config: OrgaConfig, base: Path) -> OrgaConfig:
    """Add `base`'s folder `policies`, if it has Cedar files and the configuration names no folder."""
    folder = base.absolute() / FOLDER
    if config.policy.dir is not None or not has_cedar_files(folder):
        return config
    return config.with_policy(config.policy.with_dir(folder))


def has_cedar_files(folder: Path) -> bool:
    """Return whether the folder has policies, shared ones or those of a surface."""
    return any(folder.glob("*.cedar")) or any(folder.glob("*/*.cedar"))


def policy_location_digest(config: OrgaConfig) -> str:
    """Return a short digest of the location of the rules in use: a folder, a file or a server."""
    policy, engine = config.policy, _engine(config)
    location: Path | str | None = None
    if engine == "cedar":
        location = policy.dir
    elif engine == "opa":
        location = policy.opa.url or policy.opa.wasm
    if isinstance(location, Path):
        location = location.absolute()
    return sha256(f"{engine}\0{location or ''}".encode(errors="surrogateescape")).hexdigest()[:LOCATION_CHARS]


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
    """Return the name of the engine, as `engines.engine_name` does, without loading the libraries of all engines."""
    policy = config.policy
    if policy.engine:
        return policy.engine
    if policy.dir:
        return "cedar"
    return "default" if policy.opa.url is None and policy.opa.wasm is None else "opa"


def policy_settings(config: PolicyConfig, env: Mapping[str, str]) -> "PolicySettings":
    """Return the settings. Raise ValueError if the token would be sent unencrypted."""
    from orga.activities.adapters.http import is_loopback
    from orga.activities.adapters.policy.engines import PolicySettings

    token, url = env.get(TOKEN) or None, config.opa.url
    is_unencrypted = url is not None and not url.startswith("https://") and not is_loopback(url)
    if token and is_unencrypted:
        raise ValueError(f"policy.opa.url: {TOKEN} is set, so it has to begin with https://")
    return PolicySettings(
        engine=config.engine,
        folder=config.dir,
        surface=config.surface,
        opa_url=url,
        opa_wasm=config.opa.wasm,
        opa_path=config.opa.path,
        opa_timeout_s=config.opa.timeout_s,
        opa_token=token,
    )


def require_usable(config: OrgaConfig, root: Path, env: Mapping[str, str]) -> None:
    """Raise ConfigError, with the remedy, if the root is no folder, or policies do not compile."""
    from orga.activities.adapters.policy.engines import policy_engine
    from orga.activities.adapters.tools.root import files_root

    try:
        files_root(root)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    policy = config.policy
    has_rule_files = policy.engine == "cedar" or policy.dir or policy.opa.wasm
    if has_rule_files:
        try:
            policy_engine(policy_settings(policy, env))
        except ValueError as error:
            raise ConfigError(str(error)) from None
