"""`memaudit lineage`: derivation edges for memories whose agents recorded no parents, or too little of them."""

from __future__ import annotations

import shlex
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from memory_audit.consistency.neighbours import check_vectors
from memory_audit.counted import counted
from memory_audit.entry import MAX_PARENTS, PARTS_PER_MILLION
from memory_audit.errors import UsageError
from memory_audit.jobs.cli.shared import BackboneKeyEnv, Reading, Store, as_signed, print_lines
from memory_audit.jobs.clock import now_ms
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.jobs.places import check_place
from memory_audit.jobs.spread_options import spread_options
from memory_audit.jobs.watching.progress import Reporter, say, stage
from memory_audit.jobs.watching.terminal import terminal
from memory_audit.lineage.edges_file import EstimatedEdge
from memory_audit.lineage.trust import DEFAULT_TAU_PPM, TrustRules
from memory_audit.models.backbone.generator_http import HttpSettings
from memory_audit.models.derivation import (
    METHODS,
    Method,
    backbone_margins,
    calibration_of,
    candidates,
    entailment_scores,
    word_scores,
)
from memory_audit.models.loading import ModelSpecs
from memory_audit.provenance import durable
from memory_audit.report.untrusted import as_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memory_audit.entry import Entry
    from memory_audit.jobs.executors.executor import Executor
    from memory_audit.jobs.watching.progress import Stage
    from memory_audit.models.derivation import Calibration, Pair

__all__ = ["estimate_edges", "lineage_app"]

LEAST_COSINE = 0.3
"""Below it nothing is a candidate: on `benchmarks/gate/derivation`, texts that draw on each other are nearer."""

PAIRS_TOGETHER = 128
"""Candidates between two looks at the progress: seconds of NLI, and more than a backbone decodes together."""

lineage_app = typer.Typer(help="Where memories come from.", no_args_is_help=True)


@lineage_app.callback()
def _group() -> None:
    """Where memories come from."""


@lineage_app.command("estimate")
@spread_options
def estimate(
    *,
    store: Store,
    out: Annotated[Path, typer.Option(help="File for the proposed edges, one JSON object per line.")],
    tenant: Annotated[str, typer.Option(help="Whose memories.")],
    method: Annotated[
        list[str] | None,
        typer.Option(help="words, embedding, nli, backbone (repeatable); default: the first three."),
    ] = None,
    least: Annotated[
        float | None, typer.Option(help="Write edges of at least this weight; default: where F1 was best.")
    ] = None,
    nearest: Annotated[int, typer.Option(help="Candidates per memory, by embedding.")] = 8,
    reading: Reading,
    backbone: Annotated[str, typer.Option(help="Model of the method backbone.")] = "packaged",
    backbone_key_env: BackboneKeyEnv = None,
    nli: Annotated[str, typer.Option(help="Model of the method nli.")] = "packaged",
    embedder: Annotated[str, typer.Option(help="Model that chooses candidates.")] = "packaged",
    every: Annotated[
        bool,
        typer.Option("--every", help="Also ask about memories that no agent wrote, or whose parents account for them."),
    ] = False,
) -> None:
    """Propose derivation edges of a tenant's memories. Signs nothing: use them with `memaudit audit --edges FILE`."""
    methods = _methods(method)
    calibration = calibration_of(methods)
    if least is not None and not 0.0 <= least <= 1.0:
        raise UsageError(f"--least is {least}, expected 0 to 1")
    if not 1 <= nearest <= MAX_PARENTS:
        raise UsageError(f"--nearest is {nearest}, expected 1 to {MAX_PARENTS}")
    place, tenant = check_place(out), as_signed(tenant, "--tenant")
    session = reading.open(store, now_ms())
    entries = session.snapshot.entries(tenant)
    session.remember()
    children = [
        number
        for number, entry in enumerate(entries)
        if every or TrustRules().unrecorded_ppm(entry) >= DEFAULT_TAU_PPM  # an agent's, and its parents say too little
    ]
    http = HttpSettings(api_key_env=backbone_key_env or "")
    executor = LocalExecutor(ModelSpecs(backbone=backbone, nli=nli, embedder=embedder, http=http))
    try:
        with Reporter(terminal(stderr=True)):
            found = estimate_edges(entries, children, executor, methods, calibration, nearest=nearest)
    finally:
        executor.close()
    lowest = calibration.threshold if least is None else least
    kept = [edge for edge in found if edge.weight_ppm >= lowest * PARTS_PER_MILLION]
    durable.replace(place, "".join(f"{edge.to_json()}\n" for edge in kept).encode())
    print_lines(
        f"{counted(len(kept), 'edge')} of weight {lowest:.2f} or more among {counted(len(found), 'candidate')} of "
        f"{counted(len(children), 'memory')} "
        f"of {as_line(tenant)}, written to {out}; use them with: memaudit audit … --edges {shlex.quote(str(out))}"
    )


