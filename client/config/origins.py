"""The effective value of every configuration key, with secrets hidden, and its origin."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from orga.activities.adapters.agents.agents import with_default_agent
from orga.activities.adapters.models.settings import default_model
from orga.activities.adapters.policy.ladder import engine_name
from orga.activities.text.secrets import MIN_GUESSED_CHARS, REDACTED, KnownSecrets, secret_values
from orga.client.config.file import ConfigSources
from orga.client.config.policy_settings import policy_settings
from orga.client.config.sections import OrgaConfig
from orga.client.server.resolve import standard_address
from orga.workflows.types.providers import DEFAULT_PROVIDERS

Key = tuple[str, ...]
Environment = Mapping[str, str]

DEFAULT = "default"
EMBEDDED = "the embedded server"


@dataclass(frozen=True)
class EffectiveValue:
    """One key."""

    key: str
    value: Any
    """The value in its JSON form."""
    origin: str
    """A variable, `FILE:LINE`, or `default` with its reason."""

    @property
    def is_default(self) -> bool:
        """True if neither a variable nor a file sets the key."""
        return self.origin.startswith(DEFAULT)


def effective_values(sources: ConfigSources, env: Environment) -> list[EffectiveValue]:
    """Return all keys in the order of the sections.

    Raises:
        ServerUnavailable: Temporal's own configuration cannot be read.
    """
    config = sources.config.with_agents(with_default_agent(sources.config.agents))
    known = KnownSecrets.from_environment(env)
    found: list[EffectiveValue] = []
    for key, value in _leaves((), config.model_dump(mode="json")):
        origin = sources.origin(key)
        held, origin = (value, origin) if origin else _derived_value(key, value, config, env)
        found.append(EffectiveValue(".".join(key), _masked_value(key, held, known), origin))
    return found


def _leaves(key: Key, value: Any) -> Iterator[tuple[Key, Any]]:
    if isinstance(value, dict) and (value or not key):
        for name, inner in cast("dict[str, Any]", value).items():
            yield from _leaves((*key, name), inner)
    else:
        yield key, value


def _derived_value(key: Key, value: Any, config: OrgaConfig, env: Environment) -> tuple[Any, str]:
    """Return the value of a key that nobody has set, and its origin."""
    match key:
        case ("models", "default"):
            model = default_model(env)
            by = next((each.key for each in DEFAULT_PROVIDERS if model.startswith(f"{each.name}:")), "")
            return model, f"{DEFAULT}: {by} is set" if by else f"{DEFAULT}: no key is set"
        case ("temporal", "address"):
            named = standard_address()
            by = "TEMPORAL_ADDRESS" if env.get("TEMPORAL_ADDRESS") else "Temporal's profile"
            return (named, by) if named else (EMBEDDED, DEFAULT)
        case ("tools", "files", "root"):
            return str(Path.cwd()), f"{DEFAULT}: the working folder"
        case ("policy", "engine"):
            engine = engine_name(policy_settings(config.policy, {}))
            why = {"cedar": "policies are there", "opa": "OPA is set up"}.get(engine)
            return engine, f"{DEFAULT}: {why}" if why else DEFAULT
        case ("policy", "dir") if value is not None:
            return value, f"{DEFAULT}: policies are there"
        case _:
            return value, DEFAULT


def _masked_value(key: Key, value: Any, known: KnownSecrets) -> Any:
    if isinstance(value, list):
        return [_masked_value(key, each, known) for each in cast("list[Any]", value)]
    if not isinstance(value, str):
        return value
    if key == ("notify", "url") or (key[:2] == ("goals", "deliveries") and key[-1] == "url"):
        parts = urlsplit(value)
        return f"{parts.scheme}://{parts.hostname}/{REDACTED}"
    own = KnownSecrets.from_values(secret_values({"": value}), MIN_GUESSED_CHARS // 2)
    return known.redact(own.redact(value))
