"""Providers reject a request that does not fit: first the output limit shrinks, only then the conversation.

The sentences are quoted from the providers' documentation and from public reports.
"""

from collections.abc import Callable

import pytest

from orga.activities.adapters import http
from orga.activities.adapters.models.overflow import StatedTokens, is_overflow, stated_tokens
from orga.activities.ports import ModelError
from orga.workflows.types.messages import Message
from tests.support.model.providers import (
    Network,
    a_request,
    chunk,
    provider,
    stream_response,
    text_response,
)

OVERFLOWS = {
    "OpenAI": "This model's maximum context length is 128000 tokens. However, your messages resulted in 249114 tokens.",
    "OpenAI, with its output": "This model's maximum context length is 8191 tokens, however you requested 10346 tokens "
    "(10341 in your prompt; 5 for the completion). Please reduce your prompt; or completion length.",
    "OpenAI Responses": "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "OpenAI GPT-5": "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in "
    "509178 tokens.",
    "OpenAI, per minute": "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, "
    "Requested 45000. The input or output tokens must be reduced in order to run successfully.",
    "Anthropic": "prompt is too long: 213462 tokens > 200000 maximum",
    "Anthropic, with its output": "input length and `max_tokens` exceed context limit: 198157 + 21333 > 200000",
    "Anthropic 413": "Request exceeds the maximum size",
    "Bedrock": "Input is too long for requested model.",
    "Gemini": "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
    "Gemini, shorter": "Request contains 35000 tokens, which exceeds the limit of 32768",
    "vLLM": "'max_tokens' or 'max_completion_tokens' is too large: 16384. This model's maximum context length is 65536 "
    "tokens and your request has 54128 input tokens (16384 > 65536 - 54128).",
    "vLLM, newer": "This model's maximum context length is 8192 tokens. However, you requested 4096 output tokens and "
    "your prompt contains at least 4097 input tokens, for a total of at least 8193 tokens.",
    "vLLM, engine": "The decoder prompt (length 9001) is longer than the maximum model length of 8192.",
    "OpenRouter": "This endpoint's maximum context length is 8192 tokens. However, you requested about 20000 tokens "
    "(3516 of text input, 100 of tool input, 16384 in the output). Please reduce the length of either one.",
    "OpenRouter, Poolside": "Input length 140000 exceeds the maximum allowed input length of 131072 tokens.",
    "Groq": "Please reduce the length of the messages or completion.",
    "Groq 413": "Request too large for model `llama-3.1-8b-instant` in organization `org_x` service tier "
    "`on_demand` on "
    "tokens per minute (TPM): Limit 6000, Requested 9000, please reduce your message size and try again.",
    "Cerebras": "Please reduce the length of the messages or completion. Current length is 9100 while limit is 8192",
    "xAI": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "Qwen": "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]",
    "Kimi": "Invalid request: Your request exceeded model token limit: 262144 (requested: 291351)",
    "Kimi, older": "Input token length too long",
    "Cohere": "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 7000.",
    "SGLang": "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
    "SGLang, with its output": "Requested token count exceeds the model's maximum context length of 8192 tokens. You "
    "requested a total of 20000 tokens: 3616 tokens from the input messages and 16384 tokens for the completion.",
    "SGLang, server": "Input length (9000 tokens) exceeds the maximum allowed length (8186 tokens).",
    "TGI": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8192. Given: 3616 `inputs` "
    "tokens and "
    "16384 `max_new_tokens`",
    "TGI, input": "Input validation error: `inputs` must have less than 4095 tokens. Given: 5000",
    "Together": "The input (140000 tokens) is longer than the model's context length (131073 tokens).",
    "MiniMax": "invalid params, context window exceeds limit (2013)",
    "LM Studio": "The number of tokens to keep from the initial prompt is greater than the context length.",
    "LM Studio, longer": "Trying to keep the first 5130 tokens when context the overflows. However, the model "
    "is loaded "
    "with context length of only 4096 tokens, which is not enough.",
    "Ollama": "prompt too long; exceeded max context length by 12 tokens",
    "Ollama, input": "input length exceeds maximum context length",
    "llama.cpp": "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it",
    "llama.cpp, older": "the request exceeds the available context size. try increasing the context size",
    "llama.cpp, late": "Context size has been exceeded.",
    "llama-cpp-python": "Requested tokens (2285) exceed context window of 2048",
    "GitHub Models": "Request body too large for gpt-4o model. Max size: 8000 tokens.",
    "Copilot": "prompt token count of 51808 exceeds the limit of 12288",
    "Zhipu": "Prompt exceeds max length",
    "Zhipu, Chinese": "Prompt 超长",
    "Mistral": "Prompt contains 65673 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    "Fireworks": "The prompt is too long: 150000, model maximum context length: 131072",
    "Azure": "This model's maximum context length is 8192 tokens, however you requested 9000 tokens (8000 in "
    "your prompt; "
    "1000 for the completion). Please reduce your prompt; or completion length.",
    "DeepSeek": "This model's maximum context length is 65536 tokens. However, you requested 73149 tokens "
    "(65000 in the "
    "messages, 8149 in the completion). Please reduce the length of the messages or completion.",
    "LiteLLM": "ContextWindowExceededError: Requested token count exceeds the model's maximum context length of "
    "131072.",
    "TensorRT-LLM": "The sum of prompt length (9000.0), query length (0) should not exceed max_num_tokens (8192)",
    "Volcengine": "Total tokens of image and text exceed max message tokens",
    "Replicate": "tokens in request more than max tokens allowed",
    "TGI, without marks": "Input validation error: inputs must have less than 4095 tokens. Given: 5000",
    "both in one sum": "prompt_tokens (1055) + max_tokens (16384) is greater than the maximum context (8192)",
    "a sum that has a limit": "The total length of input and output tokens must not exceed 32768",
    "a number of input tokens": "The number of input tokens 9000 exceeds the limit 8192",
    "a sequence": "Prompt is longer than max seq len",
    "a limit of the prompt": "Prompt exceeded the maximum token limit",
    "a proxy": "413 Request Entity Too Large",
    "a window in a sentence": "Model context window is 128k tokens, you requested 256k tokens",
}  # fmt: skip


