"""The scripted model of Pydantic AI."""

from errand import next_payment
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel


def _reply(messages, info):
    parts = [part for message in messages for part in message.parts]
    prompt = next(part.content for part in parts if part.part_kind == "user-prompt")
    number = next_payment(prompt, sum(part.part_kind == "tool-return" for part in parts))
    if number is None:
        return ModelResponse(parts=[TextPart("All paid.")])
    return ModelResponse(parts=[ToolCallPart("pay", {"number": number}, tool_call_id=f"call_{number}")])


MODEL = FunctionModel(_reply)
