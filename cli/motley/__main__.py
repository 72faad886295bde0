"""``python -m motley``."""

from __future__ import annotations

from motley.main import main

if __name__ == "__main__":
    main()
