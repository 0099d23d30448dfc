"""Benign memory: real ReAct episodes in WebShop (Yao et al. 2022) as the records an agent would have stored.

A record's request is the instruction, its response the episode's text (`benchmarks.attribution.webshop.trajectory`).
Only finished episodes with a good score are taken, refused actions are left out, and the score is not told: a shop
tells none, and it would set real episodes apart from poison. Episodes that stay too long are left out, never cut in the
middle.
"""

from __future__ import annotations

import random
import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.attribution.webshop.environment import INVALID
from benchmarks.attribution.webshop.pages import cut
from benchmarks.attribution.webshop.rows import read_rows
from benchmarks.attribution.webshop.trajectory import Step, brief, render
from benchmarks.harness.public_data import reading
from memory_audit.entry import Entry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["MAX_RESPONSE_TOKENS", "Record", "convert", "estimated_tokens", "load_benign_records", "store_of"]

MAX_RESPONSE_TOKENS = 330
"""By `estimated_tokens`, which is at most a tenth too low: three memories then cost a prompt of about 1,000 tokens."""

MAX_THOUGHT_CHARACTERS = 120
MIN_SCORE = 0.5
FIRST_WRITTEN_MS = 1_700_000_000_000
"""Time of the first memory: fixed, so that a store is the same in every run."""

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What one episode leaves in memory, before it has a writer, a time and an id."""

    request: str
    response: str


def load_benign_records(webshop: Path, *, min_score: float = MIN_SCORE) -> tuple[Record, ...]:
    """Read and convert ReAct's 500 episodes; the best score first, then file order.

    Raises:
        UsageError: the file is missing or not a JSON list.
    """
    with reading(webshop / "react_trajectories_500.json") as path:
        rows = read_rows(path)
        scored = sorted((row for row in rows if (row["score"] or 0.0) >= min_score), key=lambda row: -row["score"])
        return tuple(record for record in map(convert, scored) if record is not None)


def convert(episode: Mapping[str, Any]) -> Record | None:
    """Turn one ReAct episode into a record; None where it ends without a purchase or is too long."""
    steps: list[Step] = []
    item = ""
    for row in episode["trajectory"]:
        action, observation = _line(row["action"]), row["observation"]
        if action == "reset" or observation.startswith(INVALID.rstrip("!")):
            continue
        if action.startswith("think["):
            action = _thought(action)
        elif action.lower() == "click[buy now]":
            steps.append(Step(action="click[Buy Now]", observation=f"You have bought {item}"))
            break
        shown = _line(brief(observation))
        code = re.fullmatch(r"click\[(\w{10})\]", action)
        if code and shown.startswith("Item: "):
            title = re.match(r"Item: (.*? \$[\d.,]+)", shown)
            item = f"[{code[1].upper()}] {title[1] if title else ''}".rstrip()
        steps.append(Step(action=action, observation=shown))
    response = render(steps)
    bought = bool(item) and bool(steps) and steps[-1].action == "click[Buy Now]"
    if not bought or estimated_tokens(response) > MAX_RESPONSE_TOKENS:
        return None
    return Record(request=_line(episode["instruction"]), response=response)


def estimated_tokens(text: str) -> int:
    """Tokens of a Qwen2.5 tokenizer, roughly: one per digit, per punctuation mark and per five letters of a word."""
    return len(re.findall(r"\d|[^\W\d_]{1,5}|[^\w\s]", text))


def store_of(records: Sequence[Record], *, tenant: str, seed: int) -> tuple[Entry, ...]:
    """Give records ids, writers and times that tell nothing about them, in the records' order.

    Every entry has its own writer, the same source and no metadata; ids, writers and times are one random permutation.
    """
    places = list(range(len(records)))
    random.Random(seed).shuffle(places)
    return tuple(
        Entry(
            tenant=tenant,
            entry_id=f"m-{place:04d}",
            principal=f"user-{place:04d}",
            source="agent",
            request=record.request,
            response=record.response,
            created_at_ms=FIRST_WRITTEN_MS + place * HOUR_MS,
        )
        for record, place in zip(records, places, strict=True)
    )


def _thought(action: str) -> str:
    text = action.removeprefix("think[").removesuffix("]").translate(str.maketrans("[]", "()"))
    return f"think[{cut(text, MAX_THOUGHT_CHARACTERS)}]"


def _line(text: str) -> str:
    return re.sub(r"\s+", " ", unicodedata.normalize("NFC", text)).strip()