@pytest.mark.parametrize("text", OVERFLOWS.values(), ids=OVERFLOWS)
def test_every_known_wording_is_recognised(text: str) -> None:
    assert is_overflow(text)
    assert is_overflow(text.upper())
    assert is_overflow(f"Error from the upstream provider: {{{text!r}}}")


@pytest.mark.parametrize(
    "code",
    [
        "context_length_exceeded",
        "tokens_limit_reached",
        "model_max_prompt_tokens_exceeded",
        "exceed_context_size_error",
    ],
)
def test_an_error_code_is_enough_without_known_words(code: str) -> None:
    assert is_overflow("Bad request", code)


@pytest.mark.parametrize(
    "text",
    [
        "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000. Please "
        "try again.",
        "Too many tokens, please wait before trying again.",
        "Number of request tokens has exceeded your per-model limit",
        "input token limit exceeded for this minute: too many requests",
        "This request would exceed your account's rate limit",
        "You exceeded your current quota",
        "`max_tokens` must be less than or equal to `8192`, the maximum value is less than the `context_window`",
        "The number of output tokens 16384 exceeds the maximum of this model: at most 4096",
        "max_tokens is too large: 16384. This model supports at most 4096 completion tokens.",
        "Invalid 'tools[0].function.description': string too long. Expected a string with maximum length 1024.",
        "Invalid 'messages[0].content': expected a string",
        "The server had an error while processing your request",
    ],
)
def test_other_refusals_are_not_an_overflow(text: str) -> None:
    assert not is_overflow(text)


