"""Unmodified clients over a real socket: the openai package, raw HTTP, and connections that close early."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx
import openai
import pytest
from server.fake_model import MODEL

from motley_engine.messages import Abort, Generate


@pytest.fixture
def client(live):
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="unused", max_retries=0, timeout=30) as client:
        yield client


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def test_models(client):
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).owned_by == "motley"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nobody")


def test_chat(client):
    answer = client.chat.completions.create(
        model=MODEL, messages=user("hello"), n=2, logprobs=True, top_logprobs=1, extra_body={"top_k": 5}
    )
    assert [choice.message.content for choice in answer.choices] == ["hello", "hello"]
    assert [choice.finish_reason for choice in answer.choices] == ["stop", "stop"]
    assert answer.usage.prompt_tokens_details.cached_tokens == 4
    first = answer.choices[0].logprobs.content[0]
    assert (first.token, first.bytes, first.top_logprobs[0].token) == ("h", [104], "h")


def test_chat_stream(client):
    stream = client.chat.completions.create(
        model=MODEL, messages=user("hello"), stream=True, stop=["lo"], stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "hel"
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["stop"]
    assert chunks[-1].usage.completion_tokens == 5


def test_chat_stream_helper_accumulates_the_answer(client):
    with client.chat.completions.stream(model=MODEL, messages=user("hello")) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == "hello"


def test_completions(client):
    answer = client.completions.create(model=MODEL, prompt=["ab", "cd"], echo=True, logprobs=1, max_tokens=1)
    assert [choice.text for choice in answer.choices] == ["aba", "cdc"]
    assert answer.choices[1].logprobs.text_offset == [0, 1, 2]
    stream = client.completions.create(model=MODEL, prompt="hello", stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == "hello"


async def test_the_async_client_runs_many_streams_at_once(live):
    async with openai.AsyncOpenAI(base_url=f"{live.url}/v1", api_key="unused", max_retries=0) as client:

        async def one(number: int) -> str:
            stream = await client.chat.completions.create(model=MODEL, messages=user(f"text {number}"), stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

        texts = await asyncio.gather(*(one(number) for number in range(64)))
    assert texts == [f"text {number}" for number in range(64)]


def test_errors_become_the_packages_exceptions(client, live):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=MODEL, messages=user("x"), temperature=3)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="nobody", messages=user("x"))
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        client.completions.create(model=MODEL, prompt="x" * 600)
    assert long.value.code == "context_length_exceeded"
    live.engine.refusal = "queue_full"
    with pytest.raises(openai.InternalServerError) as full:
        client.chat.completions.create(model=MODEL, messages=user("x"))
    assert full.value.response.headers["retry-after"] == "7"


def test_a_failure_reaches_an_open_stream_as_an_error(client, live):
    live.engine.pause_after = 1
    stream = client.chat.completions.create(model=MODEL, messages=user("hello"), stream=True)
    next(stream)

    async def fail() -> None:
        live.state.fail("rank 1 died")

    live.call(fail())
    with pytest.raises(openai.APIError, match="rank 1 died"):
        list(stream)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/generate"])
def test_a_closed_connection_aborts_its_request(live, path, stream):
    live.engine.pause_after = 2
    body = {
        "/v1/chat/completions": {"messages": user("hello"), "n": 2},
        "/v1/completions": {"prompt": ["ab", "cd"]},
        "/generate": {"text": ["ab", "cd"]},
    }[path]
    with ThreadPoolExecutor(1) as pool, socket.create_connection(address(live.url)) as connection:
        request = httpx.Request("POST", live.url + path, json=body | {"stream": stream})
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(request.content)}\r\n\r\n".encode()
        connection.sendall(head + request.content)
        live.call(live.engine.wait_for(Generate, 2))
        if stream:
            assert b"200 OK" in pool.submit(connection.recv, 4096).result(20)
    aborts = live.call(live.engine.wait_for(Abort, 2))
    assert {abort.reason for abort in aborts} == {"client closed the request"}
    live.engine.pause_after = None
    assert httpx.post(f"{live.url}/generate", json={"text": "hi"}).json()["text"] == "hi"


def test_a_connection_closed_inside_the_body_harms_nobody(live):
    with socket.create_connection(address(live.url)) as connection:
        connection.sendall(b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    assert httpx.post(f"{live.url}/generate", json={"text": "hi"}).json()["text"] == "hi"


def test_the_server_survives_clients_that_speak_no_http(live):
    for nonsense in (
        b"\x00\x01\x02\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /generate HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    ):
        with socket.create_connection(address(live.url)) as connection:
            connection.sendall(nonsense)
            connection.settimeout(10)
            answer = connection.recv(4096)
            assert b" 5" not in answer.split(b"\r\n")[0]
    assert httpx.get(f"{live.url}/health").status_code == 200


def address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port
