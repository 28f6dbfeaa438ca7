"""Where policies are if the configuration names no folder."""

from pathlib import Path

from client.config import OrgaConfig

FOLDER = "policies"


def with_policy_folder(config: OrgaConfig, base: Path) -> OrgaConfig:
    """Return the config whose `policy.dir` is `policies` in `base`, where it names none and Cedar files are there."""
    folder = base.absolute() / FOLDER
    if config.policy.dir is not None or not (any(folder.glob("*.cedar")) or any(folder.glob("*/*.cedar"))):
        return config
    return config.model_copy(update={"policy": config.policy.model_copy(update={"dir": folder})})
