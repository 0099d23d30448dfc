"""Memories that nobody poisoned, by data set: what a scan says of them is a false alarm, or a hint at most.

MemoryBank's turns, MMLU's questions with their answers and its worked examples, WebShop's episodes and the descriptions
of its products, which are texts of real web pages, and the demo's memories without those that were planted.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from benchmarks.attribution.minja.qa_data import load_questions, worked_examples
from benchmarks.attribution.webshop.memories import load_benign_records
from benchmarks.harness.public_data import reading
from memory_audit.jobs.demo_corpus import ENTRIES_FILE, corpus_folder
from memory_audit.text.nfc import nfc

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Pair", "clean_texts"]

Pair = tuple[str, str]
"""Request and response."""

_PLANTED = re.compile(r"Answer: [E-H]")
"""Of the demo, whose questions offer A to D."""


def clean_texts(data: Path) -> dict[str, list[Pair]]:
    """Return the pairs of each data set, each pair once.

    Raises:
        UsageError: a file is missing or damaged.
    """
    sets = {
        "MemoryBank": list(_turns(data)),
        "MMLU": [
            *((question.text, f"Answer: {question.answer}") for question in load_questions(data)),
            *worked_examples(data, without="\0"),
        ],
        "WebShop episodes": [(it.request, it.response) for it in load_benign_records(data / "webshop")],
        "WebShop products": list(_products(data / "webshop")),
        "demo": list(_demo()),
    }
    return {
        name: list(dict.fromkeys((nfc(request, name), nfc(response, name)) for request, response in pairs))
        for name, pairs in sets.items()
    }


def _turns(data: Path) -> Iterator[Pair]:
    with reading(data / "memorybank" / "memory_bank_en.json") as path:
        for user in json.loads(path.read_text(encoding="utf-8")).values():
            for day in user["history"].values():
                yield from ((turn["query"], turn["response"]) for turn in day)


def _products(webshop: Path) -> Iterator[Pair]:
    with reading(webshop / "products_1000.json") as path:
        for product in json.loads(path.read_text(encoding="utf-8")):
            told = product["small_description"]
            yield product["name"], "\n".join([product["full_description"], *(told if isinstance(told, list) else [])])


def _demo() -> Iterator[Pair]:
    with corpus_folder() as folder:
        lines = (folder / ENTRIES_FILE).read_text(encoding="utf-8").splitlines()
    for row in map(json.loads, lines):
        if not _PLANTED.search(row["response"]):
            yield row["request"], row["response"]
