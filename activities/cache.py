"""A cache bounded in bytes: the least recently used entries go first."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class ByteCache(Generic[V]):
    """Holds values whose sizes sum up to at most `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self.size = 0

    def get(self, key: Hashable) -> V | None:
        """Return the value, which counts as used now, or None."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def put(self, key: Hashable, value: V, size: int) -> None:
        """Keep `value`, which takes `size` bytes; a value larger than the whole cache is not kept."""
        self.drop(key)
        if size > self._max_bytes:
            return
        self._entries[key] = (value, size)
        self.size += size
        while self.size > self._max_bytes:
            _, (_, freed) = self._entries.popitem(last=False)
            self.size -= freed

    def drop(self, key: Hashable) -> None:
        """Forget `key`."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.size -= entry[1]
