"""Room that is shared: short texts stay whole, the long ones share what is left."""

from collections.abc import Sequence


def shares(sizes: Sequence[int], room: int) -> list[int]:
    """Return what each of these gets of the room: short ones all they need, the long ones share what is left."""
    found = [0] * len(sizes)
    left = room
    order = sorted(range(len(sizes)), key=lambda index: sizes[index])
    for waiting, index in zip(range(len(sizes), 0, -1), order, strict=True):
        found[index] = min(sizes[index], left // waiting)
        left -= found[index]
    return found
