"""Fills a rank's parameters from a checkpoint, piece by piece, in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass

import torch

from motley_engine.loader.checkpoint import CheckpointReader, Piece
from motley_engine.loader.errors import CheckpointError

Progress = Callable[[int, int], None]
"""Called with (bytes filled, bytes to fill), always from the thread that called ``load_weights``."""

CHUNK_ELEMENTS = 1 << 24
"""Elements read at once where a piece is cut by rows: bounds the memory that conversion needs, per thread."""
CHUNK_ROWS = 256
"""Chunks are multiples of this many rows, so that they end between attention heads."""
LISTED = 8
"""Tensors named in one error message."""


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a load did. ``unused`` names tensors of the checkpoint that no piece asked for."""

    tensors: int
    bytes: int
    unused: tuple[str, ...]


def load_weights(
    pieces: Iterable[Piece], reader: CheckpointReader, threads: int = 4, progress: Progress | None = None
) -> LoadReport:
    """Fills every piece's ``into`` with its slice, converted to the parameter's type.

    All names and shapes are checked before the first byte is read. CheckpointError names the tensor at fault with the
    expected and the found shape; a failed read ends the load and is raised as it is.
    """
    wanted = list(pieces)
    check_pieces(wanted, reader)
    chunks = [chunk for piece in wanted for chunk in _chunks(piece, reader)]
    total = sum(_bytes(chunk) for chunk in chunks)
    done = 0
    with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="load") as pool:
        running = {pool.submit(_fill, chunk, reader): _bytes(chunk) for chunk in chunks}
        for future in _completed(running):
            done += running[future]
            if progress is not None:
                progress(done, total)
    used = {piece.name for piece in wanted}
    return LoadReport(tensors=len(used), bytes=total, unused=tuple(sorted(reader.names() - used)))


def check_pieces(pieces: Iterable[Piece], reader: CheckpointReader) -> None:
    """CheckpointError if a tensor is missing, or a slice has another shape than its parameter."""
    present = reader.names()
    wanted = list(pieces)
    missing = sorted({piece.name for piece in wanted} - present)
    if missing:
        more = f" and {len(missing) - LISTED} more" if len(missing) > LISTED else ""
        raise CheckpointError(f"the checkpoint lacks {', '.join(missing[:LISTED])}{more}")
    for piece in wanted:
        whole = reader.shape(piece.name)
        found = _slice_shape(piece, whole)
        expected = tuple(piece.into.shape)
        if found != expected:
            cut = "" if piece.dim is None else f" [{piece.start}:{piece.stop}] along dimension {piece.dim}"
            raise CheckpointError(
                f"{piece.name}: expected shape {list(expected)}, found {list(found or whole)} "
                f"(whole tensor {list(whole)}{cut}); the checkpoint does not fit the model's config"
            )


def _slice_shape(piece: Piece, whole: tuple[int, ...]) -> tuple[int, ...] | None:
    """Shape of the slice; None if it lies outside the tensor."""
    if piece.dim is None:
        return whole
    if piece.dim >= len(whole) or not 0 <= piece.start <= piece.stop <= whole[piece.dim]:
        return None
    return (*whole[: piece.dim], piece.stop - piece.start, *whole[piece.dim + 1 :])


def _chunks(piece: Piece, reader: CheckpointReader) -> Iterator[Piece]:
    """The piece, cut by rows if it is large. Pieces cut along another dimension stay whole."""
    rows = piece.into.shape[0]
    if piece.dim not in (None, 0) or piece.into.numel() <= CHUNK_ELEMENTS:
        yield piece
        return
    per_row = piece.into.numel() // rows
    step = max(CHUNK_ELEMENTS // per_row // CHUNK_ROWS, 1) * CHUNK_ROWS
    first = piece.start if piece.dim == 0 else 0
    for begin in range(0, rows, step):
        end = min(begin + step, rows)
        yield Piece(piece.name, piece.into[begin:end], 0, first + begin, first + end)


def _bytes(piece: Piece) -> int:
    return piece.into.numel() * piece.into.element_size()


def _fill(piece: Piece, reader: CheckpointReader) -> None:
    if piece.into.numel():
        with torch.no_grad():
            piece.into.copy_(reader.read(piece.name, piece.dim, piece.start, piece.stop, piece.into.device))


def _completed(running: Iterable[Future[None]]) -> Iterator[Future[None]]:
    """Futures as they end; the first error cancels the rest and is raised."""
    pending = list(running)
    try:
        for future in as_completed(pending):
            future.result()
            yield future
    finally:
        for future in pending:
            future.cancel()
