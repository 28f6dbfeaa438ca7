"""Variables of the worker's environment that a tool is given, and how they are kept out of what it returns."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from activities.known_secrets import KnownSecrets
from activities.ports import ToolError


@dataclass(frozen=True)
class Secrets:
    """Values by variable. Its representation shows none."""

    values: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    @classmethod
    def of(cls, variables: Iterable[str], env: Mapping[str, str]) -> "Secrets":
        """Take the variables.

        Raises:
            ValueError: One is not set.
        """
        wanted = list(variables)
        if missing := [name for name in wanted if not env.get(name)]:
            raise ValueError(f"the environment has no {' and no '.join(missing)}; set it where the worker starts")
        return cls({name: env[name] for name in wanted})

    @cached_property
    def known(self) -> KnownSecrets:
        """What hides them."""
        return KnownSecrets.of(self.values.values())

    def left_out_of(self, error: ToolError) -> ToolError:
        """Return the error without them."""
        return ToolError(self.known.hidden(str(error)), kind=error.kind, retryable=error.retryable)
