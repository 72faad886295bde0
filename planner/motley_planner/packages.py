"""Files that Python packages ship, whole or in chunks; chunks are assembled once into a cache."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from motley_planner.source_errors import SourceError

_COPY_BYTES = 4 << 20
_MAX_SIBLINGS = 1000


def find_packaged_file(uri: str, package: str, name: str, cache_dir: Path) -> Path:
    """The file ``name`` of the installed ``package``, which is located but never imported.

    It may lie at the package's top or under ``data/``, or as ``name.part00``, ``name.part01``, ... in the package or in
    sibling packages ``PACKAGE_part1``, ... Chunks are joined below ``cache_dir``, checked against the package's
    SHA256SUMS where it has one, and put in place by an atomic rename. SourceError if anything is missing.
    """
    if not package.isidentifier() or not name or ".." in PurePosixPath(name).parts or name.startswith("/"):
        raise SourceError(f"{uri}: must be package://PACKAGE/FILE")
    roots = _package_roots(package)
    if not roots:
        raise SourceError(f"{uri}: no package {package} is installed; install it, or give another model")
    for folder in _folders(roots):
        if (folder / name).is_file():
            return folder / name
    chunks = _find_chunks(uri, [*roots, *_sibling_roots(package)], name)
    if not chunks:
        raise SourceError(f"{uri}: package {package} has no file {name}")
    return _assemble(uri, chunks, _published_sha256(roots, name), cache_dir / "packages" / package, name)


def _package_roots(package: str) -> list[Path]:
    """Directories of a top-level package; finding a top-level spec executes none of its code."""
    spec = find_spec(package)
    return [Path(place) for place in spec.submodule_search_locations or ()] if spec else []


def _sibling_roots(package: str) -> Iterator[Path]:
    for number in range(1, _MAX_SIBLINGS):
        roots = _package_roots(f"{package}_part{number}")
        if not roots:
            return
        yield from roots


def _folders(roots: Sequence[Path]) -> Iterator[Path]:
    for root in roots:
        yield root
        yield root / "data"


def _find_chunks(uri: str, roots: Sequence[Path], name: str) -> list[Path]:
    """Chunks in order. SourceError if one in the middle is missing."""
    pattern = re.compile(re.escape(PurePosixPath(name).name) + r"\.part(\d+)")
    found: dict[int, Path] = {}
    for folder in _folders(roots):
        parent = (folder / name).parent
        for path in sorted(parent.iterdir()) if parent.is_dir() else ():
            match = pattern.fullmatch(path.name)
            if match:
                found.setdefault(int(match.group(1)), path)
    numbers = sorted(found)
    start = 1 if 0 not in found else 0
    for expected, number in enumerate(numbers, start):
        if number != expected:
            raise SourceError(f"{uri}: chunk {expected} of {name} is missing; reinstall the package with its parts")
    return [found[number] for number in numbers]


def _published_sha256(roots: Sequence[Path], name: str) -> str:
    """The checksum the package states for ``name``; empty if it states none."""
    for folder in _folders(roots):
        sums = folder / "SHA256SUMS"
        for line in sums.read_text(encoding="utf-8").splitlines() if sums.is_file() else ():
            digest, _, file = line.strip().partition(" ")
            if file.strip().lstrip("*") == name and re.fullmatch(r"[0-9a-fA-F]{64}", digest):
                return digest.lower()
    return ""


def _assemble(uri: str, chunks: Sequence[Path], sha256: str, folder: Path, name: str) -> Path:
    """Join ``chunks`` under a name that depends on their sizes and checksum, so other contents get another file."""
    sizes = [chunk.stat().st_size for chunk in chunks]
    identity = hashlib.sha256(f"{sha256} {sizes}".encode()).hexdigest()[:16]
    target = folder / identity / PurePosixPath(name).name
    if target.is_file() and target.stat().st_size == sum(sizes):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _write_joined(uri, chunks, sha256, target)
    except OSError as error:
        raise SourceError(f"{uri}: cannot assemble {target}: {error}") from error
    return target


def _write_joined(uri: str, chunks: Sequence[Path], sha256: str, target: Path) -> None:
    """Write to a private temporary file and rename it: concurrent writers each publish the same complete file."""
    digest = hashlib.sha256()
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as joined:
            for chunk in chunks:
                with chunk.open("rb") as part:
                    while block := part.read(_COPY_BYTES):
                        digest.update(block)
                        joined.write(block)
            joined.flush()
            os.fsync(joined.fileno())
        if sha256 and digest.hexdigest() != sha256:
            raise SourceError(
                f"{uri}: the chunks' SHA-256 is {digest.hexdigest()}, the package states {sha256}; reinstall it"
            )
        Path(temporary).chmod(0o644)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
