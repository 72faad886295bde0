"""A tokenizer from the vocabulary in a GGUF file's metadata, equal to what transformers builds from the same file.

Two kinds of vocabulary are read: byte-level BPE (``gpt2``) and SentencePiece BPE (``llama``). The text is split before
the merges the way ``tokenizer.ggml.pre`` names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tokenizers import AddedToken, Regex, decoders, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE

from motley_engine.tokenizer.alphabet import BYTE_OF, CHAR_OF
from motley_engine.tokenizer.splits import BOS_BY_DEFAULT, SPLITS
from motley_engine.tokenizer.wrapper import SpecialTokens, Tokenizer
from motley_planner.gguf_header import GGUFArray, GGUFHeader

UNKNOWN, CONTROL, USER_DEFINED, BYTE = 2, 3, 4, 6
"""GGUF token types that are treated apart from normal ones."""
SPACE = "▁"
UNMERGED = (UNKNOWN, CONTROL, BYTE)


class VocabularyError(ValueError):
    """A GGUF file whose tokenizer cannot be rebuilt. The text names the metadata key and its value."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokenizer keys of a GGUF file. ``scores`` and ``merges`` may be empty, ids may be None."""

    architecture: str
    model: str
    pre: str
    tokens: list[str]
    types: list[int]
    scores: list[float]
    merges: list[str]
    bos: int | None
    eos: int | None
    unk: int | None
    pad: int | None
    add_bos: bool
    add_eos: bool
    add_space: bool
    chat_template: str | None

    def text(self, index: int | None) -> str | None:
        return None if index is None else self.tokens[index]


def read_vocabulary(header: GGUFHeader) -> Vocabulary:
    """Decodes the tokenizer keys. VocabularyError if the file has no vocabulary, or an id beyond it."""
    values = header.metadata

    def array(key: str) -> list[object]:
        name = f"tokenizer.ggml.{key}"
        return header.array(name) if isinstance(values.get(name), GGUFArray) else []

    def scalar(key: str) -> object:
        return values.get(f"tokenizer.ggml.{key}")

    tokens = [str(token) for token in array("tokens")]
    if not tokens:
        raise VocabularyError("tokenizer.ggml.tokens: the file has no vocabulary")

    def token_id(key: str) -> int | None:
        index = scalar(key)
        if index is not None and not (isinstance(index, int) and 0 <= index < len(tokens)):
            raise VocabularyError(f"tokenizer.ggml.{key}: {index!r} is no id of the {len(tokens)} tokens")
        return index

    model, pre, template = str(scalar("model")), str(scalar("pre") or "default"), values.get("tokenizer.chat_template")
    add_bos, add_space = scalar("add_bos_token"), scalar("add_space_prefix")
    return Vocabulary(
        architecture=str(values.get("general.architecture")),
        model=model,
        pre=pre,
        tokens=tokens,
        types=[int(str(kind)) for kind in array("token_type")] or [1] * len(tokens),
        scores=[float(str(score)) for score in array("scores")],
        merges=[str(merge) for merge in array("merges")],
        bos=token_id("bos_token_id"),
        eos=token_id("eos_token_id"),
        unk=token_id("unknown_token_id"),
        pad=token_id("padding_token_id"),
        add_bos=bool(add_bos) if add_bos is not None else model == "llama" or pre in BOS_BY_DEFAULT,
        add_eos=bool(scalar("add_eos_token")),
        add_space=add_space is None or bool(add_space),
        chat_template=str(template) if isinstance(template, str) else None,
    )


def build(vocabulary: Vocabulary) -> Tokenizer:
    """The tokenizer that ``vocabulary`` describes. VocabularyError names a kind or a split that is not known."""
    builders = {"gpt2": _byte_level, "llama": _gemma if vocabulary.architecture.startswith("gemma") else _sentencepiece}
    builder = builders.get(vocabulary.model)
    if builder is None:
        raise VocabularyError(f"tokenizer.ggml.model: {vocabulary.model!r} is not known; known: {', '.join(builders)}")
    backend, spelled = builder(vocabulary)
    _add_tokens(backend, vocabulary, spelled)
    _add_ends(backend, vocabulary)
    names = (vocabulary.bos, vocabulary.eos, vocabulary.unk, vocabulary.pad)
    return Tokenizer(backend, SpecialTokens(*(vocabulary.text(index) for index in names)), vocabulary.chat_template)


def _byte_level(vocabulary: Vocabulary) -> tuple[Backend, list[str]]:
    spelled = [_in_stand_ins(token) for token in vocabulary.tokens]
    backend = Backend(BPE(vocab=_ids(spelled), merges=_listed_merges(vocabulary)))
    if vocabulary.pre not in SPLITS:
        known = ", ".join(sorted(SPLITS))
        raise VocabularyError(f"tokenizer.ggml.pre: {vocabulary.pre!r} is not known; known: {known}")
    split = SPLITS[vocabulary.pre]
    if split is None:
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        isolated = pre_tokenizers.Split(Regex(split), behavior="isolated")
        level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.pre_tokenizer = pre_tokenizers.Sequence([isolated, level])
    backend.decoder = decoders.ByteLevel()
    return backend, spelled


