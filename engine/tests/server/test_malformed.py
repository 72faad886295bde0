"""Hundreds of malformed bodies: every one is a 4xx that names a field, and the next good request works."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from server.fake_model import MODEL

from motley_engine.server.protocol.native import GenerateRequest
from motley_engine.server.protocol.openai import ChatRequest, CompletionRequest

GOOD: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]},
    "/v1/completions": {"model": MODEL, "prompt": "hi"},
    "/generate": {"text": "hi"},
}
TEXT = "x" * 600
FLOATS = ["temperature", "top_p", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty"]
INTEGERS = ["n", "top_k", "seed"]
FLAGS = ["ignore_eos", "skip_special_tokens", "no_stop_trim"]
NOT_A_NUMBER = ['"5"', "true", "[]", "{}", "NaN", "Infinity", "-Infinity", "1e999", '"NaN"', "[1]", '{"a": 1}']
NOT_AN_INTEGER = [*NOT_A_NUMBER, "1.5", "1e2", "99999999999999999999999999999", "-99999999999999999999"]
NOT_A_FLAG = ['"true"', "1", "0", "[]", "{}", "NaN", '"yes"']
NOT_A_STRING = ["5", "true", "[]", "{}", "NaN", "1.5"]
NOT_STOPS = ["5", "true", "{}", '""', '[""]', "[5]", "[null]", '["a", true]', json.dumps(["s"] * 17), f'"{"s" * 2000}"']
NOT_IDS = ["5", '"a"', "true", "{}", '["a"]', "[1.5]", "[-1]", "[true]", "[4294967296]", "[258]", "[[1]]"]
NOT_BIAS = [
    "5",
    "[]",
    '"a"',
    '{"a": 1}',
    '{"1": "a"}',
    '{"1": 101}',
    '{"1": NaN}',
    '{"-1": 1}',
    '{"999": 1}',
    '{"": 1}',
]
OUT_OF_RANGE = {
    "temperature": ["-0.1", "-1e300", "2.01", "1e300"],
    "top_p": ["-1", "1.01"],
    "min_p": ["-0.01", "2"],
    "repetition_penalty": ["0", "-1", "1e9"],
    "frequency_penalty": ["-2.1", "2.1"],
    "presence_penalty": ["-3", "3"],
    "n": ["0", "-1", "129", "1000000"],
    "top_k": ["-2", "99999999999"],
    "seed": ["9223372036854775808", "-9223372036854775809"],
}
NOT_MESSAGES = [
    "null",
    "[]",
    "{}",
    '"hi"',
    "5",
    "[5]",
    "[null]",
    "[[]]",
    "[{}]",
    '[{"role": "user"}]',
    '[{"content": "a"}]',
    '[{"role": "wizard", "content": "a"}]',
    '[{"role": "User", "content": "a"}]',
    '[{"role": 5, "content": "a"}]',
    '[{"role": null, "content": "a"}]',
    '[{"role": "user", "content": 5}]',
    '[{"role": "user", "content": null}]',
    '[{"role": "user", "content": true}]',
    '[{"role": "user", "content": {}}]',
    '[{"role": "user", "content": [5]}]',
    '[{"role": "user", "content": [{}]}]',
    '[{"role": "user", "content": [{"type": "text"}]}]',
    '[{"role": "user", "content": [{"type": "text", "text": 5}]}]',
    '[{"role": "user", "content": [{"type": 5, "text": "a"}]}]',
    '[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a"}}]}]',
    '[{"role": "user", "content": [{"type": "input_audio"}]}]',
    '[{"role": "user", "content": ""}]',
    '[{"role": "user", "content": "a", "extra": 1}]',
    '[{"role": "user", "content": "a", "name": 5}]',
    '[{"role": "user", "content": "a", "tool_calls": [{}]}]',
    '[{"role": "assistant"}]',
    '[{"role": "assistant", "content": null, "tool_calls": []}]',
    '[{"role": "assistant", "content": null, "tool_calls": [{"id": "1", "function": {"name": "f"}}]}]',
    '[{"role": "tool", "content": "a"}]',
    '[{"role": "user", "content": "REFUSE"}]',
    f'[{{"role": "user", "content": "{TEXT}"}}]',
]
NOT_PROMPTS = ["null", "5", "true", "{}", "[]", '""', "[[]]", '["a", 1]', '[1, "a"]', '["a", [1]]', "[1.5]", "[-1]"]
NOT_PROMPTS += ["[258]", "[true]", "[null]", "[[1], [null]]", '["a", ""]', f'"{TEXT}"', f'["a", "{TEXT}"]']
NOT_PROMPTS += [json.dumps([1] * 600), json.dumps([[1] * 600]), json.dumps(["a"] * 2000)]
BROKEN = [
    b"",
    b" ",
    b"null",
    b"5",
    b'"a"',
    b"[]",
    b"{",
    b"{]",
    b'{"a"',
    b'{"a":',
    b'{"a":}',
    b"{'a': 1}",
    b'{"a": 1,}',
    b"\xff\xfe{}",
    b"\xef\xbb\xbf{}",
    b'{"user": "\xff"}',
    b'{"user": "\xc3\x28"}',
    b'{"user": "\xed\xa0\x80"}',
    b'{"user": "\\ud800"}',
    b'{"user": "\\udc00x"}',
    b'{"user": "\\u12"}',
    b'{"user": "\\x41"}',
    b'{"user": "\x00"}',
    b'{"user": "a',
    b"\x00\x01\x02",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'{"metadata":' + b"[" * 5000 + b"]" * 5000 + b"}",
    b'{"seed": ' + b"9" * 5000 + b"}",
    b'{"temperature": 0.' + b"1" * 400 + b"e999999999999}",
    b'{"temperature": 0x10}',
    b'{"temperature": 01}',
    b'{"temperature": +1}',
    b"user=a&b=c",
    b"<xml/>",
    b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--x--',
]


def bodies(path: str) -> Iterator[tuple[bytes, str | None]]:
    """Malformed bodies for a route, each with the field that its error must name (None: any)."""
    for broken in BROKEN:
        yield broken, None
    native = path == "/generate"
    shared: list[tuple[str, list[str]]] = [
        *((name, NOT_A_NUMBER + OUT_OF_RANGE[name]) for name in FLOATS),
        *((name, NOT_AN_INTEGER + OUT_OF_RANGE[name]) for name in INTEGERS),
        *((name, NOT_A_FLAG) for name in FLAGS),
        ("stop", NOT_STOPS),
        ("stop_token_ids", NOT_IDS),
        ("logit_bias", NOT_BIAS),
        ("json_schema", ['"{}"', "{}", "true"]),
        ("no_such_field", ["1", "null", "{}"]),
    ]
    for name, values in shared:
        for value in values:
            if native:
                yield with_field(path, "sampling_params", f'{{"{name}": {value}}}'), f"sampling_params.{name}"
            else:
                yield with_field(path, name, value), name
    for name, values in own_fields(path):
        for value in values:
            yield with_field(path, name, value), name


def own_fields(path: str) -> list[tuple[str, list[str]]]:
    if path == "/generate":
        return [
            ("text", NOT_PROMPTS),
            ("sampling_params", ["5", '"a"', "[5]", "[{}, {}]", "true", '[{"temperature": -1}]']),
            ("rid", ["5", '""', "[]", "[5]", "{}", json.dumps("r" * 200)]),
            ("stream", NOT_A_FLAG),
            ("logprob_start_len", ["-2", '"a"', "true"]),
            ("top_logprobs_num", ["-1", "129", '"a"']),
            ("priority", ["5", '"a"', "1.5", "99999999999"]),
            ("image_data", ['"a"', '["a"]']),
            ("input_embeds", ["[[0.5]]"]),
            ("bootstrap_host", ['"10.0.0.1"']),
            ("no_such_field", ["1", "null"]),
        ]
    openai = [
        ("model", [*NOT_A_STRING, '"other"', '""']),
        ("stream", NOT_A_FLAG),
        ("stream_options", ["5", "{}", '{"include_usage": true}']),
        ("max_tokens", [*NOT_AN_INTEGER, "-1", "513", "1000000000000"]),
        ("min_tokens", [*NOT_AN_INTEGER, "-1", "1000"]),
        ("user", NOT_A_STRING),
        ("metadata", ["5", "[]", '{"a": 1}', '{"a": NaN}']),
        ("priority", ["5", '"a"', "1.5"]),
        ("rid", ["5", '""', "[]"]),
        ("lora_path", ['"a"']),
    ]
    if path == "/v1/completions":
        return [
            *openai,
            ("prompt", NOT_PROMPTS),
            ("echo", NOT_A_FLAG),
            ("logprobs", [*NOT_AN_INTEGER, "-1", "21"]),
            ("best_of", ["0", "2", '"a"']),
            ("suffix", ['"a"', "5"]),
        ]
    return [
        *openai,
        ("messages", NOT_MESSAGES),
        ("max_completion_tokens", [*NOT_AN_INTEGER, "0", "-1", "513"]),
        ("logprobs", [*NOT_A_FLAG, "5"]),
        ("top_logprobs", ["1", "-1", "21", '"a"']),
        ("tools", ['[{"type": "function"}]', "5", "{}"]),
        ("tool_choice", ['"required"', "{}"]),
        ("functions", ["[{}]"]),
        ("response_format", ['{"type": "json_object"}', '"text"']),
        ("chat_template_kwargs", ["5", "[]", '{"messages": 1}', '{"self": 1}', '{"chat_template": "x"}']),
        ("modalities", ['["audio"]', '"text"']),
        ("reasoning_effort", ['"low"']),
    ]


def with_field(path: str, name: str, value: str) -> bytes:
    """The good body with one field replaced by raw JSON text; a second ``name`` cannot occur."""
    rest = {key: item for key, item in GOOD[path].items() if key != name}
    inner = json.dumps(rest)[1:-1]
    return f'{{{inner}{", " if inner else ""}"{name}": {value}}}'.encode()


@pytest.mark.parametrize("path", GOOD)
async def test_malformed_bodies_are_4xx_naming_a_field_and_the_next_request_works(service, path):
    cases = list(bodies(path))
    assert len(cases) > 170
    for body, field in cases:
        answer = await service.http.post(path, content=body, headers={"Content-Type": "application/json"})
        shown = body[:120]
        assert 400 <= answer.status_code < 500, (shown, answer.text)
        error = answer.json()["error"]
        assert error["param"], (shown, error)
        assert error["message"].startswith(error["param"]), (shown, error)
        if field is not None and b"no_such" not in body:
            assert error["param"].startswith(field), (shown, error)
        assert len(error["message"]) < 1000
    assert (await service.http.post(path, json=GOOD[path])).status_code == 200
    assert service.state.client.open_requests == 0


@pytest.mark.parametrize("path", GOOD)
async def test_random_damage_never_gives_5xx(service, path):
    rng = random.Random(7)
    good = json.dumps(GOOD[path] | {"temperature": 0.5, "stop": ["a"]} if path != "/generate" else GOOD[path]).encode()
    for _ in range(300):
        damaged = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            place = rng.randrange(len(damaged))
            match rng.randrange(3):
                case 0:
                    damaged[place] = rng.randrange(256)
                case 1:
                    del damaged[place]
                case _:
                    damaged.insert(place, rng.choice(b'{}[]",:0-eE\\\xffn'))
        answer = await service.http.post(path, content=bytes(damaged))
        assert answer.status_code < 500, (bytes(damaged), answer.text)
    assert (await service.http.post(path, json=GOOD[path])).status_code == 200


FIELDS = {
    "/v1/chat/completions": ChatRequest,
    "/v1/completions": CompletionRequest,
    "/generate": GenerateRequest,
}
VALUES = [None, True, False, 0, 1, -1, 2**63, 0.5, -1e300, "", "a", "\x00", [], [0], [[0]], ["a"], [None], {}, {"a": 1}]


@pytest.mark.parametrize("path", GOOD)
async def test_random_values_in_known_fields_never_give_5xx(service, path):
    rng = random.Random(11)
    names = sorted(FIELDS[path].model_fields)
    for _ in range(400):
        body = GOOD[path] | {rng.choice(names): rng.choice(VALUES) for _ in range(rng.randint(1, 3))}
        answer = await service.http.post(path, json=body)
        assert answer.status_code < 500, (body, answer.text)
        if answer.status_code >= 400:
            assert answer.json()["error"]["param"], body
    assert (await service.http.post(path, json=GOOD[path])).status_code == 200


def test_there_are_at_least_500_malformed_bodies():
    assert sum(len(list(bodies(path))) for path in GOOD) >= 500
