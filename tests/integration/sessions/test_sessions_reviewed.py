"""A critic of a session's answer sees the message that it answers, and no message of an earlier turn."""

from temporalio.client import Client

from orga.testing import ScriptedModel, answers
from tests.support.runs.critics import BAD, a_critic, agents_with_critics, is_review, verdict
from tests.support.runs.loop import a_loop
from tests.support.runs.sessions import begin, close_session, turn_summary


async def test_a_critic_reads_the_message_that_the_answer_is_to(client: Client) -> None:
    provider = ScriptedModel([answers("one"), verdict(), answers("2"), BAD, answers("two"), verdict()], repeats=True)
    async with a_loop(client, provider, agents=agents_with_critics(a_critic())) as loop:
        session = await begin(loop)
        assert turn_summary(await session.send("what is the first number?")) == (1, "one", "completed")
        assert turn_summary(await session.send("and which one is next?")) == (2, "two", "completed")
        await close_session(session)
    given = [request.messages[0].text for request in provider.given if is_review(request)]
    assert [("the first number?" in text, "which one is next?" in text) for text in given] == [
        (True, False),
        (False, True),
        (False, True),
    ]
