"""Drives one scenario against one client: prompts from a seed, closed loop or Poisson arrivals, every wait bounded."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import aiohttp

from motley_bench.clients import Client, Sample
from motley_bench.scenarios import Scenario


def prompts(scenario: Scenario, vocab_size: int, seed: int) -> Iterator[list[int]]:
    """Endless prompts of random ids in [vocab/10, vocab): the low ids are usually special. Same seed, same prompts."""
    rng = random.Random(f"{seed}/{scenario.name}")
    low = vocab_size // 10
    shared = [rng.randrange(low, vocab_size) for _ in range(scenario.shared_len)]
    while True:
        own = scenario.input_len - scenario.shared_len
        yield shared + [rng.randrange(low, vocab_size) for _ in range(own)]


async def run(scenario: Scenario, client: Client, work: Iterator[list[int]], seed: int, timeout: float) -> list[Sample]:
    """All samples of the scenario, in the order of their start. A request over ``timeout`` seconds becomes an error."""
    limits = aiohttp.ClientTimeout(total=timeout)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=limits, connector=connector, read_bufsize=1 << 20) as session:
        batch = [next(work) for _ in range(scenario.requests)]
        if scenario.rate:
            return await _poisson(scenario, client, session, batch, seed)
        return await _closed(scenario, client, session, batch)


async def _one(client: Client, session: aiohttp.ClientSession, prompt: list[int], output_len: int) -> Sample:
    loop = asyncio.get_running_loop()
    started = loop.time()
    try:
        return await client.generate(session, prompt, output_len)
    except (aiohttp.ClientError, TimeoutError, ValueError, KeyError) as error:
        return Sample(started=started, error=f"{type(error).__name__}: {error}")


async def _closed(
    scenario: Scenario, client: Client, session: aiohttp.ClientSession, batch: list[list[int]]
) -> list[Sample]:
    queue = list(enumerate(batch))[::-1]
    samples: dict[int, Sample] = {}

    async def stream() -> None:
        while queue:
            index, prompt = queue.pop()
            samples[index] = await _one(client, session, prompt, scenario.output_len)

    await asyncio.gather(*(stream() for _ in range(scenario.concurrency)))
    return [samples[i] for i in sorted(samples)]


async def _poisson(
    scenario: Scenario, client: Client, session: aiohttp.ClientSession, batch: list[list[int]], seed: int
) -> list[Sample]:
    rng = random.Random(seed)
    tasks: list[asyncio.Task[Sample]] = []
    for prompt in batch:
        tasks.append(asyncio.create_task(_one(client, session, prompt, scenario.output_len)))
        await asyncio.sleep(rng.expovariate(scenario.rate))
    return list(await asyncio.gather(*tasks))
