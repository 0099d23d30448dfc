"""The public data sets that `--data` must hold: files, origin and form, stated here once and quoted by every --help.

Nothing is downloaded. Origins are GitHub repositories at a commit. Loaders are elsewhere and read under `reading`, so
that a missing or damaged file is one line that names it.
"""

from __future__ import annotations

import csv
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from memory_audit.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

__all__ = [
    "CONFLICTQA", "MEMORYBANK", "MEMORYGRAFT", "MINJA_QA", "MINJA_RAP", "MMLU", "POISONEDRAG", "SNLI", "WEBSHOP",
    "add_data", "reading",
]  # fmt: skip

MMLU = """\
MMLU (Hendrycks et al. 2021)
  mmlu/test/SUBJECT_test.csv   57 files, 14,042 rows, no header: question, A, B, C, D, letter of the answer
                               from cky332/MINJA2 @7c260a2 (QA/data), equal to the official test split
  mmlu/mmlu-cot.json           object of subject: five-shot prompt; each example is "Q: …", the options "(A) … (D) …",
                               "A: …" with its reasoning, and "The answer is (X)"
                               from zhaoyiran924/COT-Robust @932dac0"""

MINJA_QA = """\
MINJA (arXiv 2503.03704), the attack on question answering, from cky332/MINJA2 @7c260a2 (QA)
  minja/QA/victim.json         list of one object: victim (the trigger word), note (list of {"note1": …}, longest first)
  minja/QA/initial_demo.txt    one demonstration: "Question:…", "Options:", "Thought: …" with the answer"""

MINJA_RAP = """\
MINJA (arXiv 2503.03704), the attack on the web shopper, from cky332/MINJA2 @7c260a2
  minja/rap/victim_target_pair/victim_target.json   list of nine objects: victim, target, target_price
  minja/rap/indication_prompt_template.json         list of five objects {"note1": …} to {"note5": …}, longest first
  minja/rap/webshop_instructions.json               list of 10,587 objects: instruction"""

WEBSHOP = """\
WebShop (Yao et al. 2022, princeton-nlp/WebShop); each file is a list of objects
  webshop/products_1000.json              the 1,000 products of items_shuffle_1000.json, as the index indexes_1k in
                                          ZihanWang314/webshop-minimal @ec82552 stores them: asin, name,
                                          full_description, small_description, pricing (list of US dollars), options
                                          (object of kind: values); with instruction_attributes and
                                          synthetic_instruction where that repository's items_ins_v2_1000.json has them
  webshop/react_trajectories_500.json     the 500 episodes printed in WebShop.ipynb of ysymyth/ReAct @6bdb3a1:
                                          instruction, score (0 to 1 or null), trajectory: list of {action, observation}
  webshop/products_from_react_1468.json   the products seen in them: asin, title, price, options (where an item page
                                          was opened)"""

MEMORYGRAFT = """\
MemoryGraft, from Jacobhhy/Agent-Memory-Poisoning @e694d20
  memorygraft/experience_seeds.json   metagpt_attack_poc/payloads/experience_seeds.json there: object with
                                      benign_experiences (100) and poisoned_experiences (10), lists of {req, resp}
  memorygraft/test_queries.json       list of the 12 queries (strings) in experiments/exp4_rag_vector_drift.py there"""

MEMORYBANK = """\
MemoryBank, English conversations, from zhongwanjun/MemoryBank-SiliconFriend @cf61c41
  memorybank/memory_bank_en.json   object of user: {"history": {day: list of {query, response}}}, 15 users"""

CONFLICTQA = """\
ConflictQA (Xie et al. 2024), StrategyQA by GPT-4, from OSU-NLP-Group/LLM-Knowledge-Conflict @595e02b
  conflictqa/development.jsonl   one object for each line: question, ground_truth (list of one, True or False),
                                 memory_answer, parametric_memory, counter_answer, counter_memory; the 668 records of
                                 1,356 whose question, in lower case without "?" and blanks at its ends, has an even
                                 SHA-256"""

POISONEDRAG = """\
PoisonedRAG (Zou et al. 2024) on Natural Questions; questions are chosen as in ConflictQA
  poisonedrag/nq_development.json                 48 objects: question, correct answer, incorrect answer, adv_texts
                                                  (five); from sleeepeer/PoisonedRAG @168d189
  poisonedrag/nq_passages_development.jsonl.gz    1,292 objects, one for each line: question, answers (list), title,
                                                  text; from nelson-liu/lost-in-the-middle @29b8a6d"""

SNLI = """\
SNLI 1.0 (Bowman et al. 2015), test part; the first 600 labelled pairs are used
  nli/snli/*test*.jsonl   one object for each line: gold_label, sentence1, sentence2
                          the results here are on the part of it in Deltaus/sBiMPM @8f1b040"""

ADVICE = "--help says what --data must hold"


def add_data(parser: argparse.ArgumentParser, *data_sets: str, required: bool = True) -> None:
    """Add `--data` to a parser, and at the end of its help what the folder must hold."""
    parser.add_argument("--data", type=Path, required=required, help="folder of public data; its files are named below")
    parser.epilog = "\n\n".join(["files in DATA, all of them UTF-8:", *data_sets])


@contextmanager
def reading(path: Path) -> Iterator[Path]:
    """Yield the path of a data file; what goes wrong while it is read and taken apart names the file.

    Raises:
        UsageError: the file is missing, cannot be read, or is not of the form that `--help` states.
    """
    try:
        yield path
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}; {ADVICE}") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, csv.Error) as error:
        found = f"lacks {error}" if isinstance(error, KeyError) else str(error)
        raise UsageError(f"{path}: damaged, or of another form: {found[:120]}; {ADVICE}") from None
