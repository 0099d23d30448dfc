"""Replays per second: concurrent with prefix cache, against one request at a time without it. One model load, one run.

    python -m benchmarks.systems.replay_throughput [--backbone packaged:1.5b] [--events 3] [--rounds 2]

Both sides run the same replays (`benchmarks.systems.replay_prompts`) in the same engine and alternate by round. Ours
sends all at once and starts each round with an empty prefix cache; the other empties the cache before every request.
The ratio is that of the summed seconds. Tokens computed are prompt tokens less those found in the cache.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from benchmarks.harness.resultfile import ResultFile
from benchmarks.systems.replay_prompts import event_requests
from memory_audit.generation import TokenUsage
from memory_audit.models.backbone.generator_vllm import VllmGenerator
from memory_audit.models.loading import ModelSpecs, load_generator

if TYPE_CHECKING:
    from memory_audit.generation import Completion, GenerationRequest

RATIO_BAR = 2.0


async def one_at_a_time(generator: VllmGenerator, requests: list[GenerationRequest]) -> list[Completion]:
    """Answer requests in turn, each from an empty prefix cache."""
    completions = []
    for request in requests:
        await generator.reset_prefix_cache()
        completions.append(await generator.generate(request))
    return completions


async def all_at_once(generator: VllmGenerator, requests: list[GenerationRequest]) -> list[Completion]:
    """Answer requests concurrently, from an empty prefix cache that they share."""
    await generator.reset_prefix_cache()
    return await asyncio.gather(*(generator.generate(request) for request in requests))


async def measure(arguments: argparse.Namespace) -> None:
    """Run the benchmark and write its result file."""
    generator = load_generator(ModelSpecs(backbone=arguments.backbone))
    if not isinstance(generator, VllmGenerator):
        raise SystemExit(f"--backbone {arguments.backbone}: this benchmark measures vLLM in this process")
    requests = [request for number in range(arguments.events) for request in event_requests(number)]
    options = f"--backbone {arguments.backbone} --events {arguments.events} --rounds {arguments.rounds}"
    config = {"model": generator.model_id, "events": arguments.events, "rounds": arguments.rounds}
    result = ResultFile(
        "replay_throughput", f"python -m benchmarks.systems.replay_throughput {options}", config, fresh=True
    )
    await all_at_once(generator, requests[:2])  # warm-up
    seconds = {"one at a time, no cache": 0.0, "concurrent, prefix cache": 0.0}
    texts: dict[str, list[str]] = {}
    for number in range(arguments.rounds):
        for side, answer in zip(seconds, (one_at_a_time, all_at_once), strict=True):
            began = time.perf_counter()
            completions = await answer(generator, requests)
            took = time.perf_counter() - began
            seconds[side] += took
            texts[side] = [completion.text for completion in completions]
            usage = sum((completion.usage for completion in completions), TokenUsage())
            computed = usage.prompt_tokens - usage.cached_tokens
            result.add_row(
                {
                    "side": side,
                    "round": number,
                    "replays": len(requests),
                    "seconds": round(took, 2),
                    "replays_per_s": round(len(requests) / took, 3),
                    **asdict(usage),
                    "tokens_computed": computed,
                    "load_average": round(os.getloadavg()[0], 1),
                }
            )
            print(f"{side}: {len(requests) / took:.2f} replays/s, {computed} prompt tokens computed")
    slow, fast = seconds.values()
    same = sum(a == b for a, b in zip(*texts.values(), strict=True)) / len(requests)
    result.add_row({"agreement": "answers equal word for word on both sides", "share": round(same, 3)})
    result.add_bar(
        "replays/s, concurrent with prefix cache over one at a time without",
        round(slow / fast, 2), "x", f">= {RATIO_BAR}", slow / fast >= RATIO_BAR,
    )  # fmt: skip
    await generator.close()
    print(f"ratio {slow / fast:.2f}; written to {result.path}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="packaged:1.5b")
    parser.add_argument("--events", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    asyncio.run(measure(parser.parse_args()))
