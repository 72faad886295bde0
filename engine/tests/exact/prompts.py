"""The forty prompts of the equality suite: chat, code, long, unicode and very short ones."""

from __future__ import annotations

from dataclasses import dataclass

CHAT = (
    "What is the capital of France?",
    "Name three primary colours and say why they are called primary.",
    "Write a haiku about rain on a tin roof.",
    "Explain gravity to a five-year-old in two sentences.",
    "What is 17 times 23? Show the steps.",
    "Give me a recipe for pancakes with four ingredients.",
    "Who wrote Hamlet, and in which century?",
    "Translate 'good morning, my friend' into Spanish and German.",
    "List the planets of the solar system in order of size.",
    "Summarise the plot of Romeo and Juliet in one paragraph.",
    "What should I pack for a winter trip to Norway?",
    "Is a tomato a fruit or a vegetable? Argue both sides.",
)
CODE = (
    "def fibonacci(n):\n    ",
    "#include <stdio.h>\n\nint main(void) {\n    for (int i = 0; i < 10; ++i) {\n",
    "SELECT name, COUNT(*) FROM orders\nJOIN customers ON",
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n",
    "import numpy as np\n\n# compute the pairwise distances between the rows of x\ndef pairwise(x):\n",
    "fn main() {\n    let mut total: u64 = 0;\n    for value in values.iter() {\n",
    '{"name": "motley", "version": "0.1.0", "dependencies": {',
    "<html>\n<head><title>Uneven</title></head>\n<body>\n<ul>\n  <li>",
)
UNICODE = (
    "東京の天気は",
    "Привет, как дела? Сегодня мы",
    "Les élèves étudiaient à l'école pendant l'été, où",
    "🎉🎊 Party time! 🥳 The best emoji for",
    "مرحبا بالعالم",
    "naïve café — “smart quotes” … and ½ cup of crème brûlée",
    "αβγδ: the Greek letters ∀x∈ℝ, ∃y such that",
    "한국어로 인사말을 쓰면",
)
SHORT = ("a", "The", " ", "\n", "0", "Hello")
_SENTENCE = (
    "The {0} cart rolled past the {1} mill while {2} sparrows argued about the weather, and nobody in the village of "
    "number {3} thought it strange. "
)
_WORDS = ("red", "stone", "seven", "old", "tired", "windy", "twelve", "quiet", "green", "broken", "forty", "distant")


@dataclass(frozen=True, slots=True)
class Prompt:
    """``text`` is rendered through the chat template when ``chat`` and the model has one."""

    name: str
    text: str
    chat: bool = False


def _long(start: int, sentences: int, question: str) -> str:
    parts = []
    for i in range(start, start + sentences):
        pick = [_WORDS[(i * k + k) % len(_WORDS)] for k in (1, 5, 7)]
        parts.append(_SENTENCE.format(*pick, i))
    return "".join(parts) + question


def all_prompts() -> list[Prompt]:
    """Forty prompts; the three longest exceed 2,000 tokens, and two of those share a long prefix."""
    rows = [Prompt(f"chat-{i}", text, chat=True) for i, text in enumerate(CHAT)]
    rows += [Prompt(f"code-{i}", text) for i, text in enumerate(CODE)]
    rows += [Prompt(f"unicode-{i}", text) for i, text in enumerate(UNICODE)]
    rows += [Prompt(f"short-{i}", text) for i, text in enumerate(SHORT)]
    rows += [
        Prompt("medium-0", _long(0, 5, "In short,")),
        Prompt("medium-1", _long(3, 12, "The moral is")),
        Prompt("medium-2", _long(40, 18, "Therefore")),
        Prompt("long-0", _long(0, 72, "What happened in the village?"), chat=True),
        Prompt("long-1", _long(0, 72, "The last cart was")),
        Prompt("long-2", _long(200, 70, "And so")),
    ]
    return rows