@pytest.mark.parametrize(
    ("source", "window", "used"),
    [
        ("OpenAI", 128_000, 249_114),
        ("OpenAI, with its output", 8_191, 10_341),
        ("OpenAI, per minute", 30_000, 45_000 - 16_384),
        ("Anthropic", 200_000, 213_462),
        ("Anthropic, with its output", 200_000, 198_157),
        ("Gemini", 1_048_575, 1_196_265),
        ("vLLM", 65_536, 54_128),
        ("vLLM, engine", 8_192, 9_001),
        ("OpenRouter", 8_192, 3_616),
        ("Cerebras", 8_192, 9_100),
        ("xAI", 131_072, 537_812),
        ("Kimi", 262_144, 291_351 - 16_384),
        ("Cohere", 4_081, 7_000),
        ("SGLang", 8_192, 9_000),
        ("SGLang, with its output", 8_192, 3_616),
        ("SGLang, server", 8_186, 9_000),
        ("TGI", 8_192, 3_616),
        ("TGI, input", 4_095, 5_000),
        ("LM Studio, longer", 4_096, 5_130),
        ("llama.cpp", 8_192, 9_000),
        ("llama-cpp-python", 2_048, 2_285),
        ("Copilot", 12_288, 51_808),
        ("Mistral", 32_768, 65_673),
        ("Fireworks", 131_072, 150_000),
        ("DeepSeek", 65_536, 65_000),
        ("Zhipu", None, None),
        ("Groq", None, None),
    ],
)
def test_the_stated_token_counts_are_read(source: str, window: int | None, used: int | None) -> None:
    assert stated_tokens(OVERFLOWS[source], output_limit=16_384) == StatedTokens(window, used)


def test_a_lower_bound_is_not_an_exact_count() -> None:
    assert stated_tokens(OVERFLOWS["vLLM, newer"], output_limit=4_096) == StatedTokens(8_192, 4_097, is_exact=False)


WINDOW, BYTES_PER_TOKEN = 8_192, 4


def windowed(words: str, kind: str = "openai") -> tuple[Callable[[http.Request], http.Response], list[int]]:
    """Return a server with a window of 8k that counts the output limit together with the input."""

    def server(request: http.Request) -> http.Response:
        body = request.read().decode()
        limit = int(body.partition('"max_tokens":')[2].partition(",")[0].strip("} "))
        used = (len(body) - 100) // BYTES_PER_TOKEN
        limits.append(limit)
        if used + limit > WINDOW:
            text = words.format(window=WINDOW, used=used, limit=limit, total=used + limit)
            return http.Response(400, json={"error": {"type": "invalid_request_error", "message": text}})
        return text_response(kind)

    limits: list[int] = []
    return server, limits


def conversation(size: int) -> tuple[Message, ...]:
    words = "one two three four five six seven eight nine ten eleven twelve "
    return (Message.of("user", (words * size)[: size * BYTES_PER_TOKEN]),)


STATED = {
    "OpenAI, with its output": "This model's maximum context length is {window} tokens, however you requested {total} "
    "tokens ({used} in your prompt; {limit} for the completion). Please reduce your prompt; or completion length.",
    "vLLM": "'max_tokens' or 'max_completion_tokens' is too large: {limit}. This model's maximum context length is "
    "{window} tokens and your request has {used} input tokens ({limit} > {window} - {used}).",
    "vLLM, a lower bound": "This model's maximum context length is {window} tokens. However, you requested "
    "{limit} output "
    "tokens and your prompt contains at least 1 input tokens, for a total of at least {window} tokens.",
    "vLLM, the window alone": "max_tokens={limit} cannot be greater than "
    "max_model_len=max_total_tokens={window}. Please "
    "request fewer output tokens.",
    "Anthropic": "input length and `max_tokens` exceed context limit: {used} + {limit} > {window}",
    "OpenRouter": "This endpoint's maximum context length is {window} tokens. However, you requested about "
    "{total} tokens "
    "({used} of text input, 0 of tool input, {limit} in the output).",
    "SGLang": "Requested token count exceeds the model's maximum context length of {window} tokens. You "
    "requested a total "
    "of {total} tokens: {used} tokens from the input messages and {limit} tokens for the completion.",
    "TGI": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= {window}. Given: {used} "
    "`inputs` tokens "
    "and {limit} `max_new_tokens`",
    "Groq, per minute": "Request too large for model `x` on tokens per minute (TPM): Limit {window}, Requested "
    "{total}, "
    "please reduce your message size and try again.",
    "Cerebras": "Please reduce the length of the messages or completion. Current length is {total} while limit "
    "is {window}",
    "Kimi": "Invalid request: Your request exceeded model token limit: {window} (requested: {total})",
    "a total without its parts": "This model's maximum context length is {window} tokens. However, you "
    "requested {total} "
    "tokens. Please reduce the length of the messages.",
}  # fmt: skip


