from dataclasses import dataclass
from itertools import accumulate

import pytest
import torch

from motley_kernels.paged_attention import HeadMap, PagedBatch, paged_attention

# softmax in float32 over a few hundred keys: errors near 1e-6; half types round weights and output, at 2^-11 and 2^-8
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
# the interpreter's dot is wrong for bfloat16
DTYPES = list(TOLERANCE)[: 3 if torch.cuda.is_available() else 2]


@dataclass
class Case:
    q: torch.Tensor
    k_pool: torch.Tensor
    v_pool: torch.Tensor
    batch: PagedBatch
    truth_keys: list[tuple[torch.Tensor, torch.Tensor]]
    q_lens: list[int]


def make_case(lens, q_heads, kv_heads, size, page_size, dtype, device, window=0):
    """Sequences of (q_len, kv_len) on shuffled pages. All slots that no query may see hold NaN: other pages, the tail
    of last pages, and with a window whole pages whose table entry points at the sink."""
    tables, keys, used = [], [], 1
    total = sum(-(-kv // page_size) for _, kv in lens) + 3
    order = (torch.randperm(total - 1) + 1).tolist()
    columns = max([-(-kv // page_size) for _, kv in lens] + [1]) + 2
    pools = [torch.full((total, page_size, kv_heads, size), float("nan"), dtype=dtype) for _ in range(2)]
    for q_len, kv_len in lens:
        count = -(-kv_len // page_size)
        pages = order[used - 1 : used - 1 + count]
        used += count
        k, v = torch.randn(2, kv_len, kv_heads, size, dtype=dtype)
        first = max(0, kv_len - q_len - window + 1) if window else 0
        for position in range(first, kv_len):
            pools[0][pages[position // page_size], position % page_size] = k[position]
            pools[1][pages[position // page_size], position % page_size] = v[position]
        pages = [0 if window and (column + 1) * page_size <= first else page for column, page in enumerate(pages)]
        tables.append(pages + [total + 1000] * (columns - count))
        keys.append((k, v))
    q_lens = [q for q, _ in lens]
    batch = PagedBatch(
        page_table=torch.tensor(tables, dtype=torch.int32, device=device).view(len(lens), columns),
        q_starts=torch.tensor([0, *accumulate(q_lens)], dtype=torch.int32, device=device),
        kv_lens=torch.tensor([kv for _, kv in lens], dtype=torch.int32, device=device),
        decode=all(q == 1 for q in q_lens),
        max_q=max(q_lens, default=0),
        max_kv=max((kv for _, kv in lens), default=0),
    )
    fused = torch.randn(sum(q_lens), q_heads + 1, size, dtype=dtype, device=device)
    return Case(fused[:, :q_heads], pools[0].to(device), pools[1].to(device), batch, keys, q_lens)


def truth(case, heads, scale, window, softcap):
    """Attention spelled out, query by query and head by head, in float64."""
    out, token = torch.zeros(case.q.shape, dtype=torch.float64), 0
    for q_len, (k, v) in zip(case.q_lens, case.truth_keys, strict=True):
        for i in range(q_len):
            position = len(k) - q_len + i
            low = max(0, position - window + 1) if window else 0
            for head in range(case.q.shape[1] if len(k) else 0):
                kv_head = (head + heads.offset) // heads.group
                keys, values = (x[low : position + 1, kv_head].double() for x in (k, v))
                scores = keys @ case.q[token, head].double().cpu() * scale
                if softcap:
                    scores = softcap * torch.tanh(scores / softcap)
                out[token, head] = scores.softmax(0) @ values
            token += 1
    return out


def check(case, heads, dtype, backend, window=0, softcap=0.0):
    scale = 0.3
    out = paged_attention(
        case.q,
        case.k_pool,
        case.v_pool,
        case.batch,
        heads,
        scale=scale,
        window=window,
        softcap=softcap,
        backend=backend,
    )
    assert out.dtype == dtype
    expected = truth(case, heads, scale, window, softcap)
    torch.testing.assert_close(out.double().cpu(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


BACKENDS = pytest.mark.parametrize("backend", ["torch", "triton"])
# a padded sequence (kv 0), one token in all, a whole prompt, a chunk after a prefix, ragged tails off every tile
MIXED = [(1, 1), (5, 5), (1, 0), (0, 7), (3, 70), (1, 33), (67, 67), (1, 130)]
DECODE = [(1, 1), (1, 500), (1, 0), (1, 63), (1, 64), (1, 65), (1, 17)]


@BACKENDS
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lens", [MIXED, DECODE], ids=["mixed", "decode"])
def test_attention_over_ragged_batches(backend, dtype, lens, device):
    check(make_case(lens, 6, 2, 20, 4, dtype, device), HeadMap(3), dtype, backend)


# group 1: plain heads; 3: SmolLM2, off every power of two; 4 and 8: Qwen3, Llama; 5 heads of 1 K/V head: an odd rank
@BACKENDS
@pytest.mark.parametrize(("q_heads", "group"), [(2, 1), (9, 3), (8, 4), (16, 8), (5, 8)])
@pytest.mark.parametrize("lens", [[(9, 40), (1, 12)], [(1, 40), (1, 12)]], ids=["mixed", "decode"])
def test_attention_of_any_head_ratio(backend, q_heads, group, lens, device):
    case = make_case(lens, q_heads, HeadMap(group).kv_heads(q_heads), 32, 8, torch.float32, device)
    check(case, HeadMap(group), torch.float32, backend)


# ranks 1 and 2 of a split that cuts groups of 3 in packets of 2: heads 2..3 and 4..5 of 6
@BACKENDS
@pytest.mark.parametrize(("offset", "q_heads"), [(2, 2), (1, 2), (4, 3)])
@pytest.mark.parametrize("lens", [[(9, 40), (1, 12)], [(1, 40), (1, 12)]], ids=["mixed", "decode"])
def test_attention_of_a_rank_that_cuts_a_group(backend, offset, q_heads, lens, device):
    heads = HeadMap(3, offset)
    case = make_case(lens, q_heads, 3, 16, 4, torch.float32, device)
    check(case, heads, torch.float32, backend)


@BACKENDS
@pytest.mark.parametrize("page_size", [1, 2, 16, 256])
@pytest.mark.parametrize("lens", [[(9, 40), (1, 300)], [(1, 40), (1, 300)]], ids=["mixed", "decode"])
def test_attention_of_any_page_size(backend, page_size, lens, device):
    check(make_case(lens, 3, 1, 16, page_size, torch.float32, device), HeadMap(3), torch.float32, backend)


@BACKENDS
@pytest.mark.parametrize("window", [1, 8, 50])
@pytest.mark.parametrize("lens", [MIXED, DECODE], ids=["mixed", "decode"])
def test_window_never_reads_dropped_pages(backend, window, lens, device):
    case = make_case(lens, 4, 2, 16, 4, torch.float32, device, window=window)
    check(case, HeadMap(2), torch.float32, backend, window=window)


@BACKENDS
@pytest.mark.parametrize("window", [0, 8])
@pytest.mark.parametrize("lens", [[(9, 40), (1, 12)], [(1, 40), (1, 12)]], ids=["mixed", "decode"])
def test_softcap_bounds_the_scores(backend, window, lens, device):
    case = make_case(lens, 4, 2, 64, 4, torch.float32, device, window=window)
    check(case, HeadMap(2), torch.float32, backend, window=window, softcap=1.5)


# head sizes off the power of two (80, 96) and the widest in use (256)
@BACKENDS
@pytest.mark.parametrize("size", [80, 96, 256])
@pytest.mark.parametrize("lens", [[(9, 40), (1, 12)], [(1, 40), (1, 12)]], ids=["mixed", "decode"])
def test_attention_of_any_head_size(backend, size, lens, device):
    check(make_case(lens, 4, 1, size, 16, torch.float32, device), HeadMap(4), torch.float32, backend)


# more queries than a tile of either implementation, with a prefix that is no multiple of it
@BACKENDS
@pytest.mark.parametrize("window", [0, 100])
def test_long_chunk_after_a_prefix(backend, window, device):
    case = make_case([(300, 333), (1, 5)], 1, 1, 16, 16, torch.float32, device, window=window)
    check(case, HeadMap(1), torch.float32, backend, window=window)


@pytest.mark.parametrize("splits", [1, 2, 7, 16])
@pytest.mark.parametrize("window", [0, 90])
def test_splits_merge_to_the_same_answer(splits, window, device):
    from motley_kernels.paged_attention import triton

    case = make_case(DECODE, 6, 2, 20, 4, torch.float32, device, window=window)
    heads = HeadMap(3)
    out = triton.paged_attention(case.q, case.k_pool, case.v_pool, case.batch, heads, 0.3, window, 0.0, splits)
    torch.testing.assert_close(out.double().cpu(), truth(case, heads, 0.3, window, 0.0), rtol=1e-5, atol=1e-5)


@BACKENDS
def test_no_tokens(backend, device):
    case = make_case([(0, 4)], 2, 1, 16, 4, torch.float32, device)
    case.batch.decode = False
    out = paged_attention(case.q, case.k_pool, case.v_pool, case.batch, HeadMap(2), scale=1.0, backend=backend)
    assert out.shape == (0, 2, 16)


def test_same_answer_alone_and_in_a_batch(device):
    case = make_case([(1, 20 + 9 * i) for i in range(24)], 6, 2, 16, 4, torch.float32, device)
    out = paged_attention(case.q, case.k_pool, case.v_pool, case.batch, HeadMap(3), scale=0.3)
    for row in range(24):
        line = slice(row, row + 1)
        alone = PagedBatch(case.batch.page_table[line], case.batch.q_starts[:2], case.batch.kv_lens[line], True, 1, 300)
        one = paged_attention(case.q[line], case.k_pool, case.v_pool, alone, HeadMap(3), scale=0.3)
        torch.testing.assert_close(one, out[line], rtol=1e-6, atol=1e-6)


def test_refusals_name_the_fault(device):
    case = make_case([(1, 4), (1, 4)], 4, 2, 16, 4, torch.float32, device)
    arguments = (case.q, case.k_pool, case.v_pool, case.batch)
    with pytest.raises(ValueError, match="need more than 2 K/V heads"):
        paged_attention(*arguments, HeadMap(1), scale=1.0)
    with pytest.raises(ValueError, match="not a power of two"):
        paged_attention(
            case.q, case.k_pool[:, :3].contiguous(), case.v_pool[:, :3].contiguous(), case.batch, HeadMap(2), scale=1.0
        )
    with pytest.raises(ValueError, match="decode batch of 2"):
        paged_attention(case.q[:1], case.k_pool, case.v_pool, case.batch, HeadMap(2), scale=1.0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_captured_decode_follows_the_lengths(device):
    """One graph, captured with upper bounds, serves any batch that fits it."""
    heads, bound = HeadMap(4), 4096
    cases = [
        make_case(lens, 8, 2, 64, 16, torch.bfloat16, device) for lens in ([(1, 0)] * 3, [(1, 900), (1, 0), (1, 17)])
    ]
    wide = [torch.zeros(3, bound // 16, dtype=torch.int32, device=device) for _ in cases]
    for table, case in zip(wide, cases, strict=True):
        table[:, : case.batch.page_table.shape[1]] = case.batch.page_table
    first, second = cases
    static = PagedBatch(wide[0], second.batch.q_starts, first.batch.kv_lens, True, 1, bound)
    arguments = (second.q, second.k_pool, second.v_pool, static, heads)
    paged_attention(*arguments, scale=0.3, backend="triton")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = paged_attention(*arguments, scale=0.3, backend="triton")
    wide[0].copy_(wide[1])
    static.kv_lens.copy_(second.batch.kv_lens)
    graph.replay()
    tolerance = TOLERANCE[torch.bfloat16]
    torch.testing.assert_close(out.double().cpu(), truth(second, heads, 0.3, 0, 0.0), rtol=tolerance, atol=tolerance)
