"""An unusable reply gets feedback a limited number of times. Then the run ends and says why."""

from collections.abc import Sequence

import pytest
from temporalio.client import Client

from orga.activities.adapters.models.kept_fields import block_part
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.messages import Reply
from orga.workflows.types.models.usage import Usage
from tests.support.runs.loop import Deny, a_loop

BLANK = answers("")
REFUSAL = answers("I will not", finish="refusal")
FILTERED = answers("", finish="content_filter")
CUT_CALLS = calls("look").model_copy(update={"finish": "length"})

UNUSABLE = [
    pytest.param(BLANK, "blank reply: the model returned neither text nor a tool call, again and again", id="blank"),
    pytest.param(answers(" \n\t"), "blank reply", id="white space"),
    pytest.param(REFUSAL, "refusal: the model declined: I will not", id="refusal"),
    pytest.param(FILTERED, "content filter: the provider withheld the model's reply", id="content filter"),
    pytest.param(calls("look").model_copy(update={"finish": "refusal"}), "refusal", id="refusing calls"),
    pytest.param(CUT_CALLS, "truncated tool call", id="truncated tool call"),
]


@pytest.mark.parametrize(("reply", "detail"), UNUSABLE)
async def test_repeated_unusable_replies_end_the_run_with_their_cause(
    client: Client, reply: Reply, detail: str
) -> None:
    provider, tool = ScriptedModel([reply], repeats=True), FakeTool("look")
    async with a_loop(client, provider, tool) as loop:
        ran = await loop.run()

    assert (ran.result.termination.reason, len(provider.seen)) == ("error", 3)
    assert ran.result.termination.detail.startswith(detail)
    assert (ran.result.output, ran.result.usage.total_tokens, tool.contexts) == ("", 330, [])


@pytest.mark.parametrize(("reply", "detail"), UNUSABLE)
async def test_one_unusable_reply_is_repaired_with_feedback(client: Client, reply: Reply, detail: str) -> None:
    provider = ScriptedModel([reply, answers("there")], repeats=True)
    async with a_loop(client, provider, FakeTool("look")) as loop:
        ran = await loop.run()

    assert (ran.result.termination.reason, ran.result.output) == ("completed", "there")
    feedback = provider.seen[1].messages[-1]
    assert feedback.role == "user"
    assert feedback.text.startswith("[Reply not usable] ")
    check_pairs(provider)


async def test_a_usable_reply_resets_the_count(client: Client) -> None:
    steps = [BLANK, BLANK, calls("look"), BLANK, BLANK, answers("there")]
    async with a_loop(client, steps, FakeTool("look")) as loop:
        ran = await loop.run()

    assert ran.result.output == "there"


def only_thinking(tokens: int) -> Reply:
    thought = block_part({"type": "thinking", "thinking": "hm"})
    usage = Usage(input_tokens=10, output_tokens=tokens, thinking_tokens=tokens)
    return Reply.of(blocks=(thought,), finish="length", usage=usage)


async def test_a_reply_of_only_thinking_is_never_asked_for_again_unchanged(client: Client) -> None:
    provider = ScriptedModel([only_thinking(1_000), only_thinking(2_000), calls("look"), answers("done")])
    async with a_loop(client, provider, FakeTool("look")) as loop:
        ran = await loop.run(max_output_tokens=1_000, effort="high")

    asked = [(request.max_output_tokens, request.settings.effort) for request in provider.seen]
    assert asked == [(1_000, "high"), (2_000, "high"), (4_000, "low"), (1_000, "high")]
    assert (ran.result.output, ran.result.usage.thinking_tokens) == ("done", 3_000)
    assert "only thinking" in provider.seen[1].messages[-1].text


