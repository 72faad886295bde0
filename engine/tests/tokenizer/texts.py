"""Texts that tell tokenizers apart."""

from __future__ import annotations

import random

CHOSEN = (
    "",
    " ",
    "   ",
    "\n\n\n\n",
    "\r\n\r\nx",
    "Hello world",
    " leading",
    "trailing ",
    "a  b   c    d",
    "The year 2024 was 3.14159% better, 1234567890 12 345",
    "    1\n\t\tx = 1\n",
    "def f(x):\n    return x[1:2]  # 100\n",
    "I'm you're WE'LL can't o'clock",
    "日本語のテキスト、中文，한국어",
    "😀👩‍👩‍👧‍👦🏳️‍🌈 emoji 👍🏽",
    "naïve café Ångström ﬁ ½ e\u0301",
    "\u200b\u00a0\ufeff zero width \u202e",
    "العربية हिन्दी ไทย Ελληνικά Привет",
    "\U00010348 𝔘𝔫𝔦𝔠𝔬𝔡𝔢",
    "<|im_start|>user\nHi<|im_end|>\n",
    "<start_of_turn>user\nhi<end_of_turn><bos><eos>",
    "<b>bold</b> <table><tr> <unused5> [multimodal] <mask>",
    "<0x0A> ▁ ▁▁ ab\0cd",
    "x" * 300,
)
ALPHABET = "abcXYZ 019  \n\t.,;:'\"!?()[]{}<>|_-+=*/\\#@$%^&~`éüñßø日本語中文한국어😀👍🏽\u0301\u200d\u202eЖжЯ"


def varied(count: int) -> list[str]:
    """The chosen texts, and ``count`` random ones from the alphabet and from all of Unicode."""
    source = random.Random(0)
    ranges = ((0, 0x24F), (0x250, 0xD7FF), (0xE000, 0x1FFFF))
    mixed = ["".join(source.choices(ALPHABET, k=source.randint(1, 40))) for _ in range(count // 2)]
    wild = [
        "".join(chr(source.randint(*source.choice(ranges))) for _ in range(source.randint(1, 20)))
        for _ in range(count - count // 2)
    ]
    return [*CHOSEN, *mixed, *wild]
