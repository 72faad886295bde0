"""Start, drain, failure, health, keys, limits and metrics of the HTTP process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from server.fake_model import byte_tokenizer, make_state

from motley_engine.messages import Abort, Drain, Generate
from motley_engine.server.app import build_app
from motley_engine.server.auth import read_key
from motley_engine.server.client import EngineClient
from motley_engine.server.errors import ApiError

STREAM = {"text": "abc", "stream": True}


async def start_request(service, body: dict, count: int = 1) -> asyncio.Task[httpx.Response]:
    task = asyncio.create_task(service.http.post("/generate", json=body))
    await service.engine.wait_for(Generate, count)
    return task


async def test_nothing_is_served_before_ready(sockets: Path):
    state = make_state(sockets, byte_tokenizer())
    transport = httpx.ASGITransport(app=build_app(state))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        for answer in (await http.get("/health"), await http.post("/generate", json={"text": "a"})):
            assert answer.status_code == 503
            assert answer.json()["error"]["code"] == "starting"
            assert "retry-after" in answer.headers


async def test_failure_ends_open_requests_at_once_and_refuses_later_ones(service):
    service.engine.pause_after = 1
    plain = await start_request(service, {"text": "abc"}, 1)
    stream = await start_request(service, STREAM, 2)
    flush = asyncio.create_task(service.http.get("/health_generate"))
    async with asyncio.timeout(5):
        await service.state.client.wait_output(0)
        service.state.fail("rank 1 died")
        answers = [await plain, await stream, await flush]
    assert answers[0].status_code == 503
    assert "rank 1 died" in answers[0].json()["error"]["message"]
    if answers[1].status_code == 200:
        assert "rank 1 died" in answers[1].text.split("\n\n")[-3]
        assert answers[1].text.endswith("data: [DONE]\n\n")
    else:
        assert answers[1].status_code == 503
    for path in ("/health", "/health_generate", "/get_server_info", "/flush_cache"):
        assert (await service.http.get(path)).status_code == 503
    late = await service.http.post("/generate", json={"text": "a"})
    assert late.status_code == 503
    assert "retry-after" not in late.headers
    assert service.state.client.open_requests == 0


async def test_drain_lets_open_requests_end_and_refuses_new_ones(service):
    service.engine.pause_after = 1
    running = await start_request(service, {"text": "abc"})
    draining = asyncio.create_task(service.state.drain(20))
    await service.engine.wait_for(Drain)
    refused = await service.http.post("/generate", json={"text": "abc"})
    assert refused.status_code == 503
    assert refused.json()["error"]["code"] == "draining"
    assert refused.headers["retry-after"]
    assert (await service.http.get("/health")).status_code == 503
    assert not draining.done()
    service.engine.pause_after = None
    service.engine.resume()
    assert (await running).json()["text"] == "abc"
    assert await draining is True


async def test_a_drain_that_runs_out_of_time_aborts_with_a_reason(service):
    service.engine.pause_after = 1
    running = await start_request(service, {"text": "abc"})
    assert await service.state.drain(0.05) is False
    finish = (await running).json()["meta_info"]["finish_reason"]
    assert finish == {"type": "abort", "message": "the server is shutting down"}


async def test_a_silent_scheduler_fails_the_requests_that_wait_for_it(sockets: Path, service_with):
    async with service_with(runtime={"watchdog_timeout": 0.3}) as service:
        service.engine.silent = True
        answer = await service.http.post("/generate", json={"text": "abc"})
        assert answer.status_code == 503
        assert "nothing heard from the scheduler" in answer.json()["error"]["message"]


async def test_health_turns_red_when_the_scheduler_is_silent(sockets: Path):
    now = [100.0]
    state = make_state(sockets, byte_tokenizer())
    state.client = EngineClient(sockets, silence_limit=300, clock=lambda: now[0])
    state.ready()
    transport = httpx.ASGITransport(app=build_app(state))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        answer = await http.get("/health")
        assert (answer.status_code, answer.content) == (200, b"")
        now[0] += 11
        assert (await http.get("/health")).status_code == 503


async def test_health_generate_runs_one_token_and_leaves_nothing(service):
    assert (await service.http.get("/health_generate")).status_code == 200
    [message] = await service.engine.wait_for(Generate)
    assert message.sampling.max_new_tokens == 1
    assert service.state.client.open_requests == 0


async def test_calls_have_a_bound(service):
    service.engine.silent = True
    with pytest.raises(ApiError, match=r"did not answer within 0\.05 s"):
        await service.state.client.flush(0.05)


async def test_the_key_guards_everything_but_probes(service_with):
    async with service_with(server={"api_key": "k\u00e9y"}) as service:
        assert (await service.http.get("/v1/models")).status_code == 401
        wrong = await service.http.post("/generate", json={"text": "a"}, headers={"Authorization": "Bearer no"})
        assert wrong.status_code == 401
        assert wrong.json()["error"]["code"] == "invalid_api_key"
        assert wrong.headers["www-authenticate"] == "Bearer"
        right = {"Authorization": "Bearer k\u00e9y".encode()}
        assert (await service.http.get("/v1/models", headers=right)).status_code == 200
        for path in ("/health", "/health_generate", "/metrics"):
            assert (await service.http.get(path)).status_code == 200


def test_the_key_can_come_from_a_file(tmp_path: Path):
    file = tmp_path / "key"
    file.write_text("secret\n")
    assert read_key(f"@{file}") == "secret"
    assert read_key("plain") == "plain"
    file.write_text(" \n")
    with pytest.raises(ValueError, match="--api-key"):
        read_key(f"@{file}")
    with pytest.raises(ValueError, match="--api-key"):
        read_key(f"@{tmp_path / 'missing'}")


async def test_unknown_paths_and_methods_have_error_objects(service):
    missing = await service.http.get("/nothing")
    assert (missing.status_code, missing.json()["error"]["type"]) == (404, "invalid_request_error")
    wrong = await service.http.get("/v1/completions")
    assert wrong.status_code == 405
    assert "POST" in wrong.headers["allow"]


async def test_large_bodies_are_refused_without_reading_them(service_with):
    async with service_with(server={"max_request_mib": 1}) as service:
        sent = 0

        async def endless():
            nonlocal sent
            while True:
                sent += 1 << 16
                yield b" " * (1 << 16)

        answer = await service.http.post("/generate", content=endless())
        assert answer.status_code == 413
        assert "--max-request-mib" in answer.json()["error"]["message"]
        assert sent <= (1 << 20) + (1 << 18)
        announced = await service.http.post("/generate", content=b"", headers={"Content-Length": str(1 << 30)})
        assert announced.status_code == 413


async def test_a_body_that_never_ends_is_given_up(service, monkeypatch):
    monkeypatch.setattr("motley_engine.server.body.BODY_SECONDS", 0.05)

    async def stuck():
        yield b"{"
        await asyncio.Event().wait()

    answer = await service.http.post("/generate", content=stuck())
    assert answer.status_code == 408
    assert answer.json()["error"]["param"] == "body"


async def test_metrics_count_requests_tokens_and_pages(service):
    await service.http.post("/generate", json={"text": "abcd"})
    await service.http.post("/generate", json={"text": "abcd", "sampling_params": {"max_new_tokens": 1}})
    await service.engine.say(service.engine.stats())
    await service.state.client.inspect(5)
    text = (await service.http.get("/metrics")).text
    for line in (
        'motley_up{model_name="echo-model"} 1.0',
        'motley_requests_total{model_name="echo-model",outcome="stop"} 1.0',
        'motley_requests_total{model_name="echo-model",outcome="length"} 1.0',
        'motley_time_to_first_token_seconds_count{model_name="echo-model"} 2.0',
        'motley_inter_token_latency_seconds_count{model_name="echo-model"} 4.0',
        'motley_time_per_output_token_seconds_count{model_name="echo-model"} 1.0',
        'motley_request_seconds_count{model_name="echo-model"} 2.0',
        'motley_request_prompt_tokens_sum{model_name="echo-model"} 8.0',
        'motley_request_output_tokens_sum{model_name="echo-model"} 6.0',
        'motley_cache_hit_ratio{model_name="echo-model"} 0.25',
        'motley_kv_pages{model_name="echo-model",pool="full",state="free"} 40.0',
        'motley_requests_waiting{model_name="echo-model"} 0.0',
    ):
        assert line in text.splitlines(), line


async def test_metrics_can_be_off(service_with):
    async with service_with(server={"enable_metrics": False}) as service:
        assert (await service.http.get("/metrics")).status_code == 404


async def test_unreadable_messages_fail_the_client_instead_of_hanging(service):
    service.engine.pause_after = 1
    running = await start_request(service, {"text": "abc"})
    await service.engine._push.send(b"\xc1 not msgpack")
    answer = await running
    assert answer.status_code == 503
    assert "could not be read" in answer.json()["error"]["message"]


async def test_updates_of_an_abandoned_sequence_do_not_reach_a_new_one(service):
    service.engine.pause_after = 2
    first = await start_request(service, {"text": "abc", "rid": "r"})
    first.cancel()
    await service.engine.wait_for(Abort)
    service.engine.pause_after = None
    answer = await service.http.post("/generate", json={"text": "xyz", "rid": "r"})
    assert answer.json()["text"] == "xyz"


async def test_the_openapi_document_holds_the_bodies(service):
    document = (await service.http.get("/openapi.json")).json()
    body = document["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    name = body["$ref"].rsplit("/", 1)[1]
    assert "temperature" in document["components"]["schemas"][name]["properties"]
    assert "/generate" in document["paths"]
