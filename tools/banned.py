"""Greps tracked Python files for calls the style guide bans; exits 1 with file and line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

EVERYWHERE = {
    r"except\s*:": "bare except",
    r"make_block_ptr": "Triton block pointers",
    r"//\s*world_size": "even split by world size",
}
IN_TESTS = {
    r"\btime\.sleep\(": "sleep in a test",
    r"\basyncio\.sleep\((?!0\))": "sleep in a test",
}


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "*.py"], check=True, capture_output=True, text=True).stdout
    return [Path(line) for line in listed.splitlines() if line != "tools/banned.py"]


def is_test(path: Path) -> bool:
    return "tests" in path.parts or path.name.startswith("test_") or path.parts[0] == "e2e"


def main() -> int:
    found = 0
    for path in tracked():
        if not path.exists():
            continue
        rules = {**EVERYWHERE, **(IN_TESTS if is_test(path) else {})}
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for pattern, why in rules.items():
                if re.search(pattern, line):
                    print(f"{path}:{number}: {why}: {line.strip()}")
                    found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
