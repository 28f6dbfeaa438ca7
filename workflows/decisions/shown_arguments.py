"""The arguments of a call as people are shown them: whole, or by size and digest; a part could be read as the whole."""

from hashlib import sha256
from typing import Any

from workflows.types.clipped import clip


def shown_arguments(arguments: str, most: int) -> dict[str, Any]:
    """Return the JSON of a call's arguments with, where more than `most` bytes do not fit, its size and digest."""
    size = len(arguments.encode())
    if size <= most:
        return {"arguments": arguments}
    return {
        "arguments": clip(arguments, most),
        "arguments_bytes": size,
        "arguments_digest": f"sha256:{sha256(arguments.encode()).hexdigest()}",
    }
