"""The sandbox answers as the SDK's own does, and is entered less often."""

from typing import Any

import pytest
from temporalio.converter import StorageDriverStoreContext, WorkflowSerializationContext
from temporalio.worker import WorkflowInstance

from client.sandbox import REMEMBERED, _Instance


class Asked(WorkflowInstance):
    """An instance that counts the questions."""

    def __init__(self) -> None:
        self.questions: list[Any] = []

    def activate(self, act: Any) -> Any:
        return ("activated", act)

    def get_serialization_context(self, command_info: Any) -> WorkflowSerializationContext:
        self.questions.append(command_info)
        return WorkflowSerializationContext(namespace="n", workflow_id=str(command_info))

    def get_external_store_context(self, command_info: Any) -> StorageDriverStoreContext:
        self.questions.append(command_info)
        return StorageDriverStoreContext(target=None)

    def get_info(self) -> Any:
        return "info"

    def get_thread_id(self) -> int:
        return 7


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param("get_serialization_context", id="how to serialise"),
        pytest.param("get_external_store_context", id="where to store"),
    ],
)
def test_a_command_is_asked_about_once(asked: str) -> None:
    sandboxed = Asked()
    ask = getattr(_Instance(sandboxed), asked)
    answers = [ask(command) for command in (1, 2, 1, None, 2, None)]
    assert sandboxed.questions == [1, 2, None]
    assert answers == [getattr(sandboxed, asked)(command) for command in (1, 2, 1, None, 2, None)]


def test_no_more_commands_are_remembered_than_are_needed() -> None:
    sandboxed = Asked()
    instance = _Instance(sandboxed)
    for command in (*range(REMEMBERED + 1), 0):
        instance.get_serialization_context(command)
    assert sandboxed.questions[-1] == 0


def test_all_else_goes_through() -> None:
    instance = _Instance(Asked())
    act: Any = "act"
    assert (instance.activate(act), instance.get_info(), instance.get_thread_id()) == (("activated", "act"), "info", 7)
