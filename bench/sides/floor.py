"""The floor: the smallest workflow that a careful person would write by hand for the same work.

It has no gate, limits, signals or context: a model and a tool activity per iteration, with inputs of constant size.
With `phases` it has the same activities as ours: one that prepares, and a local one as the gate of each call.
"""

from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.common import RetryPolicy

TIMEOUT = timedelta(seconds=30)
HEARTBEAT_TIMEOUT = timedelta(seconds=10)


@workflow.defn(name="Floor")
class Floor:
    """Uses plain JSON without validation. The result is the model's text, because it never gives a final answer."""

    @workflow.run
    async def run(self, iterations: int, tools_digest: str, phases: bool = False) -> str:
        conversation = str(workflow.uuid4())
        texts: list[str] = []
        retry = RetryPolicy(maximum_attempts=3)
        if phases:
            await workflow.execute_activity("prepare", tools_digest, start_to_close_timeout=TIMEOUT, retry_policy=retry)
        for iteration in range(1, iterations + 1):
            asked = {
                "conversation": conversation,
                "length": 2 * iteration - 1,
                "tools": tools_digest,
                "model": "scripted:bench",
                "temperature": 0.3,
                "max_output_tokens": 16_384,
                "iteration": iteration,
            }
            reply: dict[str, Any] = await workflow.execute_activity(
                "model",
                asked,
                start_to_close_timeout=TIMEOUT,
                heartbeat_timeout=HEARTBEAT_TIMEOUT,
                retry_policy=retry,
            )
            texts += [part["text"] for part in reply["parts"] if part.get("kind") == "text"]
            for call in (part for part in reply["parts"] if "call_id" in part):
                if phases:
                    await workflow.execute_local_activity(
                        "gate", call, start_to_close_timeout=TIMEOUT, retry_policy=retry
                    )
                await workflow.execute_activity(
                    call["name"],
                    {
                        "call_id": call["call_id"],
                        "arguments": call["arguments"],
                        "idempotency_key": str(workflow.uuid4()),
                    },
                    start_to_close_timeout=TIMEOUT,
                    heartbeat_timeout=HEARTBEAT_TIMEOUT,
                    retry_policy=retry,
                )
        return "\n\n".join(texts)


class FloorActivities:
    """A model and a tool that answer at once, and two phases that return their input."""

    def __init__(self, next_reply: Any, result: str) -> None:
        """Keep the function that gives the next reply as JSON, and the tool's result."""
        self._next_reply = next_reply
        self._result = result

    @activity.defn(name="model")
    async def model(self, asked: dict[str, Any]) -> dict[str, Any]:
        return self._next_reply()

    @activity.defn(name="read_file")
    async def read_file(self, request: dict[str, Any]) -> str:
        return self._result

    @activity.defn(name="prepare")
    async def prepare(self, given: Any) -> Any:
        return given

    @activity.defn(name="gate")
    async def gate(self, given: Any) -> Any:
        return given
