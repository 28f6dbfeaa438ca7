"""Who sits at this terminal."""

from getpass import getuser


def login_name() -> str:
    """Return the user's login name; a container may have none."""
    try:
        return getuser()
    except (KeyError, OSError):
        return ""
