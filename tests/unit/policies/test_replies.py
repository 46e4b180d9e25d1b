"""Replies of chat servers: texts in any form, errors in any server's words. "before": already read correctly."""

from __future__ import annotations

from typing import Any

import pytest

from hgpo.policies.replies import (
    MAX_ERROR_CHARACTERS,
    called_functions,
    error_of,
    name_of,
    read_error,
    text_of,
    token_count,
)

PARTS = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "Action: look"}]


@pytest.mark.parametrize(
    ("message", "text"),
    [
        pytest.param({"content": "Action: look"}, "Action: look", id="text: before"),
        pytest.param(
            {"content": [{"type": "text", "text": "Action: "}, {"type": "text", "text": "look"}]}, "Action: look"
        ),
        pytest.param({"content": [{"type": "output_text", "text": "look"}]}, "look", id="Responses API"),
        pytest.param({"content": PARTS}, "Action: look", id="Mistral"),
        pytest.param({"content": PARTS[:1]}, "<think>\nhm\n</think>", id="Mistral, only a thought"),
        pytest.param({"content": [{"type": "refusal", "refusal": "I can't."}]}, "I can't.", id="refusal as a part"),
        pytest.param({"content": [{"type": "image_url", "image_url": {}}, "look"]}, "look", id="picture and text"),
        pytest.param({"content": [{"type": "text", "text": {"value": "look"}}]}, "look", id="Assistants API"),
        pytest.param({"content": {"type": "text", "text": "look"}}, "look", id="one part"),
        pytest.param({"content": None, "refusal": "I can't."}, "I can't.", id="refusal"),
        pytest.param({"content": None, "reasoning_content": "hm"}, "<think>\nhm\n</think>", id="vLLM, DeepSeek"),
        pytest.param({"content": "", "reasoning": "hm"}, "<think>\nhm\n</think>", id="OpenRouter, Ollama"),
        pytest.param({"content": "look", "reasoning_content": "hm"}, "look", id="thought and answer: before"),
        pytest.param(
            {"content": None, "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]}, "<think>\nhm\n</think>"
        ),
        pytest.param({"content": "nice \ud83d"}, "nice ?", id="half an emoji"),
        pytest.param({"content": None, "reasoning_content": "\udfff"}, "<think>\n?\n</think>", id="half, thought"),
        pytest.param({"content": None}, "", id="nothing: before"),
        pytest.param({}, "", id="no content: before"),
    ],
)
def test_the_text_of_a_message(message: dict[str, Any], text: str) -> None:
    assert text_of(message, 1000) == text
    assert len(text_of({"content": "x" * 5000}, 1000)) == 1000


def test_the_names_of_called_functions() -> None:
    called = called_functions({"tool_calls": [{"function": {"name": "look"}}, {"function": {"name": "go" * 99}}]})
    assert [name_of(function) for function in called] == ["look", "go" * 40]
    assert (
        called_functions({"tool_calls": None}) == called_functions({"tool_calls": ["?"]}) == called_functions({}) == []
    )


@pytest.mark.parametrize(
    ("value", "count"), [(5, 5), ("12", 12), (7.0, 7), (0, 0), (None, None), ("?", None), ([], None), (-1, None)]
)
def test_a_count_of_tokens(value: object, count: int | None) -> None:
    assert token_count(value) == count
    assert token_count(float("inf")) is token_count(float("nan")) is None


FULL = [
    (400, {"error": {"message": "?", "code": "context_length_exceeded"}}),
    (400, "This model's maximum context length is 4097 tokens. However, your messages resulted in 4133 tokens."),
    (400, "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300000 tokens."),
    (
        400,
        "'max_tokens' or 'max_completion_tokens' is too large: 512. This model's maximum context length is 4096 tokens "
        "and your request has 4000 input tokens",
    ),
    (400, "max_tokens must be at least 1, got -33."),
    (400, "The decoder prompt (length 5000) is longer than the maximum model length of 4096."),
    (400, {"error": {"code": 400, "message": "the request exceeds the available context size, try increasing it"}}),
    (500, {"error": {"message": "?", "type": "exceed_context_size_error", "n_ctx": 4096}}),
    (400, {"type": "error", "error": {"type": "e", "message": "prompt is too long: 208310 tokens > 200000 maximum"}}),
    (400, "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"),
    (422, {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 and 512"}),
    (422, {"error": "Input validation error: `inputs` must have less than 4095 tokens. Given: 5000"}),
    (
        400,
        [{"error": {"code": 400, "message": "The input token count (1200000) exceeds the maximum number of tokens"}}],
    ),
    (400, "The input (5000 tokens) is longer than the model's context length (4096 tokens)."),
    (400, "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length"),
    (
        400,
        "Trying to keep the first 4521 tokens when context the overflows. The model has a length of only 4096 tokens",
    ),
    (400, {"error": "This model's maximum prompt length is 131072 but the request contains 200000 tokens."}),
    (400, "Input is too long for requested model."),
    (400, "Please reduce the length of the messages or completion."),
    (400, "Prompt length 5000 is greater than max_seq_len 4096"),
    (400, "litellm.ContextWindowExceededError: the context window is exceeded"),
    (400, "Invalid request: Your request exceeded model token limit: 8192"),
    (400, "Range of input length should be [1, 30720]"),
    (413, "Request too large"),
    (
        400,
        {
            "error": {
                "message": "Provider returned error",
                "metadata": {"raw": '{"message":"prompt is too long: 9 > 8"}'},
            }
        },
    ),
    (200, {"error": {"message": "This endpoint's maximum context length is 32768 tokens.", "code": 400}}),
]


@pytest.mark.parametrize(("status", "body"), FULL)
def test_a_full_context_is_known_in_every_servers_words(status: int, body: Any) -> None:
    assert read_error(body, status).context_is_full


SENT = {"temperature": 0.4, "max_tokens": 512, "seed": 1, "top_p": 0.9, "logprobs": True}


@pytest.mark.parametrize(
    ("status", "body", "name"),
    [
        (
            400,
            "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead.",
            "max_tokens",
        ),
        (
            400,
            "Unsupported value: 'temperature' does not support 0.4. Only the default (1) value is supported.",
            "temperature",
        ),
        (400, {"error": {"message": "?", "param": "temperature", "code": "unsupported_value"}}, "temperature"),
        (400, "invalid temperature: only 0.6 is allowed for this model", "temperature"),
        (400, "`temperature` may only be set to 1 when thinking is enabled.", "temperature"),
        (400, "`temperature` must be strictly positive", "temperature"),
        (422, {"detail": [{"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "not permitted"}]}, "seed"),
        (
            400,
            [{"error": {"message": 'Invalid JSON payload received. Unknown name "seed": Cannot find'}}],
            "seed",
        ),
        (
            400,
            {"code": "Client specified an invalid argument", "error": "grok-4 does not support parameter topP"},
            "top_p",
        ),
        (400, {"error": {"message": "logprobs is not supported with reasoning models"}}, "logprobs"),
        (200, {"error": {"message": "seed is not supported", "code": 400}}, "seed"),
        (400, "Conversation roles must alternate user/assistant", None),
        (400, {"error": {"message": "Invalid type for 'messages[0]'", "param": "messages[0]"}}, None),
        (429, "temperature is not supported", None),
    ],
)
def test_a_parameter_that_a_model_rejects(status: int, body: Any, name: str | None) -> None:
    error = read_error(body, status)
    assert error.rejected(SENT) == name
    assert not error.context_is_full


def test_a_limit_of_the_response_is_no_full_context() -> None:
    error = read_error("max_tokens is too large: 100000. This model supports at most 16384 completion tokens.", 400)
    assert (error.context_is_full, error.rejected(SENT), error.is_about_a_range) == (False, "max_tokens", True)


@pytest.mark.parametrize(
    ("status", "body", "all_requests"),
    [
        (401, "?", True),
        (402, "?", True),
        (403, "?", True),
        (404, {"error": {"message": "The model `m` does not exist", "code": "model_not_found"}}, True),
        (400, [{"error": {"code": 400, "message": "API key not valid. Please pass a valid API key."}}], True),
        (400, "m is not a valid model ID", True),
        (400, "Invalid model: m", True),
        (400, "Your credit balance is too low to access the API.", True),
        (429, {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}, True),
        (200, {"error": {"message": "Insufficient credits", "code": 402}}, True),
        (403, "Your input was flagged by moderation", False),
        (429, "Rate limit reached", False),
        (500, "?", False),
        (400, "Conversation roles must alternate", False),
    ],
)
def test_errors_that_concern_every_request(status: int, body: Any, all_requests: bool) -> None:
    assert read_error(body, status).concerns_all(answered=False) == all_requests


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"error": {"message": "Provider is down", "code": 502}}, "Provider is down"),
        ({"error": "no credit"}, "no credit"),
        ({"error": "Bad Request", "choices": []}, "Bad Request"),
        ({"object": "error", "message": "broken", "code": 40303}, "broken"),
        ({"detail": "Not authenticated"}, "Not authenticated"),
        ({"choices": [{"error": {"message": "cut off", "code": 502}, "message": {}}]}, "cut off"),
        ({"choices": None, "error": {"message": ["a", {"b": 1}]}}, "a"),
    ],
)
def test_what_a_reply_of_status_200_says(document: dict[str, Any], text: str) -> None:
    error = error_of(document)
    assert error is not None
    assert error.text == text


DEEP: Any = 1
for _ in range(1_000):
    DEEP = {"a": DEEP}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"message": "wrong", "loc": []}, "wrong"),
        ({"message": "wrong", "param": "seed", "loc": []}, "seed: wrong"),
        ({"message": "wrong", "param": "\ud800"}, "?: wrong"),
        ({"message": "wrong \ud800"}, "wrong ?"),
        ({"message": "wrong", "param": "x" * 5_000}, "x" * MAX_ERROR_CHARACTERS),
        ({"message": DEEP}, "an error that is nested too deeply to be read"),
    ],
)
def test_a_strange_error_is_one_short_line(body: Any, text: str) -> None:
    assert read_error(body, 400).text == text


def test_an_answer_is_no_error() -> None:
    assert error_of({"choices": [{"message": {"content": "x"}}], "error": None}) is None
