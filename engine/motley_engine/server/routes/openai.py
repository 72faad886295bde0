"""What chat and completions have in common, and ``/v1/models``."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from fastapi import APIRouter, Request
from starlette.responses import Response

from motley_engine.server.body import server_state
from motley_engine.server.choice import Choice, Finish
from motley_engine.server.errors import ApiError, json_response
from motley_engine.server.protocol.answers import PromptDetails, Usage
from motley_engine.server.protocol.openai import OpenAIRequest
from motley_engine.server.state import ServerState

router = APIRouter()


@router.get("/v1/models")
async def list_models(request: Request) -> Response:
    return json_response({"object": "list", "data": [_card(server_state(request))]})


@router.get("/v1/models/{name:path}")
async def get_model(request: Request, name: str) -> Response:
    state = server_state(request)
    check_model(state, name)
    return json_response(_card(state))


def check_model(state: ServerState, name: str | None) -> None:
    """Raises ApiError 404 unless ``name`` is the served model or unset."""
    if name is not None and name != state.model.name:
        message = f"model: {name[:200]!r} does not exist; this server has {state.model.name!r}"
        raise ApiError(404, message, param="model", code="model_not_found")


def answer_id(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex}"


def usage(choices: Sequence[Choice], n: int) -> Usage:
    """Tokens of one HTTP request: each prompt counts once, however many choices share it."""
    prompts = [choices[start : start + n] for start in range(0, len(choices), n)]
    prompt_tokens = sum(len(group[0].request.prompt_ids) for group in prompts)
    completion_tokens = sum(len(choice.output_ids) for choice in choices)
    # a later choice finds the prompt that an earlier one computed; what was cached before is the least of them
    cached = sum(min(choice.cached_tokens for choice in group) for group in prompts)
    return Usage(prompt_tokens, completion_tokens, prompt_tokens + completion_tokens, PromptDetails(cached))


def finish_reason(finish: Finish | None) -> str:
    """OpenAI's word for why a choice ended."""
    assert finish is not None
    return finish.kind


def wants_usage(body: OpenAIRequest) -> tuple[bool, bool]:
    """Whether a stream ends with a usage chunk, and whether every chunk carries usage."""
    options = body.stream_options
    if options is None:
        return False, False
    return bool(options.include_usage), bool(options.continuous_usage_stats)


def _card(state: ServerState) -> dict[str, object]:
    model = state.model
    return {
        "id": model.name,
        "object": "model",
        "created": state.created,
        "owned_by": "motley",
        "root": model.path,
        "parent": None,
        "max_model_len": model.max_sequence,
    }
