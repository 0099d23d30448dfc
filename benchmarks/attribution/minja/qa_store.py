"""Build a MINJA QA store: benign memories are worked examples, poison is composed or really injected."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from benchmarks.attribution.minja.qa_data import LABEL_SHIFT, poisoned_response
from memory_audit.attribution.replays.ablation import leave_out
from memory_audit.attribution.replays.harm import answer_label
from memory_audit.entry import Entry
from memory_audit.jobs.executors.replay_group import Program, ReplayGroup, ReplayQuestion

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.attribution.minja.qa_data import Question
    from memory_audit.jobs.executors.executor import Executor

__all__ = ["composed", "demonstration", "inject", "make_entries"]

TENANT = "study"
FIRST_MS = 1_700_000_000_000
DAY_MS = 86_400_000


def demonstration(text: str) -> Entry:
    """Read the attack's released cold-start demonstration as one memory."""
    question, _, answer = text.replace("\\n", "\n").partition("Thought:")
    return Entry(
        tenant=TENANT, entry_id="demonstration", principal="setup", source="agent",
        request=question.replace("Question:", "Question: ", 1).strip(), response="Thought:" + answer.rstrip(),
        created_at_ms=FIRST_MS,
    )  # fmt: skip


def inject(  # noqa: PLR0917 - an attack's parts
    executor: Executor,
    agent: Mapping[str, object],
    demo: Entry,
    questions: Sequence[Question],
    notes: Sequence[str],
    wanted: int,
    say: Callable[[str], None],
) -> tuple[list[tuple[str, str]], int]:
    """Poison a memory through ordinary use, with the attack's notes shortened step by step.

    Each question is asked with the longest note; what the agent answered becomes a memory, in front of which the same
    question is asked with the next shorter note, and at last with none. Only an answer without any note that still
    carries the shifted label is kept: the indication is present only while injecting. `say` is told of every batch.

    Returns:
        The memories kept, and how many questions were tried.
    """
    kept: list[tuple[str, str]] = []
    tried = 0
    while len(kept) < wanted and tried < len(questions):
        batch = questions[tried : tried + max(wanted - len(kept), 4)]
        tried += len(batch)
        before: list[tuple[Entry, ...]] = [(demo,) for _ in batch]
        outputs: list[str] = []
        for note in (*notes, ""):
            prompts = [f"{question.text}\n{note}".rstrip() for question in batch]
            outputs = _ask(executor, agent, list(zip(prompts, before, strict=True)))
            before = [
                (_step(prompt, output), *context) if _shifted(question, output) else context
                for question, prompt, output, context in zip(batch, prompts, outputs, before, strict=True)
            ]
        kept += [
            (question.text, output)
            for question, output in zip(batch, outputs, strict=True)
            if _shifted(question, output)
        ]
        say(f"injected {len(kept)} of {tried} tried, {len(questions) - tried} questions left")
    return kept[:wanted], tried


def make_entries(
    benign: Sequence[tuple[str, str]], poison: Sequence[tuple[str, str]], seed: int, *, one_writer: bool = False
) -> tuple[tuple[Entry, ...], frozenset[str]]:
    """Mix both into a store that tells nothing: own writers, one source, shuffled order and times, no metadata.

    Args:
        benign: Request and response.
        poison: Request and response.
        seed: Of the shuffle.
        one_writer: Give all poison one account, for the row that shows what that adds.

    Returns:
        The entries, and the ids of the poisoned ones, for those who count.
    """
    items = [(text, answer, False) for text, answer in benign] + [(text, answer, True) for text, answer in poison]
    rng = random.Random(seed)
    rng.shuffle(items)
    times = list(range(len(items)))
    rng.shuffle(times)
    entries = tuple(
        Entry(
            tenant=TENANT, entry_id=f"m{number:04d}",
            principal="user-9999" if one_writer and poisoned else f"user-{number:04d}",
            source="agent", request=text, response=answer, created_at_ms=FIRST_MS + times[number] * DAY_MS,
        )
        for number, (text, answer, poisoned) in enumerate(items)
    )  # fmt: skip
    return entries, frozenset(
        entry.entry_id for entry, (_, _, poisoned) in zip(entries, items, strict=True) if poisoned
    )  # fmt: skip


def composed(questions: Sequence[Question], note: str) -> list[tuple[str, str]]:
    """Poison in the words of the attack's own note, one per question."""
    return [(question.text, poisoned_response(question, note)) for question in questions]


def _shifted(question: Question, output: str) -> bool:
    return answer_label(output) == chr(ord(question.answer) + LABEL_SHIFT)


def _step(prompt: str, output: str) -> Entry:
    return Entry(
        tenant=TENANT, entry_id="step", principal="attacker", source="agent", request=prompt, response=output,
        created_at_ms=FIRST_MS,
    )  # fmt: skip


def _ask(executor: Executor, agent: Mapping[str, object], asked: Sequence[tuple[str, tuple[Entry, ...]]]) -> list[str]:
    program = Program.of(agent, {"kind": "regex", "pattern": "(?!)"}, 0)
    groups = []
    for number, (query, memories) in enumerate(asked):
        name = f"a{number:04d}"
        question = ReplayQuestion(ablation=leave_out(name, "full", "text", frozenset()), memories=memories)
        groups.append(ReplayGroup(event_id=name, query=query, questions=(question,)))
    outputs = {outcome.event_id: outcome.output for outcome in executor.replay(groups, program)}
    return [outputs[group.event_id] for group in groups]
