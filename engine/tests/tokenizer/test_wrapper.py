"""The parts of the tokenizer that the server leans on beside encoding and decoding."""

from __future__ import annotations

from pathlib import Path

import pytest

from motley_engine.tokenizer import ChatTemplateError, Tokenizer, TokenizerError, load_tokenizer

USER = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize("kind", ["smollm2", "gemma3", "sentencepiece"])
def test_token_bytes_join_to_the_text(kind: str, request: pytest.FixtureRequest) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(kind)
    text = "hello é 日本 😀 \n\t x  y"
    ids = tokenizer.encode(text, add_special=False)
    joined = b"".join(tokenizer.token_bytes(index) for index in ids).decode()
    assert joined.removeprefix(" " if kind == "sentencepiece" else "") == text


def test_special_tokens_are_shown_as_they_are_spelled(smollm2: Tokenizer) -> None:
    (end,) = smollm2.encode("<|im_end|>")
    assert end == smollm2.eos_id
    assert end in smollm2.special_ids
    assert smollm2.token_text(end) == "<|im_end|>"
    assert smollm2.token_bytes(smollm2.vocab_size + 5) == b""


def test_a_model_without_template_refuses_chats_with_the_way_out(gemma3: Tokenizer) -> None:
    with pytest.raises(ChatTemplateError, match=r"no chat template .* text completion, .* --chat-template"):
        gemma3.apply_chat_template(USER)


def test_given_template_replaces_the_models(gemma3_path: Path, smollm2_path: Path, tmp_path: Path) -> None:
    template = tmp_path / "t.jinja"
    template.write_text("{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{{ style }}")
    tokenizer = load_tokenizer(smollm2_path, template)
    assert tokenizer.render_chat(USER, style="!") == "<|im_start|>[user]Hi!"


def with_template(tokenizer: Tokenizer, template: str) -> Tokenizer:
    return Tokenizer(tokenizer.backend, tokenizer.special, template)


def test_tools_and_loop_controls_reach_the_template(smollm2: Tokenizer) -> None:
    template = "{% for t in tools %}{% if loop.index > 1 %}{% break %}{% endif %}{{ t | tojson }}{% endfor %}"
    tools = [{"type": "function", "function": {"name": "größe"}}, {"type": "function"}]
    rendered = with_template(smollm2, template).render_chat(USER, tools)
    assert rendered == '{"type": "function", "function": {"name": "größe"}}'


@pytest.mark.parametrize(
    ("template", "fault"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[5].content }}", "list object has no element 5|has no attribute"),
        ("{{ messages.append(1) }}", "is unsafe"),
        ("{{ 1 / 0 }}", "division by zero"),
    ],
)
def test_what_a_template_refuses_is_the_clients_error(template: str, fault: str, smollm2: Tokenizer) -> None:
    with pytest.raises(ChatTemplateError, match=fault):
        with_template(smollm2, template).render_chat(USER)


def test_a_damaged_template_is_named_at_start(smollm2_path: Path, tmp_path: Path) -> None:
    template = tmp_path / "bad.jinja"
    template.write_text("{% if %}")
    with pytest.raises(TokenizerError, match=r"bad\.jinja: the chat template is not valid Jinja: .* --chat-template"):
        load_tokenizer(smollm2_path, template)
    with pytest.raises(TokenizerError, match=r"--chat-template: cannot read .*absent"):
        load_tokenizer(smollm2_path, tmp_path / "absent")
