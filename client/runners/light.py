"""The SDK's sandbox of one run (temporalio 1.35), filled and entered with less work; it isolates what it did."""

from functools import cache
from threading import get_ident
from types import CodeType
from typing import Any, cast

from temporalio import workflow
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import WorkflowInstanceDetails, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxRestrictions
from temporalio.worker.workflow_sandbox._in_sandbox import InSandbox
from temporalio.worker.workflow_sandbox._restrictions import RestrictionContext, _RestrictedProxy
from temporalio.worker.workflow_sandbox._runner import _Instance

from orga.client.runners.entered import entered, replaced_in
from orga.client.runners.imports import quick_import
from orga.client.runners.passed import NOTHING, Passed, pass_through, passed_through

_UNWRAPPING = ("isinstance", "issubclass")
"""Which take what is restricted as what it is: the SDK puts functions of its own in their place, for all that ask."""


class LightInstance(_Instance):
    """A sandbox that imports quickly, and compiles no line twice."""

    def __init__(
        self,
        details: WorkflowInstanceDetails,
        runner: type[WorkflowRunner],
        restrictions: SandboxRestrictions,
        passed: dict[type[Any], Passed],
    ) -> None:
        """Take what was passed through to earlier ones, by their kind; what is to this one is noted there."""
        self._passed = passed
        super().__init__(details, runner, restrictions)

    def _create_instance(self) -> None:
        importer, kind = self.importer, self.instance_details.defn.cls
        passed = self._passed.get(kind, NOTHING)
        if not pass_through(importer, passed):
            passed = NOTHING
        builtins: list[tuple[str, Any, Any]] = importer.restricted_builtins  # pyright: ignore
        importer.restricted_builtins = [
            (name, local, _unwrapping(local.orig) if name in _UNWRAPPING else restricted)
            for name, local, restricted in builtins
        ]
        importer.import_func = cast(Any, quick_import(importer, passed))
        super()._create_instance()
        if passed is NOTHING:
            self._passed[kind] = passed_through(importer)
        self._replaced = replaced_in(importer)

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """Let workflow code act."""
        context = self.importer.restriction_context
        in_sandbox = cast(InSandbox, self.globals_and_locals["__temporal_in_sandbox"])
        context.is_runtime = context.in_activation = True
        workflow.unsafe._set_in_sandbox(True)
        self._current_thread_id = get_ident()
        try:
            with entered(self.importer, self._replaced):
                return in_sandbox.activate(act)
        finally:
            self._current_thread_id = None
            workflow.unsafe._set_in_sandbox(False)
            context.is_runtime = context.in_activation = False

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
