"""Turns `[policy]` into the settings of the policy engines, and refuses what no worker could start with."""

from collections.abc import Mapping
from pathlib import Path

from orga.activities.adapters.http import is_loopback
from orga.activities.adapters.policy.ladder import PolicySettings, policy_engine
from orga.client.config.sections import OrgaConfig, PolicyConfig
from orga.client.errors import ConfigError

TOKEN = "OPA_TOKEN"


def policy_settings(config: PolicyConfig, env: Mapping[str, str]) -> PolicySettings:
    """Return the settings. Raise ValueError if the token would be sent unencrypted."""
    token, url = env.get(TOKEN) or None, config.opa.url
    if token and url and not url.startswith("https://") and not is_loopback(url):
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
    from orga.activities.adapters.tools.root import files_root  # only a command that starts a worker needs this import

    try:
        files_root(root)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    policy = config.policy
    if policy.engine == "cedar" or policy.dir or policy.opa.wasm:
        try:
            policy_engine(policy_settings(policy, env))
        except ValueError as error:
            raise ConfigError(str(error)) from None
