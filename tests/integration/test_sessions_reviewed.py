"""A critic of a session's answers sees what they answer: the message of the turn, and no message of a turn before."""

from temporalio.client import Client

from orga.testing import ScriptedModel, answers
from tests.support.runs.critics import BAD, a_critic, criticised, is_review, verdict
from tests.support.runs.loop import a_loop
from tests.support.runs.sessions import begin, closed, how


async def test_a_critic_reads_the_message_that_the_answer_is_to(client: Client) -> None:
    provider = ScriptedModel([answers("one"), verdict(), answers("2"), BAD, answers("two"), verdict()], repeats=True)
    async with a_loop(client, provider, agents=criticised(a_critic())) as loop:
        session = await begin(loop)
        assert how(await session.send("what is the first number?")) == (1, "one", "completed")
        assert how(await session.send("and which one is next?")) == (2, "two", "completed")
        await closed(session)
    given = [request.messages[0].text for request in provider.given if is_review(request)]
    assert [("the first number?" in text, "which one is next?" in text) for text in given] == [
        (True, False),
        (False, True),
        (False, True),
    ]
