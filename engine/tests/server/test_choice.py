"""One sequence from updates to text: cuts of the token stream change nothing, and ends are told once."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st
from server.fake_model import END, byte_tokenizer

from motley_engine.messages import Batch, FinishReason, Update
from motley_engine.sampling.params import SamplingParams
from motley_engine.server.choice import Choice
from motley_engine.server.generation import Generation
from motley_engine.server.resolve import SequenceRequest

TOKENIZER = byte_tokenizer()


def request(**fields) -> SequenceRequest:
    sampling = SamplingParams(max_new_tokens=100, min_new_tokens=fields.pop("min_new_tokens", 0))
    return SequenceRequest(prompt_ids=[*b"prompt "], sampling=sampling, **fields)


def updates(ids: list[int], cuts: list[int], finish: FinishReason) -> list[Update]:
    bounds = [*sorted({0, *(cut % (len(ids) + 1) for cut in cuts)}), len(ids)]
    parts = [Update(rid="1", token_ids=ids[a:b]) for a, b in itertools.pairwise(bounds)]
    return [*parts[:-1], Update(rid="1", token_ids=parts[-1].token_ids, finish=finish)]


@given(
    st.text(max_size=20),
    st.lists(st.integers(0, 99), max_size=6),
    st.lists(st.text(min_size=1, max_size=3), max_size=2),
)
def test_text_does_not_depend_on_how_tokens_are_grouped(text, cuts, stops):
    ids = [*text.encode(), END]
    choice = Choice(0, request(stops=tuple(stops)), TOKENIZER)
    pieces = []
    for update in updates(ids, cuts, FinishReason(kind="stop", matched=END)):
        choice.feed(update)
        pieces.append(choice.take().text)
    ends = [text.index(stop) + len(stop) for stop in stops if stop in text]
    if not ends:
        assert choice.text == text
        assert choice.finish.matched == END
        assert choice.output_ids == ids
    else:
        end = min(ends)
        longest = max((stop for stop in stops if text[:end].endswith(stop)), key=len)
        assert choice.text == text[: end - len(longest)]
        assert choice.finish.matched == longest
        assert choice.output_ids == [*text[:end].encode()]
    assert "".join(pieces) == choice.text


def test_bytes_of_an_unfinished_character_are_shown_as_a_replacement_at_the_end():
    choice = Choice(0, request(), TOKENIZER)
    choice.feed(Update(rid="1", token_ids=[0x61, 0xC3]))
    assert choice.take().text == "a"
    choice.feed(Update(rid="1", token_ids=[], finish=FinishReason(kind="length")))
    assert choice.take().text == "\ufffd"


def test_a_stop_string_before_the_minimum_length_does_not_end_the_answer():
    choice = Choice(0, request(stops=("b",), min_new_tokens=4), TOKENIZER)
    choice.feed(Update(rid="1", token_ids=[*b"abcdb"]))
    assert choice.text == "abcd"
    assert choice.finish.matched == "b"


def test_an_abort_keeps_what_was_said():
    choice = Choice(0, request(stops=("END",)), TOKENIZER)
    choice.feed(Update(rid="1", token_ids=[*b"abE"]))
    choice.feed(Update(rid="1", finish=FinishReason(kind="abort", message="shutdown")))
    assert choice.text == "abE"
    assert (choice.finish.kind, choice.finish.message) == ("abort", "shutdown")


async def test_stream_interval_groups_tokens_but_never_the_first(service_with):
    async with service_with(server={"stream_interval": 3}) as service:
        service.engine.silent = True
        generation = Generation(service.state, ["r"], [request()])
        [rid] = generation._subscription.rids
        rounds = aiter(generation)
        texts = []
        for sent, token in enumerate(b"abcdefgh", start=1):
            finish = FinishReason(kind="length") if sent == 8 else None
            service.state.client._handle(Batch(updates=[Update(rid=rid, token_ids=[token], finish=finish)]))
            # after the first token an event is due with every third one, and at the end
            if sent in (1, 4, 7, 8):
                [choice] = await anext(rounds)
                texts.append(choice.take().text)
        assert texts == ["a", "bcd", "efg", "h"]
        generation.close()
