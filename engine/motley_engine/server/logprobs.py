"""Logprobs in the shapes of the OpenAI and native APIs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from motley_engine.messages import TokenLogprob
from motley_engine.server.choice import ScoredToken
from motley_engine.server.protocol.answers import ChatLogprobs, ChatToken, CompletionLogprobs, TopToken
from motley_engine.tokenizer import Detokenizer, Tokenizer

NativeEntry: TypeAlias = tuple[float | None, int, str | None]

# JSON has no infinities; OpenAI's clients read this value as "impossible"
_LOWEST = -9999.0


def chat_logprobs(scores: Sequence[ScoredToken], tokenizer: Tokenizer) -> ChatLogprobs:
    """``choices[].logprobs`` of chat answers and chunks."""
    content = []
    for score in scores:
        top = [_top_token(tokenizer, token, value) for value, token in score.logprob.top]
        this = _top_token(tokenizer, score.logprob.token_id, score.logprob.logprob)
        content.append(ChatToken(this.token, this.logprob, this.bytes, top))
    return ChatLogprobs(content)


def completion_logprobs(scores: Sequence[ScoredToken], tokenizer: Tokenizer) -> CompletionLogprobs:
    """``choices[].logprobs`` of completions; the sampled token is always among the top ones."""
    answer = CompletionLogprobs([], [], [], [])
    for score in scores:
        name = token_name(tokenizer, score.logprob.token_id)
        value = score.logprob.logprob
        answer.tokens.append(name)
        answer.text_offset.append(score.offset)
        if value is None:
            answer.token_logprobs.append(None)
            answer.top_logprobs.append(None)
            continue
        answer.token_logprobs.append(finite(value))
        top: dict[str, float] = {}
        for other, token in score.logprob.top:
            top.setdefault(token_name(tokenizer, token), finite(other))
        top[name] = finite(value)
        answer.top_logprobs.append(top)
    return answer


def prompt_scores(
    logprobs: Sequence[TokenLogprob], prompt_ids: Sequence[int], text: str, tokenizer: Tokenizer
) -> list[ScoredToken]:
    """Place the prompt's logprobs (all positions) in ``text``, the prompt as it is echoed."""
    detokenizer = Detokenizer(tokenizer, skip_special=False)
    offsets, length = [], 0
    for token in prompt_ids:
        offsets.append(length)
        length += len(detokenizer.add((token,)))
    length += len(detokenizer.finish())
    # special tokens that encoding put in front are not part of the echoed text
    added = max(0, length - len(text))
    return [ScoredToken(logprob, max(0, offset - added)) for logprob, offset in zip(logprobs, offsets, strict=True)]


def native_entries(logprobs: Sequence[TokenLogprob], tokenizer: Tokenizer | None) -> list[NativeEntry]:
    """``[logprob, token_id, text or null]`` per position; a tokenizer is given when texts are wanted."""
    return [_native(entry.logprob, entry.token_id, tokenizer) for entry in logprobs]


def native_lists(
    lists: Sequence[Sequence[tuple[float, int]]], tokenizer: Tokenizer | None
) -> list[list[NativeEntry] | None]:
    """Alternatives per position; null where a position has none (the first prompt token)."""
    return [[_native(value, token, tokenizer) for value, token in entries] or None for entries in lists]


def token_name(tokenizer: Tokenizer, token_id: int) -> str:
    """A token as text; bytes that are no text by themselves as ``bytes:\\xe2\\x80``."""
    raw = tokenizer.token_bytes(token_id)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def finite(value: float) -> float:
    return value if value > _LOWEST else _LOWEST


def _top_token(tokenizer: Tokenizer, token_id: int, value: float | None) -> TopToken:
    raw = tokenizer.token_bytes(token_id)
    return TopToken(raw.decode(errors="replace"), _LOWEST if value is None else finite(value), list(raw))


def _native(value: float | None, token: int, tokenizer: Tokenizer | None) -> NativeEntry:
    text = None if tokenizer is None else tokenizer.token_bytes(token).decode(errors="replace")
    return (None if value is None else finite(value), token, text)
