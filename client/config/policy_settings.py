"""Turns `[policy]` into the settings of the policy engines."""

from collections.abc import Mapping

from orga.activities.adapters.http import is_loopback
from orga.activities.adapters.policy.ladder import PolicySettings
from orga.client.config.sections import PolicyConfig

TOKEN = "OPA_TOKEN"


def policy_settings(config: PolicyConfig, env: Mapping[str, str]) -> PolicySettings:
    """Return the settings.

    Raises:
        ValueError: The token would be sent unencrypted.
    """
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
