"""The scripted model of `orga`, instead of a provider."""

from errand import next_payment

from orga.client.config.sections import OrgaConfig
from orga.client.testing.environment import PluginUnderTest
from orga.client.testing.script import ScriptedModels, answers, calls


class Scripted:
    async def complete(self, request, on_text):
        prompt = next(message.text for message in request.messages if message.role == "user")
        number = next_payment(prompt, sum(message.role == "tool" for message in request.messages))
        return answers("All paid.") if number is None else calls("pay", number=number)


def plugin_of(agent):
    return PluginUnderTest(ScriptedModels(Scripted()), [], agents=[agent], config=OrgaConfig())
