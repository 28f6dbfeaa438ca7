"""Refusals of requests that do not fit a model's window: tables of their wordings and of the numbers in them.

Servers count the output limit together with the input. So the same wording has two possible causes: the output limit
is too high, or the conversation is too long. The numbers show which one it is.
"""

import re
from dataclasses import dataclass

_N = r"\d[\d,_]*"

OVERFLOW_WORDINGS = (
    ("OpenAI", r"maximum context length|exceeds? the context window|exceed the configured limit of"),
    ("OpenAI, Groq, Cerebras", r"reduce (?:the length of )?(?:the |your )?(?:messages|prompt|input|conversation)"),
    ("OpenAI, Groq", r"reduce your message size"),
    ("Anthropic", r"prompt is too long|exceeds? context limit|too many total text bytes"),
    ("Anthropic (413)", r"request (?:size )?exceeds (?:the )?(?:maximum (?:allowed )?(?:size|number)|model context)"),
    ("Bedrock", r"input is too long|too many input tokens"),
    ("Gemini", r"input token count .{0,80}exceeds the (?:maximum|limit)|exceeds the maximum number of tokens"),
    ("Gemini", r"input context is too long|request payload size exceeds|request contains \d+ tokens.{0,20}exceeds"),
    ("vLLM", r"longer than the maximum model length|max_model_len"),
    ("OpenRouter", r"exceeds? (?:the )?maximum (?:allowed )?input length"),
    ("xAI", r"maximum prompt length"),
    ("Qwen, DashScope", r"range of input length should be"),
    ("Kimi", r"exceeded model token limit|input token length too long|length of tokens in the request is too long"),
    ("Kimi", r"conversation length exceeded|reached its conversation limit"),
    ("Cohere", r"number of tokens in the prompt cannot exceed|too many tokens: "),
    ("SGLang, Together", r"longer than the model'?s context|exceeds? the maximum allowed (?:input )?length"),
    ("TGI, Together", r"`?inputs`? (?:tokens \+ `max_new_tokens` must be|must have less than)"),
    ("TensorRT-LLM", r"should not exceed max_(?:num_tokens|seq_len|input_len)"),
    ("Volcengine", r"exceed max message tokens"),
    ("Replicate", r"tokens in request more than max tokens allowed"),
    ("MiniMax", r"context window exceeds|tokens? limit exceeded"),
    ("LM Studio", r"greater than the context length|context length of only|context the overflows|context overflow"),
    ("Ollama", r"prompt too long; exceeded|input length exceeds (?:the |maximum )?context"),
    ("llama.cpp", r"exceeds? the available context|context size has been exceeded|n_keep.{0,40}n_ctx"),
    ("llama-cpp-python", r"exceeds? context window of"),
    ("GitHub Models", r"(?:request )?body too large for"),
    ("GitHub Copilot", r"prompt token count of \S+ exceeds the limit"),
    ("Zhipu", r"prompt exceeds max length|Prompt ?超长|输入长度超|上下文.{0,6}超|超出?.{0,4}(?:上下文|最大长度)"),
    ("Mistral", r"too large for model with"),
    ("HTTP (413)", r"(?:payload|request entity|entity|content) too large"),
    ("DS4", r"but the configured context size is"),
    ("several", r"(?:prompt|input|context|message|conversation)(?: length)? (?:is |was )?too (?:long|large)"),
    ("several", r"context (?:length|window|size|limit) (?:was |has been |is )?exceeded"),
    ("several", r"exceed\w* .{0,40}context (?:length|window|size|limit)"),
    ("several", r"(?:greater|longer|larger|more) than (?:the )?(?:model'?s )?max(?:imum)? (?:context|seq)"),
    ("several", r"(?:input|prompt|input and output) tokens?\b.{0,40}exceeds? (?:the |a )?(?:limit|maximum|\d)"),
    ("several", r"prompt exceed\w* the .{0,20}(?:limit|maximum)"),
    ("several", r"context (?:length|window) (?:of|is) .{0,20}tokens.{0,40}(?:requested|exceed|resulted)"),
    ("several", r"(?:prompt|request|input) (?:has|contains) .{0,20}too many tokens|too many (?:input )?tokens in"),
)  # fmt: skip
"""Provider and regular expression. Letter case is ignored. The sources are the providers' documentation, public issues,
and the tables of other clients."""

OVERFLOW_CODES = frozenset(
    {
        "context_length_exceeded",  # OpenAI and compatible servers
        "model_context_window_exceeded",  # z.ai
        "context_window_exceeded",
        "exceed_context_size_error",  # llama.cpp
        "request_too_large",  # Anthropic, 413
        "tokens_limit_reached",  # GitHub Models, 413
        "model_max_prompt_tokens_exceeded",  # GitHub Copilot
        "input_too_long",
        "prompt_too_long",
        "1261",  # Zhipu
    }
)
"""Codes and types of refusals with the same meaning."""

