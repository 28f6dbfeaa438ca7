"""Unusable input fails the run at once, finally and by naming the key. It never leaves the run hanging."""

from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from orga.client.journal.reading import read_journal
from orga.client.runs.agents import AgentHandle
from orga.testing import FakeTool, ScriptedModel, answers
from orga.workflows.types.status import Termination
from tests.support.runs.loop import EXECUTION_TIMEOUT, Loop, a_loop, check_journal, check_replay, check_tasks


def raw(data: bytes, encoding: bytes = b"json/plain") -> RawValue:
    return RawValue(Payload(metadata={"encoding": encoding}, data=data))


BAD: dict[str, tuple[list[Any], str]] = {
    "no input at all": ([], "input: "),
    "null": ([None], "input: "),
    "text": (["count the files"], "input: "),
    "a list": ([[{"task": "t"}]], "input: "),
    "broken JSON": ([raw(b"{")], "input: "),
    "half a character": ([raw(b'{"task": "\\ud800"}')], "input: "),
    "bytes": ([raw(b"\xff\x00", b"binary/plain")], "input: "),
    "an unknown encoding": ([raw(b"?", b"some/other")], "input: "),
    "encrypted by somebody": ([raw(b"?", b"binary/encrypted")], "input: "),
    "nested 10,000 deep": ([raw(b"[" * 10_000 + b"]" * 10_000)], "input: "),
    "no task": ([{}], "task: "),
    "a blank task": ([{"task": " \n"}], "task: must not be empty"),
    "an unknown key": ([{"task": "t", "modle": "m"}], "modle: unknown key"),
    "an unknown key of the config": ([{"task": "t", "config": {"max_iteration": 1}}], "config.max_iteration: unknown"),
    "a negative limit": ([{"task": "t", "config": {"max_iterations": -1}}], "config.max_iterations: "),
    "time that is no number": ([raw(b'{"task": "t", "config": {"timeout_s": NaN}}')], "config.timeout_s: "),
    "a number of 5,000 digits": ([raw(b'{"task": "t", "config": {"max_iterations": %s}}' % (b"9" * 5_000))], "input: "),
    "an unknown agent": ([{"task": "t", "agent": "defualt"}], "agent: there is no agent 'defualt'; did you mean 'de"),
    "an unknown tool": ([{"task": "t", "tools": ["lok"]}], "tools: agent 'default' does not list 'lok'; did you mean"),
    "a task next to a bad input": ([{"task": "t", "config": None}, {"task": "t"}], "config: "),
}


async def start(loop: Loop, given: list[Any], name: str) -> WorkflowHandle[Any, Any]:
    return await loop.client.start_workflow(
        "AgentWorkflow",
        args=given,
        id=f"{loop.task_queue}-{name}",
        task_queue=loop.task_queue,
        execution_timeout=EXECUTION_TIMEOUT,
    )


@pytest.mark.parametrize("name", BAD)
async def test_bad_input_fails_the_run_naming_the_key(client: Client, name: str) -> None:
    given, problem = BAD[name]
    provider = ScriptedModel([answers()], repeats=True)
    async with a_loop(client, provider, FakeTool("look")) as loop:
        handle = await start(loop, given, name)
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
        status = await AgentHandle(client, handle.id).status()

    cause = failed.value.cause
    assert isinstance(cause, ApplicationError), cause
    assert status.termination == Termination(reason="error", detail=f"InvalidInput: {cause.message}")
    assert (cause.type, cause.non_retryable) == ("InvalidInput", True)
    assert cause.message.startswith(problem)
    assert len(cause.message) < 2_000
    assert provider.seen == []
    await check_history(client, handle)


async def check_history(client: Client, handle: WorkflowHandle[Any, Any]) -> None:
    history = await handle.fetch_history()
    check_tasks(history)
    await check_replay(history)
    journal = [entry async for entry in read_journal(client, handle.id)]
    check_journal(journal)
    assert journal[-1].data["reason"] == "error"


@pytest.mark.parametrize(
    "second",
    [
        pytest.param("text", id="text"),
        pytest.param({"setup": {"tools": [{"name": "danger"}]}}, id="a made-up state"),
        pytest.param(raw(b"{"), id="broken JSON"),
    ],
)
async def test_a_second_argument_is_ignored(client: Client, second: Any) -> None:
    """The second argument is the state carried by continue-as-new. A starter has none to give."""
    async with a_loop(client, [answers("fine")]) as loop:
        ran = await loop.ended(await start(loop, [{"task": "t"}, second, 3], "beside"))

    assert ran.result.output == "fine"


async def test_an_unknown_model_is_named_before_the_first_call(client: Client) -> None:
    async with a_loop(client, [answers()], check_model=_no_such_provider) as loop:
        handle = await start(loop, [{"task": "t", "model": "acme:gpt"}], "model")
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
        status = await AgentHandle(client, handle.id).status()

    assert status.termination == Termination(reason="error", detail=str(failed.value.cause))
    assert str(failed.value.cause) == "InvalidInput: model: there is no provider 'acme'"
    await check_history(client, handle)


def _no_such_provider(model: str) -> None:
    raise ValueError(f"there is no provider {model.partition(':')[0]!r}")
