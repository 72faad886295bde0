"""OpenAI routes: exact shapes, streaming and not, against an engine that echoes prompts."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from server.fake_model import MODEL, byte_tokenizer

from motley_engine.messages import Abort, Generate

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


def chat_body(text: str = "hello", **extra: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], **extra}


def completion_body(prompt: Any = "hello", **extra: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": prompt, "max_tokens": 64, **extra}


def events(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in response.text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


async def test_models_are_listed_and_an_unknown_one_is_404(service):
    listing = (await service.http.get("/v1/models")).json()
    assert listing["object"] == "list"
    assert [card["id"] for card in listing["data"]] == [MODEL]
    assert (await service.http.get(f"/v1/models/{MODEL}")).json() == listing["data"][0]
    for answer in (
        await service.http.get("/v1/models/org/other"),
        await service.http.post(CHAT, json={**chat_body(), "model": "org/other"}),
        await service.http.post(COMPLETIONS, json={**completion_body(), "model": "org/other"}),
    ):
        assert answer.status_code == 404
        error = answer.json()["error"]
        assert error["code"] == "model_not_found"
        assert error["param"] == "model"
        assert "org/other" in error["message"]


async def test_chat_answer_has_openais_shape(service):
    answer = (await service.http.post(CHAT, json=chat_body())).json()
    assert answer.pop("id").startswith("chatcmpl-")
    assert isinstance(answer.pop("created"), int)
    assert answer == {
        "object": "chat.completion",
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "hello", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 5,
            "completion_tokens": 6,
            "total_tokens": 11,
            "prompt_tokens_details": {"cached_tokens": 4},
        },
    }


async def test_chat_stream_starts_with_the_role_and_finishes_once(service):
    chunks = events(await service.http.post(CHAT, json=chat_body(stream=True)))
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    assert all("usage" not in chunk for chunk in chunks)
    choices = [chunk["choices"][0] for chunk in chunks]
    assert choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(choice["delta"].get("content", "") for choice in choices) == "hello"
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["stop"]
    assert choices[-1]["finish_reason"] == "stop"
    assert choices[-1]["delta"] == {}


async def test_usage_chunk_comes_last_with_no_choices(service):
    body = chat_body(stream=True, stream_options={"include_usage": True})
    chunks = events(await service.http.post(CHAT, json=body))
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 6
    assert chunks[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 4}
    assert all(chunk["usage"] is None for chunk in chunks[:-1])


async def test_continuous_usage_counts_up(service):
    body = completion_body(stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True})
    chunks = events(await service.http.post(COMPLETIONS, json=body))
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[-1] == 6


async def test_several_choices_finish_once_each(service):
    chunks = events(await service.http.post(CHAT, json=chat_body(n=3, stream=True)))
    for index in range(3):
        mine = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == index]
        assert mine[0]["delta"]["role"] == "assistant"
        assert "".join(choice["delta"].get("content", "") for choice in mine) == "hello"
        assert [choice["finish_reason"] for choice in mine if choice["finish_reason"]] == ["stop"]
    whole = (await service.http.post(CHAT, json=chat_body(n=3))).json()
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2]
    assert whole["usage"]["prompt_tokens"] == 5
    assert whole["usage"]["completion_tokens"] == 18


async def test_a_seed_counts_up_over_the_choices(service):
    await service.http.post(CHAT, json=chat_body(n=3, seed=-1))
    assert [m.sampling.seed for m in await service.engine.wait_for(Generate)] == [2**63 - 1, 0, 1]


async def test_length_limits_finish_with_length(service):
    answer = (await service.http.post(CHAT, json=chat_body(max_completion_tokens=2))).json()
    assert answer["choices"][0]["message"]["content"] == "he"
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tokens_per_update", [1, 3, 100])
async def test_stop_string_trims_text_and_tokens(service, stream, tokens_per_update):
    service.engine.tokens_per_update = tokens_per_update
    body = completion_body("abcSTOPdef", stop=["STOP", "zz"], stream=stream)
    response = await service.http.post(COMPLETIONS, json=body)
    if stream:
        choices = [chunk["choices"][0] for chunk in events(response)]
        assert "".join(choice["text"] for choice in choices) == "abc"
        assert [c["finish_reason"] for c in choices if c["finish_reason"]] == ["stop"]
    else:
        answer = response.json()
        assert answer["choices"][0]["text"] == "abc"
        assert answer["choices"][0]["finish_reason"] == "stop"
        assert answer["usage"]["completion_tokens"] == 7
    assert service.state.client.open_requests == 0


async def test_a_stop_string_frees_the_sequence_before_its_end(service):
    service.engine.pause_after = 8
    body = completion_body("abcSTOPdef", stop="STOP")
    assert (await service.http.post(COMPLETIONS, json=body)).json()["choices"][0]["finish_reason"] == "stop"
    [abort] = await service.engine.wait_for(Abort)
    assert abort.reason == "stop"
    assert service.engine.running == {}


async def test_stop_string_can_be_kept(service):
    body = completion_body("abcSTOPdef", stop="STOP", include_stop_str_in_output=True)
    answer = (await service.http.post(COMPLETIONS, json=body)).json()
    assert answer["choices"][0]["text"] == "abcSTOP"


async def test_an_unfinished_stop_string_is_flushed_at_the_end(service):
    chunks = events(await service.http.post(COMPLETIONS, json=completion_body("abcSTO", stop="STOP", stream=True)))
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "abcSTO"


async def test_stop_token_is_trimmed_unless_kept(service):
    trimmed = completion_body("abc", stop_token_ids=[ord("b")])
    assert (await service.http.post(COMPLETIONS, json=trimmed)).json()["choices"][0]["text"] == "a"
    kept = trimmed | {"no_stop_trim": True}
    assert (await service.http.post(COMPLETIONS, json=kept)).json()["choices"][0]["text"] == "ab"


async def test_special_tokens_can_be_shown(service):
    body = completion_body([97, 257, 98], skip_special_tokens=False, ignore_eos=True, max_tokens=3)
    assert (await service.http.post(COMPLETIONS, json=body)).json()["choices"][0]["text"] == "a<|turn|>b"


async def test_multi_byte_characters_are_never_cut(service):
    text = "h\u00e9llo \u4e16\u754c \U0001f600"
    chunks = events(await service.http.post(COMPLETIONS, json=completion_body(text, stream=True)))
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == text
    assert "\ufffd" not in "".join(chunk["choices"][0]["text"] for chunk in chunks)


async def test_chat_logprobs_have_one_entry_per_token(service):
    body = chat_body("h\u00e9", logprobs=True, top_logprobs=2)
    whole = (await service.http.post(CHAT, json=body)).json()["choices"][0]["logprobs"]
    assert whole["refusal"] is None
    entries = whole["content"]
    assert [entry["bytes"] for entry in entries] == [[104], [0xC3], [0xA9], list(b"<|end|>")]
    assert entries[0] == {
        "token": "h",
        "logprob": -0.5,
        "bytes": [104],
        "top_logprobs": [
            {"token": "h", "logprob": -0.5, "bytes": [104]},
            {"token": "i", "logprob": -1.5, "bytes": [105]},
        ],
    }
    chunks = events(await service.http.post(CHAT, json=body | {"stream": True}))
    streamed = [c["choices"][0]["logprobs"]["content"] for c in chunks if c["choices"][0]["logprobs"]]
    assert [entry for content in streamed for entry in content] == entries


async def test_completion_logprobs_point_into_the_text(service):
    body = completion_body("h\u00e9y", logprobs=1, echo=True)
    choice = (await service.http.post(COMPLETIONS, json=body)).json()["choices"][0]
    assert choice["text"] == "h\u00e9yh\u00e9y"
    logprobs = choice["logprobs"]
    assert logprobs["tokens"] == ["h", "bytes:\\xc3", "bytes:\\xa9", "y"] * 2 + ["<|end|>"]
    assert logprobs["text_offset"] == [0, 1, 1, 2, 3, 4, 4, 5, 6]
    assert logprobs["token_logprobs"] == [None] + [-0.5] * 8
    assert logprobs["top_logprobs"][0] is None
    assert logprobs["top_logprobs"][4] == {"h": -0.5}
    chunks = events(await service.http.post(COMPLETIONS, json=body | {"stream": True}))
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == choice["text"]
    offsets = [c["choices"][0]["logprobs"]["text_offset"] for c in chunks if c["choices"][0]["logprobs"]]
    assert [offset for part in offsets for offset in part] == logprobs["text_offset"]


async def test_zero_tokens_score_the_prompt_only(service):
    body = completion_body("hey", max_tokens=0, echo=True, logprobs=0)
    answer = (await service.http.post(COMPLETIONS, json=body)).json()
    assert answer["choices"][0]["text"] == "hey"
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["choices"][0]["logprobs"]["tokens"] == ["h", "e", "y"]
    assert answer["usage"]["completion_tokens"] == 0


@pytest.mark.parametrize("prompts", [["ab", "cde"], [[97, 98], [99, 100, 101]]], ids=["texts", "ids"])
async def test_prompt_lists_answer_in_order(service, prompts):
    answer = (await service.http.post(COMPLETIONS, json=completion_body(prompts, n=2, echo=True))).json()
    assert [c["index"] for c in answer["choices"]] == [0, 1, 2, 3]
    assert [c["text"] for c in answer["choices"]] == ["abab", "abab", "cdecde", "cdecde"]
    assert answer["usage"]["prompt_tokens"] == 5
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 3


async def test_a_list_of_ids_is_one_prompt(service):
    answer = (await service.http.post(COMPLETIONS, json=completion_body([104, 105]))).json()
    assert [c["text"] for c in answer["choices"]] == ["hi"]
    assert answer["id"].startswith("cmpl-")
    assert answer["object"] == "text_completion"


async def test_extras_reach_the_engine(service):
    extras = {
        "top_k": 7,
        "min_p": 0.1,
        "top_p": 0.5,
        "temperature": 0.3,
        "repetition_penalty": 1.1,
        "frequency_penalty": 0.2,
        "presence_penalty": -0.2,
        "min_tokens": 2,
        "logit_bias": {"65": 5, "66": -100},
        "stop_token_ids": [7],
        "seed": 11,
    }
    await service.http.post(COMPLETIONS, json=completion_body(**extras))
    [message] = await service.engine.wait_for(Generate)
    sampling = message.sampling
    assert (sampling.top_k, sampling.min_p, sampling.top_p, sampling.temperature) == (7, 0.1, 0.5, 0.3)
    assert (sampling.repetition_penalty, sampling.frequency_penalty, sampling.presence_penalty) == (1.1, 0.2, -0.2)
    assert (sampling.min_new_tokens, sampling.max_new_tokens, sampling.seed) == (2, 64, 11)
    assert sampling.logit_bias == {65: 5.0, 66: -100.0}
    assert sampling.stop_token_ids == (7, 256)


async def test_neutral_extremes_are_rewritten(service):
    await service.http.post(COMPLETIONS, json=completion_body(top_p=0, top_k=0, temperature=1e-9, ignore_eos=True))
    [message] = await service.engine.wait_for(Generate)
    assert (message.sampling.top_k, message.sampling.top_p) == (1, 1.0)
    assert message.sampling.temperature == 0.0
    assert message.sampling.stop_token_ids == ()


async def test_messages_take_parts_roles_and_history(service):
    messages = [
        {"role": "developer", "content": "a"},
        {"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}], "name": "joe"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "content": "d", "tool_call_id": "1"},
        {"role": "assistant", "content": "e", "refusal": None, "annotations": [], "reasoning_content": "hm"},
    ]
    answer = await service.http.post(CHAT, json={"model": MODEL, "messages": messages})
    assert answer.json()["choices"][0]["message"]["content"] == "abcde"


async def test_neutral_values_of_refused_fields_pass(service):
    neutral = {
        "tools": [],
        "tool_choice": "none",
        "response_format": {"type": "text"},
        "modalities": ["text"],
        "user": "u",
        "metadata": {"a": "b"},
        "store": False,
        "service_tier": "auto",
        "parallel_tool_calls": True,
        "temperature": None,
        "stop": None,
        "functions": None,
    }
    assert (await service.http.post(CHAT, json=chat_body(**neutral))).status_code == 200


@pytest.mark.parametrize(
    ("extra", "way_out"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"response_format": {"type": "json_object"}}, "prompt"),
        ({"best_of": 2}, "remove"),
        ({"regex": "a+"}, "prompt"),
        ({"chat_template_kwargs": {"messages": []}}, "set by the server"),
        ({"max_token": 5}, "max_tokens"),
    ],
)
async def test_what_is_not_implemented_is_refused_by_name(service, extra, way_out):
    answer = await service.http.post(CHAT, json=chat_body(**extra))
    error = answer.json()["error"]
    assert answer.status_code == 400
    assert error["param"] == next(iter(extra))
    assert error["message"].startswith(next(iter(extra)))
    assert way_out in error["message"]


async def test_images_are_refused_clearly(service):
    content = [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "http://a/b"}}]
    answer = await service.http.post(CHAT, json=chat_body(content))
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "messages[0].content"
    assert "image_url" in answer.json()["error"]["message"]


async def test_best_of_must_equal_n(service):
    assert (await service.http.post(COMPLETIONS, json=completion_body(n=2, best_of=2))).status_code == 200
    answer = await service.http.post(COMPLETIONS, json=completion_body(n=2, best_of=3))
    assert answer.json()["error"]["param"] == "best_of"
    answer = await service.http.post(COMPLETIONS, json=completion_body(suffix="x"))
    assert answer.json()["error"]["param"] == "suffix"


async def test_template_arguments_reach_the_template_and_its_refusal_the_client(service):
    answer = await service.http.post(CHAT, json=chat_body("a", chat_template_kwargs={"suffix": "z"}))
    assert answer.json()["choices"][0]["message"]["content"] == "az"
    answer = await service.http.post(CHAT, json=chat_body("REFUSE"))
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "messages"
    assert "roles must alternate" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body", "param", "numbers"),
    [
        (CHAT, chat_body("x" * 600), "messages", ["600", "512"]),
        (COMPLETIONS, completion_body("x" * 600), "prompt", ["600", "512"]),
        (COMPLETIONS, completion_body([1] * 600), "prompt", ["600", "512"]),
        (CHAT, chat_body("x" * 100, max_tokens=500), "max_tokens", ["100", "500", "512", "412"]),
        (CHAT, chat_body("x" * 100, max_completion_tokens=500), "max_completion_tokens", ["100", "512"]),
    ],
)
async def test_too_many_tokens_name_both_numbers(service, path, body, param, numbers):
    answer = await service.http.post(path, json=body)
    error = answer.json()["error"]
    assert answer.status_code == 400
    assert error["code"] == "context_length_exceeded"
    assert error["param"] == param
    assert all(number in error["message"] for number in numbers)


async def test_auto_truncate_keeps_the_end_of_the_prompt(service_with):
    async with service_with(server={"allow_auto_truncate": True}) as service:
        answer = await service.http.post(COMPLETIONS, json=completion_body("a" * 600 + "end", max_tokens=12))
        assert answer.json()["usage"]["prompt_tokens"] == 500
        [message] = await service.engine.wait_for(Generate)
        assert bytes(message.input_ids).endswith(b"aend")


async def test_models_without_a_template_point_to_completions(service_with):
    async with service_with(byte_tokenizer(None)) as service:
        answer = await service.http.post(CHAT, json=chat_body())
        assert answer.status_code == 400
        assert "--chat-template" in answer.json()["error"]["message"]
        assert "/v1/completions" in answer.json()["error"]["message"]


async def test_refusals_of_the_scheduler_keep_their_status_even_for_streams(service):
    service.engine.refusal = "queue_full"
    for stream in (False, True):
        answer = await service.http.post(CHAT, json=chat_body(stream=stream))
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "7"
        assert answer.json()["error"]["code"] == "queue_full"
    service.engine.refusal = "invalid"
    assert (await service.http.post(CHAT, json=chat_body())).status_code == 400


async def test_an_engine_error_is_500_or_an_error_event(service):
    service.engine.error = "out of pages"
    answer = await service.http.post(CHAT, json=chat_body())
    assert answer.status_code == 500
    assert "out of pages" in answer.json()["error"]["message"]
