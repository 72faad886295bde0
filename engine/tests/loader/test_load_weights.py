"""Filling parameters: every check before the first read, bounded parallel reads, progress, errors."""

from __future__ import annotations

import threading

import pytest
import torch

from motley_engine.loader import CheckpointError, Piece, load, load_weights


class MemoryReader:
    """A checkpoint in memory that counts how many reads run at once."""

    def __init__(self, tensors: dict[str, torch.Tensor], fail: str = "") -> None:
        self.tensors = tensors
        self.fail = fail
        self.reads: list[tuple[str, int | None, int, int]] = []
        self.running = self.most = 0
        self.lock = threading.Lock()

    def names(self) -> frozenset[str]:
        return frozenset(self.tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.tensors[name].shape)

    def read(self, name: str, dim: int | None, start: int, stop: int, device: torch.device) -> torch.Tensor:
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
            self.reads.append((name, dim, start, stop))
        try:
            if name == self.fail:
                raise CheckpointError(f"{name}: disk gone")
            tensor = self.tensors[name]
            return (tensor if dim is None else tensor.narrow(dim, start, stop - start)).to(device)
        finally:
            with self.lock:
                self.running -= 1


@pytest.fixture
def reader() -> MemoryReader:
    return MemoryReader({"rows": torch.arange(600.0).view(60, 10), "norm": torch.ones(10), "spare": torch.zeros(1)})


def test_pieces_take_their_slices_in_their_type(reader: MemoryReader) -> None:
    rows, columns, norm = torch.empty(7, 10), torch.empty(60, 3).bfloat16(), torch.empty(10)
    pieces = [Piece("rows", rows, 0, 5, 12), Piece("rows", columns, 1, 2, 5), Piece("norm", norm)]
    report = load_weights(iter(pieces), reader)
    assert torch.equal(rows, reader.tensors["rows"][5:12])
    assert torch.equal(columns, reader.tensors["rows"][:, 2:5].bfloat16())
    assert torch.equal(norm, torch.ones(10))
    assert report.tensors == 2
    assert report.unused == ("spare",)
    assert report.bytes == 7 * 10 * 4 + 60 * 3 * 2 + 10 * 4


def test_large_pieces_are_read_in_row_chunks(reader: MemoryReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "CHUNK_ELEMENTS", 100)
    monkeypatch.setattr(load, "CHUNK_ROWS", 4)
    whole, part = torch.empty(60, 10), torch.empty(30, 10)
    seen: list[tuple[int, int]] = []
    report = load_weights(
        [Piece("rows", whole), Piece("rows", part, 0, 25, 55)],
        reader,
        threads=3,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert torch.equal(whole, reader.tensors["rows"])
    assert torch.equal(part, reader.tensors["rows"][25:55])
    assert max(stop - start for _, _, start, stop in reader.reads) == 8
    assert reader.most <= 3
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (report.bytes, report.bytes)


def test_missing_tensors_are_listed_before_any_read(reader: MemoryReader) -> None:
    pieces = [Piece("norm", torch.empty(10)), Piece("head", torch.empty(1)), Piece("bias", torch.empty(1))]
    with pytest.raises(CheckpointError, match="the checkpoint lacks bias, head"):
        load_weights(pieces, reader)
    assert not reader.reads


@pytest.mark.parametrize(
    ("piece", "found"),
    [
        (Piece("rows", torch.empty(6, 10), 0, 5, 12), r"expected shape \[6, 10\], found \[7, 10\]"),
        (Piece("rows", torch.empty(60, 9)), r"expected shape \[60, 9\], found \[60, 10\]"),
        (Piece("rows", torch.empty(9, 10), 0, 55, 64), r"\[55:64\] along dimension 0"),
        (Piece("norm", torch.empty(10, 2), 1, 0, 2), r"whole tensor \[10\]"),
    ],
)
def test_shapes_that_do_not_fit_are_named_before_any_read(piece: Piece, found: str, reader: MemoryReader) -> None:
    with pytest.raises(CheckpointError, match=f"^{piece.name}: .*{found}"):
        load_weights([piece], reader)
    assert not reader.reads


def test_a_failed_read_ends_the_load(reader: MemoryReader) -> None:
    reader.fail = "norm"
    with pytest.raises(CheckpointError, match="norm: disk gone"):
        load_weights([Piece("norm", torch.empty(10)), Piece("rows", torch.empty(60, 10))], reader, threads=1)


def test_an_empty_shard_reads_nothing(reader: MemoryReader) -> None:
    load_weights([Piece("rows", torch.empty(0, 10), 0, 60, 60)], reader)
    assert not reader.reads