async def test_a_model_at_its_own_output_limit_thinks_less_instead(client: Client) -> None:
    provider = ScriptedModel([only_thinking(500)], repeats=True)
    async with a_loop(client, provider, FakeTool("look")) as loop:
        ran = await loop.run(max_output_tokens=1_000)

    asked = [(request.max_output_tokens, request.settings.effort) for request in provider.seen]
    assert asked == [(1_000, None), (4_000, "low"), (4_000, "none")]
    assert ran.result.termination.reason == "error"
    assert "raise max_output_tokens, or set a lower effort" in ran.result.termination.detail


async def test_each_call_of_a_truncated_reply_is_answered(client: Client) -> None:
    cut = calls("look", "look", reply_text="I loo").model_copy(update={"finish": "length"})
    provider = ScriptedModel([cut, answers()], repeats=True)
    async with a_loop(client, provider, FakeTool("look")) as loop:
        await loop.run()

    assert [(m.role, m.call_id) for m in provider.seen[1].messages[1:4]] == [
        ("assistant", None),
        ("tool", "look_0"),
        ("tool", "look_1"),
    ]


@pytest.mark.parametrize(
    ("texts", "output"),
    [
        pytest.param(["one, ", "two."], "one, two.", id="cut once"),
        pytest.param(["one, ", "two, ", "three."], "one, two, three.", id="cut twice"),
    ],
)
async def test_truncated_text_is_continued_and_joined(client: Client, texts: Sequence[str], output: str) -> None:
    steps = [*(answers(text, finish="length") for text in texts[:-1]), answers(texts[-1])]
    provider = ScriptedModel(steps, repeats=True)
    async with a_loop(client, provider) as loop:
        ran = await loop.run()

    assert (ran.result.termination.reason, ran.result.output) == ("completed", output)
    assert ran.result.termination.detail == ""
    assert [m.text for m in provider.seen[1].messages if m.role == "assistant"] == [texts[0]]


async def test_text_truncated_too_often_is_returned_with_a_remark(client: Client) -> None:
    async with a_loop(client, [answers("and ", finish="length")]) as loop:
        ran = await loop.run()

    assert (ran.result.termination.reason, ran.result.output) == ("completed", "and and and ")
    assert ran.result.termination.detail == "the answer is cut at the output limit"


async def test_the_gate_judges_a_continued_answer_as_a_whole(client: Client) -> None:
    """Otherwise a forbidden word could arrive in two halves."""
    provider = ScriptedModel([answers("the sec", finish="length"), answers("ret"), answers("nothing")], repeats=True)
    async with a_loop(client, provider, engine=Deny(words=["secret"])) as loop:
        ran = await loop.run()

    assert ran.result.output == "nothing"
    assert ran.result.termination.reason == "completed"


async def test_text_next_to_calls_and_opaque_blocks_are_sent_back(client: Client) -> None:
    """Providers reject a thinking turn whose signed blocks are missing."""
    thinking = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    blocks = (block_part(thinking), block_part({"type": "x", "deep": [{"a": [1, None]}]}))
    asks = Reply.of("I look.", calls=calls("look").calls, blocks=blocks, finish="tool_calls")
    provider = ScriptedModel([asks, answers("found", blocks=blocks)], repeats=True)
    async with a_loop(client, provider, FakeTool("look")) as loop:
        await loop.run()

    sent = provider.seen[1].messages[1]
    assert (sent.text, sent.blocks, [call.name for call in sent.calls]) == ("I look.", blocks, ["look"])


async def test_usage_of_unusable_replies_counts(client: Client) -> None:
    async with a_loop(client, [REFUSAL]) as loop:
        ran = await loop.run(max_total_tokens=150)

    assert (ran.result.termination.reason, ran.result.usage.total_tokens) == ("max_tokens", 220)


def check_pairs(provider: ScriptedModel) -> None:
    """Assert that every call is answered once, in order and directly after it, in all requests."""
    for request in provider.seen:
        waiting: list[str] = []
        for message in request.messages:
            if message.role == "tool":
                assert message.call_id == waiting.pop(0)
            else:
                assert waiting == []
                waiting = [call.call_id for call in message.calls]
        assert waiting == []
