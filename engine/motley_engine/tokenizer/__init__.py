"""Text to token ids and back, for Hugging Face directories and GGUF files alike."""

from motley_engine.tokenizer.detokenize import Detokenizer
from motley_engine.tokenizer.load import TokenizerError, load_tokenizer
from motley_engine.tokenizer.template import ChatTemplateError
from motley_engine.tokenizer.wrapper import SpecialTokens, Tokenizer

__all__ = ["ChatTemplateError", "Detokenizer", "SpecialTokens", "Tokenizer", "TokenizerError", "load_tokenizer"]
