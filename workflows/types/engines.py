"""Policy engines by name, and which of them decides less than another."""

_STRENGTH = {"allow": 0, "default": 1, "cedar": 2, "opa": 2}


def is_weaker(engine: str, than: str) -> bool:
    """Say whether an engine may let through what another one turns down, by its kind; of an unknown one nothing is."""
    strength, wanted = _STRENGTH.get(engine), _STRENGTH.get(than)
    return strength is not None and wanted is not None and strength < wanted
