"""Health, facts about the server, cache and abort: everything that generates no text for a user."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from msgspec.structs import asdict
from starlette.responses import PlainTextResponse, Response

from motley_engine.config.schema import EngineConfig
from motley_engine.messages import Generate, Stats
from motley_engine.sampling.params import SamplingParams
from motley_engine.server.body import read_body, server_state
from motley_engine.server.errors import ApiError, bad_request, json_response, unavailable
from motley_engine.server.metrics import CONTENT_TYPE, ServerCollector, exposition
from motley_engine.server.protocol.base import parse
from motley_engine.server.protocol.native import AbortRequest
from motley_engine.server.protocol.schema import json_body
from motley_engine.server.state import Phase

router = APIRouter()

CALL_TIMEOUT = 30.0
"""Seconds that the scheduler gets to answer a flush or an inspection; it hears them between two steps."""
PROBE_TIMEOUT = 20.0
"""Seconds that /health_generate waits for its token."""


@router.get("/health")
async def health(request: Request) -> Response:
    state = server_state(request)
    state.check_serving()
    silence = state.silence()
    if silence > state.silence_limit:
        raise unavailable(f"nothing heard from the scheduler for {silence:.1f} s", "engine_silent")
    return Response()


@router.get("/health_generate")
async def health_generate(request: Request) -> Response:
    """One greedy token through all ranks. Output of another request meanwhile proves as much and ends the wait."""
    state = server_state(request)
    state.check_serving()
    client = state.client
    before, rid = client.outputs, client.next_rid()
    sampling = SamplingParams(max_new_tokens=1, temperature=0.0)
    probe = client.submit([f"health-{rid}"], [Generate(rid=rid, input_ids=[0], sampling=sampling)])
    try:
        async with asyncio.timeout(PROBE_TIMEOUT):
            await client.wait_output(before)
    except TimeoutError:
        raise unavailable(f"no token within {PROBE_TIMEOUT:g} s", "engine_stuck") from None
    finally:
        client.close(probe)
    return Response()


@router.get("/get_model_info")
@router.get("/model_info")
async def model_info(request: Request) -> Response:
    state = server_state(request)
    return json_response(
        {
            "model_path": state.model.path,
            "tokenizer_path": state.model.tokenizer_path,
            "is_generation": True,
            "preferred_sampling_params": state.config.model.preferred_sampling_params or None,
        }
    )


@router.get("/get_server_info")
@router.get("/server_info")
async def server_info(request: Request) -> Response:
    """All settings (secrets hidden), limits, pool sizes, the ranks' table and the scheduler's counters."""
    state = server_state(request)
    stats = await state.client.inspect(CALL_TIMEOUT)
    return json_response(
        {
            **public_settings(state.config),
            "served_model_name": state.model.name,
            "version": state.version,
            "phase": state.phase.value,
            "context_length": state.model.context_length,
            "max_total_num_tokens": state.model.pool_tokens,
            "max_req_input_len": state.model.max_sequence - 1,
            "pages": _pages(stats, state.config),
            "ranks": state.ranks,
            "internal_states": [{name: value for name, value in asdict(stats).items() if name != "call"}],
        }
    )


@router.get("/flush_cache")
@router.post("/flush_cache")
async def flush_cache(request: Request) -> Response:
    flushed = await server_state(request).client.flush(CALL_TIMEOUT)
    if not flushed.ok:
        raise bad_request("flush_cache", flushed.message or "requests are running or waiting", "busy")
    return PlainTextResponse("Cache flushed.\n")


@router.post("/abort_request", openapi_extra=json_body(AbortRequest))
async def abort_request(request: Request) -> Response:
    state = server_state(request)
    body = parse(AbortRequest, await read_body(request))
    aborted = state.client.abort_all() if body.abort_all else state.client.abort(body.rid or "")
    return json_response({"aborted": aborted})


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    state = server_state(request)
    if not state.config.server.enable_metrics:
        raise ApiError(404, "metrics are off; start the server with --enable-metrics")
    collector = ServerCollector(
        state.model.name, state.metrics, lambda: state.client.stats, lambda: state.phase is Phase.SERVING
    )
    return Response(exposition(collector), media_type=CONTENT_TYPE)


def public_settings(config: EngineConfig) -> dict[str, Any]:
    """Every setting by its flag's name; secrets that are set appear as ``***``."""
    settings: dict[str, Any] = {}
    for section_name in EngineConfig.model_fields:
        section = getattr(config, section_name)
        for name, field in type(section).model_fields.items():
            extra = field.json_schema_extra
            secret = isinstance(extra, dict) and bool(extra.get("secret"))
            value = getattr(section, name)
            settings[name] = "***" if secret and value else value
    return settings


def _pages(stats: Stats, config: EngineConfig) -> dict[str, int]:
    return {
        "page_size": config.memory.page_size,
        "total": stats.pages_total,
        "free": stats.pages_free,
        "cached": stats.pages_cached,
        "window_total": stats.window_pages_total,
        "window_free": stats.window_pages_free,
    }