def _sentencepiece(vocabulary: Vocabulary) -> tuple[Backend, list[str]]:
    merges = _listed_merges(vocabulary) or _merges_by_score(vocabulary)
    backend = _byte_fallback_bpe(vocabulary, vocabulary.tokens, merges)
    scheme = "first" if vocabulary.add_space else "never"
    backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme=scheme, split=False)
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if vocabulary.add_space else steps)
    return backend, vocabulary.tokens


def _gemma(vocabulary: Vocabulary) -> tuple[Backend, list[str]]:
    """SentencePiece whose merges follow the order of the tokens instead of their scores, with runs of spaces stored as
    real spaces."""
    spelled = [SPACE * len(token) if token.isspace() and " " in token else token for token in vocabulary.tokens]
    backend = _byte_fallback_bpe(vocabulary, spelled, list(_merges_in_order(spelled, vocabulary.types)))
    backend.normalizer = normalizers.Replace(" ", SPACE)
    backend.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    return backend, spelled


def _byte_fallback_bpe(vocabulary: Vocabulary, spelled: list[str], merges: list[tuple[str, str]]) -> Backend:
    unknown = None if vocabulary.unk is None else spelled[vocabulary.unk]
    return Backend(BPE(vocab=_ids(spelled), merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))


def _ids(tokens: Sequence[str]) -> dict[str, int]:
    return {token: index for index, token in enumerate(tokens)}


def _in_stand_ins(token: str) -> str:
    """A token in the byte alphabet; one that is not spelled so yet is taken as text."""
    spelled = all(char in BYTE_OF for char in token)
    return token if spelled else "".join(CHAR_OF[byte] for byte in token.encode())


def _listed_merges(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    pairs = []
    for merge in vocabulary.merges:
        left, _, right = merge.partition(" ")
        pairs.append((left, right))
    return pairs


def _splits_of(token: str, ids: dict[str, int]) -> list[tuple[str, str]]:
    """Every way to cut ``token`` into two tokens, the longest left part first."""
    return [
        (token[:cut], token[cut:])
        for cut in range(len(token) - 1, 0, -1)
        # millions of cuts in a large vocabulary, and few right parts are tokens: look there first
        if token[cut:] in ids and token[:cut] in ids
    ]


def _merges_in_order(tokens: Sequence[str], types: Sequence[int]) -> Iterator[tuple[str, str]]:
    ids = _ids(tokens)
    for token, kind in zip(tokens, types, strict=True):
        if kind not in UNMERGED:
            yield from _splits_of(token, ids)


def _merges_by_score(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """Merges that SentencePiece implies: the pair whose joined token scores best goes first."""
    ids = _ids(vocabulary.tokens)
    if len(vocabulary.scores) != len(vocabulary.tokens):
        raise VocabularyError("tokenizer.ggml.scores: neither scores nor merges for every token")
    ranked = [
        (score, len(left), len(right), left, right)
        for token, score, kind in zip(vocabulary.tokens, vocabulary.scores, vocabulary.types, strict=True)
        if kind not in UNMERGED
        for left, right in _splits_of(token, ids)
    ]
    ranked.sort(key=lambda entry: entry[:3], reverse=True)
    return [(left, right) for *_, left, right in ranked]


def _add_tokens(backend: Backend, vocabulary: Vocabulary, spelled: Sequence[str]) -> None:
    """Marks the tokens that are matched whole: control tokens as special, user-defined ones as plain.

    A byte-level token outside the alphabet is spelled in stand-ins, so no text can hold it: marking it would add a
    second token.
    """
    ids = _ids(spelled)
    entries = [(token, kind) for token, kind in zip(vocabulary.tokens, vocabulary.types, strict=True) if token in ids]
    named = [vocabulary.text(index) for index in (vocabulary.unk, vocabulary.bos, vocabulary.eos, vocabulary.pad)]
    control = [token for token, kind in entries if kind == CONTROL]
    control += [token for token in named if token is not None and token in ids]
    backend.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in dict.fromkeys(control)])
    plain = [token for token, kind in entries if kind == USER_DEFINED]
    backend.add_tokens([AddedToken(token, normalized=False, special=False) for token in plain])


def _add_ends(backend: Backend, vocabulary: Vocabulary) -> None:
    """BOS and EOS around an encoded text, where the model wants them."""
    bos = vocabulary.text(vocabulary.bos) if vocabulary.add_bos else None
    eos = vocabulary.text(vocabulary.eos) if vocabulary.add_eos else None
    parts = [*([bos] if bos else []), "$A", *([eos] if eos else [])]
    named = [(text, index) for text, index in ((bos, vocabulary.bos), (eos, vocabulary.eos)) if text]
    backend.post_processor = processors.TemplateProcessing(single=" ".join(parts), special_tokens=named)
