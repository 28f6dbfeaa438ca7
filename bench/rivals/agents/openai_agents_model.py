"""The scripted model of the OpenAI Agents SDK."""

import json

from agents import Model, set_tracing_disabled
from errand import next_payment
from temporalio.openai_agents.testing import ResponseBuilders, TestModelProvider

set_tracing_disabled(True)


class Scripted(Model):
    async def get_response(self, system_instructions, input, *args, **kwargs):
        items = [input] if isinstance(input, str) else input
        prompt = items[0] if isinstance(items[0], str) else items[0]["content"]
        paid = sum(isinstance(item, dict) and item.get("type") == "function_call_output" for item in items)
        number = next_payment(prompt, paid)
        if number is None:
            return ResponseBuilders.output_message("All paid.")
        arguments = json.dumps({"number": number})
        return ResponseBuilders.tool_call(arguments, "pay", call_id=f"call_{number}", item_id=f"item_{number}")

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError


PROVIDER = TestModelProvider(Scripted())