_NUMBERS = (
    ("Anthropic", rf"(?P<input>{_N}) \+ (?P<output>{_N}) > (?P<window>{_N})"),
    ("vLLM", rf"length is (?P<window>{_N}) tokens and your request has (?P<input>{_N}) input tokens"),
    (
        "vLLM",
        rf"length is (?P<window>{_N}) tokens.{{0,20}}requested (?P<output>{_N}) output tokens and your prompt contains "
        rf"(?P<least>at least )?(?P<input>{_N}) input tokens",
    ),
    ("vLLM", rf"length is (?P<window>{_N}) tokens.{{0,20}}your request has (?P<input>{_N}) input tokens"),
    ("vLLM", rf"max_model_len(?:=\w+)*=(?P<window>{_N})"),
    (
        "OpenAI, OpenRouter, DeepSeek",
        rf"length is (?P<window>{_N}) tokens.{{0,20}}requested (?:about )?(?P<total>{_N}) tokens "
        rf"\([^)]*?(?P<output>{_N}) (?:in|for|of) the (?:completion|output)",
    ),
    ("OpenAI", rf"length is (?P<window>{_N}) tokens.{{0,40}}resulted in (?P<input>{_N}) tokens"),
    ("OpenAI", rf"limit of (?P<window>{_N}) tokens.{{0,40}}resulted in (?P<input>{_N}) tokens"),
    ("several", rf"length is (?P<window>{_N}) tokens.{{0,30}}requested (?:about )?(?P<total>{_N}) tokens"),
    (
        "SGLang",
        rf"length of (?P<window>{_N}) tokens.{{0,40}}total of (?P<total>{_N}) tokens: (?P<input>{_N}) tokens from",
    ),
    ("TGI, Together", rf"must be <= (?P<window>{_N})\. Given: (?P<input>{_N}) `inputs` tokens and (?P<output>{_N})"),
    ("TGI", rf"less than (?P<window>{_N}) tokens\. Given: (?P<input>{_N})"),
    ("SGLang, Together", rf"input \((?P<input>{_N}) tokens\) is longer than .{{0,30}}\((?P<window>{_N}) tokens"),
    ("SGLang", rf"input length \((?P<input>{_N})(?: tokens)?\) exceeds .{{0,40}}\((?P<window>{_N})"),
    ("vLLM", rf"\(length (?P<input>{_N})\) is longer than the maximum model length of (?P<window>{_N})"),
    ("llama.cpp", rf"request \((?P<input>{_N}) tokens\) exceeds the available context size \((?P<window>{_N})"),
    ("llama-cpp-python", rf"tokens \((?P<input>{_N})\) exceed context window of (?P<window>{_N})"),
    ("Cerebras", rf"current length is (?P<total>{_N}) while limit is (?P<window>{_N})"),
    ("Gemini", rf"token count .{{0,10}}?(?P<input>{_N})\)? exceeds .{{0,60}}\((?P<window>{_N})"),
    ("Anthropic", rf"too long: (?P<input>{_N}) tokens > (?P<window>{_N})"),
    ("Fireworks", rf"too long: (?P<input>{_N}), .{{0,20}}context length: (?P<window>{_N})"),
    ("xAI", rf"prompt length is (?P<window>{_N}) but the request contains (?P<input>{_N})"),
    ("GitHub Copilot", rf"token count of (?P<input>{_N}) exceeds the limit of (?P<window>{_N})"),
    ("Kimi", rf"model token limit: (?P<window>{_N})(?: \(requested: (?P<total>{_N})\))?"),
    ("Mistral", rf"contains (?P<input>{_N}) tokens.{{0,60}}model with (?P<window>{_N})"),
    ("DS4", rf"prompt has (?P<input>{_N}) tokens?, but the configured context size is (?P<window>{_N})"),
    ("OpenAI, Groq (tokens per minute)", rf"limit:? (?P<window>{_N}), (?:used \d+, )?requested:? (?P<total>{_N})"),
    ("Cohere", rf"cannot exceed (?P<window>{_N}) - received (?P<input>{_N})"),
    ("LM Studio", rf"keep the first (?P<input>{_N}) tokens.{{0,120}}length of only (?P<window>{_N})"),
    ("several", rf"context (?:length|window|size|limit) (?:is |of |is only |of only )?\(?(?P<window>{_N})"),
)
"""Provider and regular expression for the numbers. The first match counts. `total`: input and output together."""

_OVERFLOW = re.compile("|".join(f"(?:{pattern})" for _, pattern in OVERFLOW_WORDINGS), re.IGNORECASE)
_PATTERNS = tuple(re.compile(pattern, re.IGNORECASE) for _, pattern in _NUMBERS)
_RATE_LIMIT = re.compile(
    r"rate.?limit|too many requests|please wait|per (?:minute|hour|day)|per-model limit|quota", re.IGNORECASE
)
_REQUEST_OVER_RATE = re.compile(r"request too large for .{0,200}tokens per min", re.IGNORECASE)
"""A single request above a limit per minute. Waiting does not help, but a smaller request does."""


def is_overflow(message: str, code: str = "") -> bool:
    """Return whether a refusal means that the request does not fit the model's window."""
    if _REQUEST_OVER_RATE.search(message):
        return True
    return code in OVERFLOW_CODES or (_OVERFLOW.search(message) is not None and _RATE_LIMIT.search(message) is None)


@dataclass(frozen=True)
class StatedTokens:
    """The numbers of a refusal, in tokens. None means that it does not state one."""

    window: int | None = None
    used: int | None = None
    """Tokens of the input, without the output limit."""
    is_exact: bool = True
    """False if `used` is only a lower bound."""


def stated_tokens(message: str, output_limit: int) -> StatedTokens:
    """Return the numbers of a refusal.

    Args:
        output_limit: The requested output limit, which a total may include.
    """
    found = next((match for pattern in _PATTERNS if (match := pattern.search(message))), None)
    if found is None:
        return StatedTokens()
    groups = found.groupdict()
    numbers = {name: int(re.sub(r"\D", "", text)) for name, text in groups.items() if text and text[0].isdigit()}
    total, output = numbers.get("total"), numbers.get("output", output_limit)
    used = numbers.get("input")
    if used is None and total is not None:
        used = total - output if total > output else total
    return StatedTokens(numbers.get("window"), used, not groups.get("least"))
