"""A guard of writes in one call: the store, the models of its mode, the decision log, and the end of them all.

`GuardedStore` takes models of one's own; this takes those of `memory_audit.models.loading`, by name. `memaudit guard`
and an agent in Python open their guards here. Importing it loads no Ray, torch or vllm.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from memory_audit.errors import UsageError
from memory_audit.guard.blocks.hazard import default_taxonomy
from memory_audit.guard.decide.settings import GuardSettings
from memory_audit.guard.decision_log import DecisionLog
from memory_audit.guard.guarded_store import GuardedStore
from memory_audit.jobs.clock import now_ms
from memory_audit.jobs.places import check_file, check_folder
from memory_audit.jobs.store.object_store import place_of
from memory_audit.jobs.watching.progress import Reporter
from memory_audit.jobs.watching.terminal import terminal
from memory_audit.models.backbone.generator_http import HttpSettings
from memory_audit.models.extras import with_extra
from memory_audit.models.loading import ModelSpecs
from memory_audit.models.readers import GuardReaders
from memory_audit.models.weights.cache import cache_dir
from memory_audit.provenance.keys import load_policy
from memory_audit.snapshot.reader import open_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memory_audit.guard.blocks.hazard import Taxonomy
    from memory_audit.guard.decide.settings import GuardMode
    from memory_audit.provenance.trust_policy import TrustPolicy
    from memory_audit.snapshot.pin import Pin

__all__ = ["CACHE_FILE", "open_guard"]

CACHE_FILE = "hazards.sqlite"


@contextmanager
def open_guard(  # noqa: PLR0913 - what a guard is made of; all but store and policy may be left out
    store: Path | str,
    policy: TrustPolicy | Path | str,
    *,
    mode: GuardMode | None = None,
    settings: GuardSettings | None = None,
    backbone: str = "packaged",
    backbone_key_env: str | None = None,
    nli: str | None = None,
    embedder: str = "packaged",
    taxonomy: Taxonomy | None = None,
    tenants: Sequence[str] = (),
    pin: Pin | None = None,
    log: Path | None = None,
    cache: Path | None = None,
    warm: bool = False,
    reporter: Reporter | None = None,
) -> Iterator[GuardedStore]:
    """Open a store's guards, and close them with their models at the end of the block.

    What is wrong with settings, store, tenants, log or backbone is told before any model loads. The version in force is
    the newest that verifies; `GuardedStore.refresh` follows the store.

    Args:
        store: The store's folder, or its address as text: `s3://bucket/prefix`, `gs://…`, `az://…`.
        policy: The installed policy, or its file.
        mode: What the guard reads; None is as in `settings`.
        settings: How it decides; None is the default.
        backbone: Reads hazards, but for mode `behaviour`; see `memory_audit.models.loading`, also for `embedder`.
        backbone_key_env: Name of the environment variable that holds the key of the backbone's server.
        nli: See `memory_audit.models.readers.nli_beside`.
        embedder: Model of the semantic keys: the one that the tombstones were made with.
        taxonomy: Of the hazards; None is the packaged one.
        tenants: Whom to serve; empty is every tenant of the store.
        pin: What this reader saw of the store before, kept outside of it.
        log: File of the decision log; None keeps none.
        cache: File of the signature cache; None is the one in the user's cache.
        warm: Load the models now, and not with the first write that needs them.
        reporter: Shows what takes long; None shows nothing.

    Raises:
        UsageError: no store, a tenant that is not in it, a value out of range, a log or a cache that cannot be opened
            or that would lie among the files of a store or of keys, or models that
            `memory_audit.models.readers.GuardReaders` cannot open, the reader of behaviours included.
        VerificationError: the store does not verify, or is older than the pin.
        ModelError: a model cannot be loaded.
    """
    if isinstance(tenants, str):
        raise UsageError(f"tenants is {tenants!r:.80}, expected a sequence of names")
    store = place_of(os.fspath(store))
    policy = load_policy(Path(policy)) if isinstance(policy, str | Path) else policy
    settings = settings or GuardSettings()
    if mode is not None:
        settings = replace(settings, mode=mode)
    taxonomy, reporter = taxonomy or default_taxonomy(), reporter or Reporter(terminal(stderr=True), quiet=True)
    held = open_snapshot(store, policy, now_ms=now_ms(), pin=pin)  # what is wrong with it is heard before models load
    for tenant in tenants:
        if tenant not in held.log_refs:
            raise UsageError(f"no tenant {tenant!r:.80} in {store}")
    specs = ModelSpecs(
        backbone=backbone, embedder=embedder, http=HttpSettings(api_key_env=backbone_key_env or "")
    )  # fmt: skip
    if log is not None:
        check_file(log)
    if cache is not None:
        check_folder(cache.parent)
    with ExitStack() as opened:
        written = None if log is None else opened.enter_context(closing(DecisionLog(log, clock_ms=now_ms)))
        readers = opened.enter_context(
            GuardReaders.open(
                specs, taxonomy, hazards=settings.mode != "behaviour", nli=nli,
                cache=cache or cache_dir() / CACHE_FILE, steps=reporter.steps,
            )
        )  # fmt: skip
        if readers.embedder is None or readers.behaviours is None:
            raise UsageError(
                f"a guard needs the packaged 0.5B and 1.5B, which read behaviours; {with_extra('local-models')}"
            )
        if warm:
            readers.behaviours.taught(["."])  # loads their backbones before anybody waits for it
        guarded = GuardedStore(
            store, policy, embed=readers.embedder.embed, embedder=readers.embedder.model_id,
            behaviours=readers.behaviours, extractor=readers.hazards, taxonomies=[taxonomy], settings=settings,
            clock_ms=now_ms, on_decision=None if written is None else written.write, pin=pin, tenants=tenants,
        )  # fmt: skip
        opened.callback(guarded.close)
        if (generator := readers.backbone) is not None:
            opened.callback(lambda: guarded.run(generator.close()))
            if warm:
                with reporter.stage("starting the backbone", 1) as progress:
                    guarded.run(generator.start())
                    progress.advance()
        yield guarded
