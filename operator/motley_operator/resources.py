"""Files that ship with motley: in the wheel they lie inside this package, in a checkout at the repository's root."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def resource(kind: str, name: str) -> Path:
    """``kind`` is crds, charts or examples. FileNotFoundError naming both places if the file is in neither."""
    places = (_PACKAGE / "data" / kind / name, _PACKAGE.parents[1] / kind / name)
    for place in places:
        if place.exists():
            return place
    raise FileNotFoundError(f"{kind}/{name} is neither in the installed package ({places[0]}) nor at {places[1]}")
