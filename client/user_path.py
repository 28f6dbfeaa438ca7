"""Paths as people write them."""

from pathlib import Path


def user_path(written: str | Path) -> Path:
    """Return the path with `~` replaced. Without such a home it stays unchanged, and names no existing file."""
    try:
        return Path(written).expanduser()
    except RuntimeError:
        return Path(written)
