"""A byte-level tokenizer, a served model and a server state for tests; no weights, no files but sockets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import AddedToken, decoders, pre_tokenizers
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE

from motley_engine.config.schema import EngineConfig
from motley_engine.server.client import EngineClient
from motley_engine.server.protocol.sampling import SamplingDefaults
from motley_engine.server.state import ServedModel, ServerState
from motley_engine.tokenizer import SpecialTokens, Tokenizer
from motley_engine.tokenizer.alphabet import CHAR_OF

END = 256
VOCABULARY = 258
CONTEXT = 512
MODEL = "echo-model"

# shows the contents only, so that the echoing engine answers with what the user said
TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.content == 'REFUSE' %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "{{ message.content }}"
    "{% endfor %}"
    "{{ suffix if suffix is defined else '' }}"
)


def byte_tokenizer(template: str | None = TEMPLATE) -> Tokenizer:
    """Id b stands for byte b; 256 ends a text and 257 is another special token."""
    backend = Backend(BPE(vocab={CHAR_OF[byte]: byte for byte in range(256)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("<|end|>", special=True), AddedToken("<|turn|>", special=True)])
    return Tokenizer(backend, SpecialTokens(eos="<|end|>"), template)


def make_state(directory: Path, tokenizer: Tokenizer | None, **sections: dict[str, Any]) -> ServerState:
    """A state whose sockets lie in ``directory``; ``sections`` override settings by section name."""
    config = EngineConfig.model_validate(sections)
    model = ServedModel(
        name=MODEL,
        path="file:///models/echo",
        tokenizer_path="file:///models/echo",
        vocab_size=VOCABULARY,
        context_length=CONTEXT,
        pool_tokens=4096,
        eos_token_ids=(END,),
        defaults=SamplingDefaults(),
    )
    client = EngineClient(directory, silence_limit=config.runtime.watchdog_timeout)
    return ServerState(config=config, model=model, tokenizer=tokenizer, client=client, version="0.0-test")
