"""The SDK's sandbox of one run (temporalio 1.35), filled and entered with less work; it isolates what it did."""

from functools import cache
from types import CodeType
from typing import Any

from temporalio.worker.workflow_sandbox._restrictions import RestrictionContext, _RestrictedProxy
from temporalio.worker.workflow_sandbox._runner import _Instance

from orga.client.runners.imports import QuickImport

_UNWRAPPING = ("isinstance", "issubclass")
"""Which take what is restricted as what it is: the SDK puts functions of its own in their place, for all that ask."""


class LightInstance(_Instance):
    """A sandbox that imports quickly, and compiles no line twice."""

    def _create_instance(self) -> None:
        importer = self.importer
        importer.import_func = QuickImport(importer)
        builtins: list[tuple[str, Any, Any]] = importer.restricted_builtins  # pyright: ignore
        importer.restricted_builtins = [
            (name, local, _unwrapping(local.orig) if name in _UNWRAPPING else restricted)
            for name, local, restricted in builtins
        ]
        super()._create_instance()

    def _run_code(self, code: str, **extra_globals: Any) -> None:
        super()._run_code(_compiled(code), **extra_globals)  # pyright: ignore  # `exec` takes either


def _unwrapping(builtin: Any) -> Any:
    def with_proxies_unwrapped(one: Any, kinds: Any) -> bool:
        if type(one) is _RestrictedProxy or type(kinds) is _RestrictedProxy:
            return builtin(RestrictionContext.unwrap_if_proxied(one), RestrictionContext.unwrap_if_proxied(kinds))
        return builtin(one, kinds)

    return with_proxies_unwrapped


@cache
def _compiled(code: str) -> CodeType:
    return compile(code, "<string>", "exec")
