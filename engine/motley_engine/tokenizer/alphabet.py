"""The printable stand-ins for bytes that byte-level vocabularies are spelled in (as GPT-2 introduced them)."""

from __future__ import annotations


def _stand_ins() -> dict[int, str]:
    """Printable Latin-1 bytes stand for themselves; the other 68 take the code points from 256 on, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in set(printable)]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + place) for place, byte in enumerate(hidden)}


CHAR_OF = _stand_ins()
BYTE_OF = {char: byte for byte, char in CHAR_OF.items()}