@pytest.mark.parametrize("kind", ["openai-compatible", "anthropic"])
@pytest.mark.parametrize("words", STATED.values(), ids=STATED)
async def test_the_output_limit_is_lowered_to_the_free_room_and_remembered(words: str, kind: str) -> None:
    server, limits = windowed(words, kind)
    model = provider(kind, server)
    refused: list[int] = []
    for size in (3_000, 3_000, 3_600):  # a conversation grows
        request = a_request(messages=conversation(size), max_output_tokens=16_384)
        assert (await model.complete(request, lambda text: None)).text == "hi"
        refused.append(len(limits) - len(refused) - 1)
    await model.close()
    assert limits[0] == 16_384
    assert 1 <= refused[0] <= 2
    assert refused[1:] == [refused[0]] * 2, "no further refusal"
    assert 0.6 * (WINDOW - 3_600) < limits[-1] < limits[-2] <= WINDOW - 3_000


@pytest.mark.parametrize(
    "words", [OVERFLOWS[name] for name in ("Groq", "MiniMax", "Zhipu", "OpenAI Responses", "Ollama")]
)
async def test_without_token_counts_a_smaller_limit_is_tried(words: str) -> None:
    server, limits = windowed(words)
    model = provider("openai-compatible", server)
    for _ in range(2):
        request = a_request(messages=conversation(3_000), max_output_tokens=16_384)
        assert (await model.complete(request, lambda text: None)).text == "hi"
    await model.close()
    assert limits == [16_384, 4_096, 4_096]


@pytest.mark.parametrize("words", [*STATED.values(), *(OVERFLOWS[name] for name in ("Groq", "MiniMax", "Anthropic"))])
async def test_a_conversation_that_is_too_long_is_reported_and_does_not_change_the_limit(words: str) -> None:
    """The loop then shortens the conversation. The next request gets its whole output limit."""
    server, limits = windowed(words)
    model = provider("openai-compatible", server)
    with pytest.raises(ModelError) as caught:
        await model.complete(a_request(messages=conversation(9_000), max_output_tokens=4_000), lambda text: None)
    await model.complete(a_request(messages=conversation(2_000), max_output_tokens=4_000), lambda text: None)
    await model.close()
    assert (caught.value.kind, caught.value.retryable) == ("ContextOverflow", False)
    assert limits[-1] == 4_000
    assert len(limits) <= 5


async def test_a_small_output_limit_is_not_lowered_further() -> None:
    network = Network([http.Response(400, json={"error": {"message": OVERFLOWS["Groq"]}})])
    model = provider("openai", network)
    with pytest.raises(ModelError):
        await model.complete(a_request(max_output_tokens=600), lambda text: None)
    await model.close()
    assert len(network.requests) == 1


@pytest.mark.parametrize(
    ("refusal", "limit"),
    [
        pytest.param("Range of max_tokens should be [1, 8192]", 8_192, id="DashScope"),
        pytest.param(
            "Unable to submit request because it has a maxOutputTokens value of 16384 but the supported range "
            "is from 1 "
            "(inclusive) to 8193 (exclusive). Update the value and try again.",
            8_192,
            id="Vertex",
        ),
        pytest.param(
            "The maximum tokens you requested exceeds the model limit of 4096. Try again with a maximum tokens "
            "value that "
            "is lower than 4096.",
            4_096,
            id="Bedrock",
        ),
        pytest.param("max_tokens must not exceed 2048", 2_048, id="a plain sentence"),
        pytest.param("`max_completion_tokens` must be <= 32000 for this tier, up to 1000 now", 1_000, id="the lowest"),
    ],
)
async def test_a_ceiling_of_the_model_is_not_an_overflow(refusal: str, limit: int) -> None:
    network = Network(
        [http.Response(400, json={"error": {"message": refusal}}), stream_response(chunk("stop", content="hi"))]
    )
    model = provider("openai-compatible", network)
    await model.complete(a_request(max_output_tokens=16_384), lambda text: None)
    await model.close()
    assert [network.body(index)["max_tokens"] for index in range(2)] == [16_384, limit]
