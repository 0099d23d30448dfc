"""Thresholds of hazard labels for one model: its yes is biased, and by another amount for each question.

    python -m training.label_calibration [--backbone packaged] [--taxonomy FILE] [--texts FILE] [--most-false 0.01]

prints them as JSON; a taxonomy file takes them. What a model said is kept, so that another share asks only what is new.

Calibrate on texts that are no benchmark's. `calibration_texts` returns some written for this project: notes of agents
that keep books, run a laboratory, edit films, tend gardens and answer guests, with the labels they have. They are for
the packaged taxonomy; for one of your own, bring labelled texts of your own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from benchmarks.harness.command import run
from memory_audit.errors import UsageError
from memory_audit.formats import outside_json
from memory_audit.formats.outside_file import named_file
from memory_audit.jobs.guard.open_guard import CACHE_FILE
from memory_audit.jobs.run.block_records import taxonomy_of
from memory_audit.jobs.watching.progress import Reporter
from memory_audit.models.backbone.generator_http import HttpSettings
from memory_audit.models.loading import ModelSpecs
from memory_audit.models.readers import NONE, GuardReaders
from memory_audit.models.weights.cache import cache_dir

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from memory_audit.guard.blocks.hazard import Taxonomy
    from memory_audit.jobs.watching.progress import Stage
    from memory_audit.models.hazards.extraction import HazardReader
    from memory_audit.models.protocols import Generator

__all__ = ["LabelledText", "calibration_texts", "parse_labelled", "thresholds"]

MAX_LINE_BYTES = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledText:
    """A text and the hazards that it has in truth."""

    text: str
    labels: frozenset[str]


def calibration_texts() -> tuple[LabelledText, ...]:
    """Return this project's texts."""
    data = Path(__file__).with_suffix(".jsonl").read_bytes()
    return tuple(parse_labelled(data.splitlines(), "the calibration texts"))


def parse_labelled(lines: Iterable[bytes], source: str, known: Collection[str] | None = None) -> Iterable[LabelledText]:
    """Parse JSON lines `{"text": "…", "labels": ["skip_validation"]}`.

    Args:
        lines: Raw lines.
        source: Name of the file, for messages.
        known: Labels that there are; None for any: one that is misspelt would count as its text's not having it.

    Raises:
        UsageError: names the source, the line and the rule broken.
    """
    for number, raw in enumerate(lines, start=1):
        where = f"{source}, line {number}"
        if len(raw) > MAX_LINE_BYTES:
            raise UsageError(f"{where}: {len(raw)} bytes, at most {MAX_LINE_BYTES} are allowed")
        if not raw.strip():
            continue
        value = outside_json.decode(raw, where)
        if not isinstance(value, dict) or value.keys() != {"text", "labels"} or not isinstance(value["text"], str):
            raise UsageError(f'{where}: expected an object with "text" and "labels"')
        labels = value["labels"]
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise UsageError(f"{where}: labels must be a list of names")
        if len(set(labels)) != len(labels):
            raise UsageError(f"{where}: a label is named twice")
        if known is not None and (unknown := sorted(set(labels) - set(known))):
            raise UsageError(f"{where}: no label {unknown[0]!r:.60}; there are {', '.join(known)}")
        yield LabelledText(text=value["text"], labels=frozenset(labels))


def thresholds(
    examples: Sequence[tuple[Mapping[str, float], frozenset[str]]], taxonomy: Taxonomy, *, most_false: float = 0.01
) -> dict[str, float]:
    """Choose each label's threshold: the lowest that at most a given share of the texts without the label exceed.

    A guard sees far more harmless writes than hazardous ones, so it is their share that is fixed.

    Args:
        examples: Margins of a text in nats, and the labels that it has in truth.
        taxonomy: The labels.
        most_false: Share of the texts without a label that may be given it.

    Returns:
        Label to threshold in nats, for the labels that have both positive and negative examples.

    Raises:
        UsageError: the share is not between 0 and 1.
    """
    if not 0.0 <= most_false < 1.0:
        raise UsageError(f"the share of false labels is {most_false}, expected 0 to 1")
    found: dict[str, float] = {}
    for label in taxonomy.labels:
        free = sorted((margins[label.name] for margins, truth in examples if label.name not in truth), reverse=True)
        if not free or len(free) == len(examples):
            continue
        highest = free[int(most_false * len(free))]
        above = [margins[label.name] for margins, _ in examples if margins[label.name] > highest]
        # Half way to the next text above: the labels of the examples are those of any threshold in between.
        found[label.name] = round((highest + min(above)) / 2 if above else highest, 3)
    return found


def main() -> None:
    """Calibrate and print."""
    options = parse_options()
    named = taxonomy_of(options.taxonomy)
    thresholds((), named, most_false=options.most_false)  # a wrong share is to be heard before the work
    labelled = (
        calibration_texts()
        if options.texts is None
        else tuple(parse_labelled(_lines(options.texts), options.texts.name, named.names))
    )

    async def read(reader: HazardReader, backbone: Generator, progress: Stage) -> list[dict[str, float] | None]:
        async def one(text: str) -> dict[str, float] | None:
            found = await reader.margins(text, named)
            progress.advance()
            return found

        try:
            return list(await asyncio.gather(*(one(item.text) for item in labelled)))
        finally:
            await backbone.close()

    reporter = Reporter(Console(stderr=True))
    http = HttpSettings(api_key_env=options.backbone_key_env)
    specs = ModelSpecs(backbone=options.backbone, embedder=NONE, http=http)
    cache = options.cache or cache_dir() / CACHE_FILE
    with (
        GuardReaders.open(specs, named, nli=options.nli, cache=cache, steps=reporter.steps) as readers,
        reporter.stage("reading the hazards of labelled texts", len(labelled)) as progress,
    ):
        assert readers.hazards is not None and readers.backbone is not None  # noqa: S101, PT018 - they were asked for
        margins = asyncio.run(read(readers.hazards, readers.backbone, progress))
    known = [(found, item.labels) for found, item in zip(margins, labelled, strict=True) if found is not None]
    chosen = thresholds(known, named, most_false=options.most_false)
    found_of = {
        label: sum(margins[label] > cut for margins, truth in known if label in truth) for label, cut in chosen.items()
    }
    truly = {label: sum(label in truth for _, truth in known) for label in chosen}
    print(json.dumps({
        "model": readers.hazards.model_id, "taxonomy": named.digest, "texts": len(known),
        "outside_schema": len(margins) - len(known), "thresholds_nats": chosen,
        "found": found_of, "truly": truly,
    }, indent=2))  # fmt: skip


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="packaged", help="packaged, a folder or id, or openai:URL#MODEL")
    parser.add_argument("--backbone-key-env", default="", help="environment variable with the key of its server")
    parser.add_argument("--nli", help="NLI model (and probe) beside it; by default the packaged ones go together")
    parser.add_argument("--taxonomy", type=Path, help="taxonomy file; default: the packaged one")
    parser.add_argument("--texts", type=Path, help="labelled texts, JSON lines; default: this project's")
    parser.add_argument("--most-false", type=float, default=0.01, help="share of texts without a label that may get it")
    parser.add_argument("--cache", type=Path, help="signature cache file; default: in the user's cache")
    return parser.parse_args(arguments)


def _lines(file: Path) -> Iterator[bytes]:
    """Read lines, none much longer than is allowed: the file is not ours."""
    with named_file(file) as stream:
        yield from iter(lambda: stream.readline(MAX_LINE_BYTES + 1), b"")


if __name__ == "__main__":
    run(main)
