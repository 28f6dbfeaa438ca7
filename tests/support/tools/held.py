"""System functions that take long, as on a slow disk."""

import threading
from collections.abc import Callable
from typing import Any

PATIENCE_S = 60


class Held:
    """A system function whose first call waits until it is released."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._calls = 0
        self.is_reached, self.may_go_on = threading.Event(), threading.Event()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._calls += 1
        if self._calls == 1:
            self.is_reached.set()
            assert self.may_go_on.wait(PATIENCE_S)
        return self._function(*args, **kwargs)
