"""How long a server that failed is left alone before it is connected to again."""

FIRST_S = 0.25
MOST_S = 60.0


def delay_s(failures: int) -> float:
    """Return the pause after so many failures in a row: none after a connection that had been of use."""
    return min(FIRST_S * 2 ** (min(failures, 20) - 1), MOST_S) if failures else 0.0
