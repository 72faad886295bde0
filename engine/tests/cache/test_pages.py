"""Page pools: every page has an owner count, and breaking the rules is noticed at once."""

from __future__ import annotations

import numpy as np
import pytest

from motley_engine.cache.pages import OutOfPagesError, OwnershipError, PagePool


def ints(*values):
    return np.array(values, np.int32)


def test_the_sink_is_never_handed_out():
    pool = PagePool(5)
    assert pool.total == pool.free == 4
    assert sorted(pool.allocate(4).tolist()) == [1, 2, 3, 4]
    with pytest.raises(OutOfPagesError, match="1 pages wanted, 0 of 4 free"):
        pool.allocate(1)


def test_the_page_released_last_is_handed_out_first():
    pool = PagePool(9)
    pages = pool.allocate(4)
    pool.release(pages[1:2])
    assert pool.allocate(1).tolist() == pages[1:2].tolist()


def test_a_shared_page_is_free_only_after_its_last_holder():
    pool = PagePool(3)
    page = pool.allocate(1)
    pool.share(page)
    pool.release(page)
    assert pool.free == 1
    pool.release(page)
    assert pool.free == 2


def test_two_holders_may_let_go_of_a_page_in_one_call():
    pool = PagePool(3)
    page = pool.allocate(1)
    pool.share(page)
    pool.release(np.concatenate((page, page)))
    assert pool.free == 2
    assert sorted(pool.free_pages.tolist()) == [1, 2]


@pytest.mark.parametrize("pages", [ints(1), ints(0), ints(2, 2)], ids=["free", "sink", "twice in one call"])
def test_double_frees_are_detected(pages):
    pool = PagePool(4)
    taken = pool.allocate(2)
    pool.release(taken[:1])
    with pytest.raises(OwnershipError):
        pool.release(pages)


def test_a_free_page_cannot_be_shared():
    with pytest.raises(OwnershipError, match="free page was shared"):
        PagePool(3).share(ints(1))


def test_cached_pages_are_idle_once_no_row_holds_them():
    pool = PagePool(6)
    pages = pool.allocate(3)
    pool.adopt(pages[:2])
    assert (pool.cached, pool.idle) == (2, 0)
    pool.release(pages)
    assert (pool.cached, pool.idle, pool.free) == (2, 2, 3)
    assert pool.abandon(pages[:2]) == 2
    assert pool.free == pool.total


def test_abandoning_a_page_that_a_row_holds_frees_nothing():
    pool = PagePool(3)
    page = pool.allocate(1)
    pool.adopt(page)
    assert pool.abandon(page) == 0
    assert pool.free == 1


def test_cache_marks_are_kept_honest():
    pool = PagePool(4)
    pages = pool.allocate(2)
    pool.adopt(pages[:1])
    with pytest.raises(OwnershipError, match="cached twice"):
        pool.adopt(pages[:1])
    with pytest.raises(OwnershipError, match="not in it"):
        pool.abandon(pages[1:])
    pool.release(pages[:1])
    with pytest.raises(OwnershipError, match="cached page was released by somebody else"):
        pool.release(pages[:1])


def test_a_pool_without_layers_is_empty():
    pool = PagePool(0)
    assert (pool.total, pool.free, pool.idle, pool.cached) == (0, 0, 0, 0)
    assert len(pool.allocate(0)) == 0
