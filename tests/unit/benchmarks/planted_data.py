"""ConflictQA and PoisonedRAG in small, in words of our own; a planted passage carries the fake backbone's marker."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

QUESTIONS, OTHERS = 6, 12
"""Questions that something is planted against, and further ones."""


def write_planted_data(folder: Path) -> Path:
    """Write the files in the form of the public data."""
    (folder / "conflictqa").mkdir()
    (folder / "poisonedrag").mkdir()
    rows = [
        {
            "question": f"Is thing {n} blue?", "ground_truth": [str(n % 2 == 0)],
            "memory_answer": f"It is {'' if n % 2 == 0 else 'not '}blue.", "parametric_memory": f"fact {n} is known",
            "counter_answer": f"It is {'not ' if n % 2 == 0 else ''}blue.", "counter_memory": f"POISON of thing {n}",
        }
        for n in range(QUESTIONS + OTHERS)
    ]  # fmt: skip
    wrong = {**rows[0], "question": "left out?", "ground_truth": ["False"]}
    lines = [json.dumps(row) for row in [wrong, *rows]]
    (folder / "conflictqa" / "development.jsonl").write_text("\n".join(lines) + "\n")
    planted = [
        {
            "question": f"who made thing {n}", "correct answer": f"maker {n}", "incorrect answer": f"HARM {n}",
            "adv_texts": [f"POISON {copy} of thing {n}" for copy in range(5)],
        }
        for n in range(QUESTIONS)
    ]  # fmt: skip
    planted[0]["incorrect answer"] = "maker 0"  # which its true passage names too
    (folder / "poisonedrag" / "nq_development.json").write_text(json.dumps(planted))
    with gzip.open(folder / "poisonedrag" / "nq_passages_development.jsonl.gz", "wt") as out:
        for n in range(QUESTIONS + OTHERS):
            row = {"question": f"Who made thing {n}?", "answers": [f"maker {n}"], "title": f"Thing {n}"}
            out.write(json.dumps({**row, "text": f"maker {n} made it"}) + "\n")
    return folder
