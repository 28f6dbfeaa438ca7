"""Where a provider is and how we identify ourselves to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Endpoint:
    """One provider's address. The key stands in no `repr`."""

    provider: str
    base_url: str
    """Without a trailing slash; the protocol's path is appended."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    secret: str = field(default="", repr=False)
    """The key among `headers`, to be kept out of error texts."""
