"""Variables of the worker's environment for a tool, which are hidden in its results."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from orga.activities.adapters.manifests.manifest import Http
from orga.activities.adapters.manifests.template import parse_template, template_placeholders
from orga.activities.text.secrets import KnownSecrets


def header_variables(http: Http) -> set[str]:
    """Return the variables that a request's headers name.

    Raises:
        ValueError: A placeholder is broken.
    """
    return {
        slot.name
        for source in http.headers.values()
        for slot in template_placeholders(parse_template(source))
        if slot.is_secret
    }


@dataclass(frozen=True)
class ManifestSecrets:
    """Values by variable. The `repr` shows none."""

    values: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    @classmethod
    def from_environment(cls, variables: Iterable[str], env: Mapping[str, str]) -> "ManifestSecrets":
        """Read the variables.

        Raises:
            ValueError: One is not set.
        """
        wanted = list(variables)
        if missing := [name for name in wanted if not env.get(name)]:
            raise ValueError(f"the environment has no {' and no '.join(missing)}; set it where the worker starts")
        return cls({name: env[name] for name in wanted})

    @cached_property
    def known_secrets(self) -> KnownSecrets:
        """The same values as secrets that can be hidden in texts."""
        return KnownSecrets.from_values(self.values.values())