def estimate_edges(
    entries: Sequence[Entry],
    children: Sequence[int],
    executor: Executor,
    methods: Sequence[Method],
    calibration: Calibration,
    *,
    nearest: int,
) -> list[EstimatedEdge]:
    """Score the candidates of each child; what the backbone does not answer is left out, and how many is said.

    Args:
        entries: One tenant's live entries, in log order.
        children: Indices of those to find parents for.
        executor: Runs the models.
        methods: Instruments of the weight.
        calibration: Fitted for exactly these methods.
        nearest: Candidates per child.

    Raises:
        ModelError: a model died or answered outside its contract.
    """
    if not entries:
        return []
    # A request is what retrieval matches and mostly a question: what a child says is its response.
    texts = [*(entry.text for entry in entries), *(entries[child].response for child in children)]
    with stage("embedding memories", len(texts)) as progress:
        vectors = executor.embedder.embed(texts)
        check_vectors(vectors)
        progress.advance(len(texts))
    places = candidates(vectors[: len(entries)], children, nearest, LEAST_COSINE)
    said = dict(zip(children, vectors[len(entries) :], strict=True))
    pairs: list[Pair] = [(entries[parent].text, entries[child].response) for child, parent in places]
    scores: dict[Method, list[float | None]] = {}
    if "words" in methods:
        scores["words"] = list(word_scores(pairs))
    if "embedding" in methods:
        scores["embedding"] = [max(0.0, float(vectors[parent] @ said[child])) for child, parent in places]
    if "nli" in methods:
        with stage("comparing candidates (NLI)", len(pairs)) as progress:
            scores["nli"] = [
                value for part in _parts(pairs, progress) for value in entailment_scores(part, executor.entailment)
            ]
    if "backbone" in methods:
        with stage("asking the backbone about candidates", len(pairs)) as progress:
            scores["backbone"] = [
                value
                for part in _parts(pairs, progress)
                for value in executor.run(backbone_margins(part, executor.backbone))
            ]
    edges = []
    for number, (child, parent) in enumerate(places):
        known = {method: value for method, values in scores.items() if (value := values[number]) is not None}
        if len(known) == len(scores):
            edges.append(
                EstimatedEdge(
                    tenant=entries[child].tenant, child=entries[child].entry_id, parent=entries[parent].entry_id,
                    weight_ppm=round(calibration.weight(known) * PARTS_PER_MILLION),
                    evidence={method: round(float(value), 4) for method, value in known.items()},
                )
            )  # fmt: skip
    if unanswered := len(places) - len(edges):
        say(
            f"{counted(unanswered, 'candidate')} left out: the backbone says neither yes nor no, or both texts do not "
            "fit into its context"
        )
    return edges


def _parts(pairs: Sequence[Pair], progress: Stage) -> Iterator[Sequence[Pair]]:
    """Cut the pairs into parts, and count each once it was taken back."""
    for start in range(0, len(pairs), PAIRS_TOGETHER):
        part = pairs[start : start + PAIRS_TOGETHER]
        yield part
        progress.advance(len(part))


def _methods(given: Sequence[str] | None) -> tuple[Method, ...]:
    wanted = given or ["words", "embedding", "nli"]
    unknown = sorted(set(wanted) - set(METHODS))
    if unknown:
        raise UsageError(f"--method is {unknown[0]!r:.40}, expected some of {', '.join(METHODS)}")
    return tuple(method for method in METHODS if method in wanted)
