"""``/generate`` and the routes beside it."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest
from server.fake_model import END, MODEL

from motley_engine.messages import Generate
from motley_engine.server.protocol.sampling import SamplingDefaults


async def generate(service: Any, **body: Any) -> Any:
    answer = await service.http.post("/generate", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def native_events(text: str) -> list[dict[str, Any]]:
    lines = [line for line in text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


async def test_text_answer_has_the_documented_shape(service):
    answer = await generate(service, text="hello")
    latency = answer["meta_info"].pop("e2e_latency")
    assert 0 < latency < 30
    assert len(answer["meta_info"].pop("id")) == 32
    assert answer == {
        "text": "hello",
        "output_ids": [*b"hello", END],
        "meta_info": {
            "finish_reason": {"type": "stop", "matched": END},
            "prompt_tokens": 5,
            "completion_tokens": 6,
            "cached_tokens": 4,
        },
    }


async def test_put_and_ids_work_and_length_ends_name_their_length(service):
    body = {"input_ids": [104, 105], "sampling_params": {"max_new_tokens": 1}, "rid": "mine"}
    answer = (await service.http.put("/generate", json=body)).json()
    assert answer["output_ids"] == [104]
    assert answer["meta_info"]["id"] == "mine"
    assert answer["meta_info"]["finish_reason"] == {"type": "length", "length": 1}


async def test_the_default_length_is_128_and_no_stop_string_is_lost(service):
    answer = await generate(service, text="ab", sampling_params={"ignore_eos": True})
    assert answer["meta_info"]["completion_tokens"] == 128
    answer = await generate(service, text="abXYcd", sampling_params={"stop": ["XY"]})
    assert answer["text"] == "ab"
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": "XY"}
    assert answer["output_ids"] == [*b"abXY"]
    kept = await generate(service, text="abXYcd", sampling_params={"stop": "XY", "no_stop_trim": True})
    assert kept["text"] == "abXY"


async def test_batches_answer_in_order_with_their_own_parameters(service):
    answers = await generate(
        service,
        text=["abc", "defg"],
        sampling_params=[{"max_new_tokens": 1}, {"max_new_tokens": 2}],
        rid=["one", "two"],
    )
    assert [answer["text"] for answer in answers] == ["a", "de"]
    assert [answer["meta_info"]["id"] for answer in answers] == ["one", "two"]
    answers = await generate(service, input_ids=[[97, 98], [99]], sampling_params={"max_new_tokens": 1})
    assert [answer["text"] for answer in answers] == ["a", "c"]
    assert len(await generate(service, text=["abc"])) == 1


async def test_n_gives_a_list_with_distinct_ids(service):
    answers = await generate(service, text="ab", sampling_params={"n": 3}, rid="r")
    assert [answer["meta_info"]["id"] for answer in answers] == ["r-0", "r-1", "r-2"]


async def test_streams_repeat_the_whole_text(service):
    answer = await service.http.post("/generate", json={"text": "hello", "stream": True})
    parts = native_events(answer.text)
    assert parts[-1]["text"] == "hello"
    assert parts[-1]["output_ids"] == [*b"hello", END]
    for earlier, later in itertools.pairwise(parts):
        assert later["text"].startswith(earlier["text"])
        assert earlier["meta_info"]["finish_reason"] is None
    assert parts[-1]["meta_info"]["finish_reason"]["type"] == "stop"
    assert "index" not in parts[-1]


async def test_batch_streams_carry_an_index(service):
    answer = await service.http.post("/generate", json={"text": ["ab", "cd"], "stream": True})
    last = {part["index"]: part["text"] for part in native_events(answer.text)}
    assert last == {0: "ab", 1: "cd"}


async def test_logprobs_have_the_documented_shape(service):
    body = {
        "text": "abc",
        "sampling_params": {"max_new_tokens": 2},
        "return_logprob": True,
        "logprob_start_len": 0,
        "top_logprobs_num": 2,
        "token_ids_logprob": [5, 6],
        "return_text_in_logprobs": True,
    }
    meta = (await generate(service, **body))["meta_info"]
    assert meta["input_token_logprobs"] == [[None, 97, "a"], [-0.5, 98, "b"], [-0.5, 99, "c"]]
    assert meta["output_token_logprobs"] == [[-0.5, 97, "a"], [-0.5, 98, "b"]]
    assert meta["input_top_logprobs"][0] is None
    assert meta["input_top_logprobs"][1] == [[-0.5, 98, "b"], [-1.5, 99, "c"]]
    assert meta["output_top_logprobs"] == [
        [[-0.5, 97, "a"], [-1.5, 98, "b"]],
        [[-0.5, 98, "b"], [-1.5, 99, "c"]],
    ]
    assert meta["output_token_ids_logprobs"] == [[[-9.0, 5, "\x05"], [-9.0, 6, "\x06"]]] * 2
    assert meta["input_token_ids_logprobs"][0] is None


async def test_output_logprobs_are_the_default_and_without_texts(service):
    meta = (await generate(service, text="abc", return_logprob=True))["meta_info"]
    assert meta["input_token_logprobs"] == []
    assert meta["output_token_logprobs"][0] == [-0.5, 97, None]
    assert "output_top_logprobs" not in meta
    part = (await generate(service, text="abc", return_logprob=True, logprob_start_len=2))["meta_info"]
    assert part["input_token_logprobs"] == [[-0.5, 99, None]]


async def test_zero_new_tokens_score_the_prompt(service):
    answer = await generate(
        service, text="ab", sampling_params={"max_new_tokens": 0}, return_logprob=True, logprob_start_len=0
    )
    assert answer["output_ids"] == []
    assert answer["text"] == ""
    assert answer["meta_info"]["finish_reason"] == {"type": "length", "length": 0}
    assert len(answer["meta_info"]["input_token_logprobs"]) == 2


async def test_preferred_parameters_come_before_the_models_own(service):
    defaults = SamplingDefaults.merged({"temperature": 0.4}, {"temperature": 0.9, "top_k": 20, "eos_token_id": 5})
    assert (defaults.temperature, defaults.top_k, defaults.top_p) == (0.4, 20, 1.0)
    with pytest.raises(ValueError, match="--preferred-sampling-params: temperature"):
        SamplingDefaults.merged({"temperature": -1}, {})
    with pytest.raises(ValueError, match="--preferred-sampling-params: tmperature"):
        SamplingDefaults.merged({"tmperature": 1}, {})


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "text"),
        ({"text": "a", "input_ids": [1]}, "text"),
        ({"text": ""}, "text"),
        ({"text": []}, "text"),
        ({"text": ["a", ""]}, "text[1]"),
        ({"input_ids": []}, "input_ids"),
        ({"input_ids": [[]]}, "input_ids"),
        ({"input_ids": [1, 258]}, "input_ids"),
        ({"input_ids": [1, -1]}, "input_ids"),
        ({"input_ids": [1, True]}, "input_ids"),
        ({"input_ids": ["a"]}, "input_ids"),
        ({"text": "a", "sampling_params": {"temperature": -1}}, "sampling_params.temperature"),
        ({"text": "a", "sampling_params": [{}, {}]}, "sampling_params"),
        ({"text": ["a", "b"], "sampling_params": [{}, {"top_p": 2}]}, "sampling_params[1].top_p"),
        ({"text": ["a", "b"], "rid": ["x", "x"]}, "rid"),
        ({"text": ["a", "b"], "rid": ["x"]}, "rid"),
        ({"text": "a", "sampling_params": {"max_new_tokens": 600}}, "sampling_params.max_new_tokens"),
        (
            {"text": "a", "sampling_params": {"max_new_tokens": 2, "min_new_tokens": 3}},
            "sampling_params.min_new_tokens",
        ),
        ({"text": "a", "sampling_params": {"stop_token_ids": [999]}}, "sampling_params.stop_token_ids"),
        ({"text": "a", "sampling_params": {"logit_bias": {"999": 1}}}, "sampling_params.logit_bias"),
        ({"text": "a", "sampling_params": {"regex": "a"}}, "sampling_params.regex"),
        ({"text": "a", "sampling_params": {"unknown": 1}}, "sampling_params.unknown"),
        ({"text": "a", "input_embeds": [[0.1]]}, "input_embeds"),
        ({"text": "a", "image_data": "x"}, "image_data"),
        ({"text": "a", "lora_path": "x"}, "lora_path"),
        ({"text": "a", "bootstrap_host": "10.0.0.1"}, "bootstrap_host"),
        ({"text": "a", "return_hidden_states": True}, "return_hidden_states"),
        ({"text": "a", "return_logprob": True, "logprob_start_len": 5}, "logprob_start_len"),
        ({"text": "a", "return_logprob": True, "token_ids_logprob": [999]}, "token_ids_logprob"),
        ({"text": "a", "priority": 3}, "priority"),
        ({"text": "a", "lane": "fast"}, "lane"),
    ],
)
async def test_faults_name_their_field(service, body, param):
    answer = await service.http.post("/generate", json=body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == param
    assert error["message"].startswith(param)


async def test_without_a_tokenizer_only_ids_go_in_and_out(service_with):
    async with service_with(None) as service:
        answer = await generate(service, input_ids=[1, 2], sampling_params={"max_new_tokens": 2})
        assert answer["output_ids"] == [1, 2]
        assert "text" not in answer
        for path, body in (
            ("/generate", {"text": "a"}),
            ("/generate", {"input_ids": [1], "sampling_params": {"stop": "a"}}),
            ("/v1/completions", {"prompt": [1]}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
        ):
            refused = await service.http.post(path, json=body)
            assert refused.status_code == 400
            assert "--skip-tokenizer-init" in refused.json()["error"]["message"]


async def test_a_live_request_id_is_refused_and_free_again_afterwards(service):
    service.engine.pause_after = 1
    running = service.http.build_request("POST", "/generate", json={"text": "abc", "rid": "r"})
    task = asyncio.create_task(service.http.send(running))
    await service.engine.wait_for(Generate)
    again = await service.http.post("/generate", json={"text": "abc", "rid": "r"})
    assert again.status_code == 400
    assert again.json()["error"]["param"] == "rid"
    aborted = await service.http.post("/abort_request", json={"rid": "r"})
    assert aborted.json() == {"aborted": 1}
    answer = (await task).json()
    assert answer["meta_info"]["finish_reason"] == {"type": "abort", "message": "abort"}
    service.engine.pause_after = None
    assert (await generate(service, text="abc", rid="r"))["text"] == "abc"


async def test_abort_all_ends_every_request(service):
    service.engine.pause_after = 1
    tasks = [asyncio.create_task(generate(service, text=["abc", "de"])) for _ in range(3)]
    await service.engine.wait_for(Generate, 6)
    assert (await service.http.post("/abort_request", json={"abort_all": True})).json() == {"aborted": 6}
    for answers in await asyncio.gather(*tasks):
        assert [answer["meta_info"]["finish_reason"]["type"] for answer in answers] == ["abort", "abort"]
    assert (await service.http.post("/abort_request", json={"rid": "nobody"})).json() == {"aborted": 0}
    for body in ({}, {"rid": "a", "abort_all": True}, {"rid": 5}):
        assert (await service.http.post("/abort_request", json=body)).status_code == 400


async def test_flush_works_only_when_idle(service):
    for method in ("GET", "POST"):
        answer = await service.http.request(method, "/flush_cache")
        assert (answer.status_code, answer.text) == (200, "Cache flushed.\n")
    service.engine.pause_after = 1
    task = asyncio.create_task(generate(service, text="abc"))
    await service.engine.wait_for(Generate)
    answer = await service.http.post("/flush_cache")
    assert answer.status_code == 400
    assert "running" in answer.json()["error"]["message"]
    await service.http.post("/abort_request", json={"abort_all": True})
    await task


async def test_model_info_has_exactly_its_four_keys(service):
    for path in ("/get_model_info", "/model_info"):
        assert (await service.http.get(path)).json() == {
            "model_path": "file:///models/echo",
            "tokenizer_path": "file:///models/echo",
            "is_generation": True,
            "preferred_sampling_params": None,
        }


async def test_server_info_tells_everything_but_secrets(service_with):
    async with service_with(server={"api_key": "hush"}) as service:
        service.state.ranks.append({"rank": 0, "pid": 1})
        answer = await service.http.get("/get_server_info", headers={"Authorization": "Bearer hush"})
        info = answer.json()
        assert "hush" not in answer.text
        assert info["api_key"] == "***"
        assert info["page_size"] == 16
        assert info["served_model_name"] == MODEL
        assert info["max_total_num_tokens"] == 4096
        assert info["ranks"] == [{"rank": 0, "pid": 1}]
        assert info["internal_states"][0]["pages_free"] == 40
        assert info["version"] == "0.0-test"
