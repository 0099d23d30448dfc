"""What the semantic suite of `agmi-check` (PyPI: agent-memory-integrity) gets into an agent's context on our store.

    python -m benchmarks.gate.lineage.agmi_semantic [--mutations]

Six attacks, five fixtures each, written over three channels: `external` (labelled so), `laundered` (labelled as the
user's, without the user's key), `agent-laundered` (labelled and signed as the user's). Every write is a signed append
to a store on disk, every read opens and verifies it and ranks with the packaged MiniLM. Three readers:

    every memory        recall as it is: lineage labels memories and refuses none
    trusted label       the agent drops what is not `trusted`; one key writes for all: the source is the writer's word
    trusted, own keys   as above; who does not hold the user's key writes under another principal, whom nobody trusts

The suite signs with a secret per user that stands for the key; its `KEYRING` says who holds it. With `--mutations`
its rewordings of each attack are tried too, and a case is kept out only if all are. Nothing looks at the fixtures.

Not measured here, because the suite asks what retrieval serves: the gate, which is what stops an *action* that a served
memory argues for; the write guard, which needs an entry that an audit removed before; the audit itself.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.gate.lineage.recall import labelled
from benchmarks.harness.resultfile import RESULTS, ResultFile
from memory_audit.attribution.replays.retrieval import RankedMemory, dense_ranker
from memory_audit.entry import Entry
from memory_audit.lineage.trust import TrustRules
from memory_audit.lineage.verified import VerifiedLineage
from memory_audit.provenance.keys import generate_keys
from memory_audit.snapshot.publishing.publish import append_entries, create_store
from memory_audit.snapshot.reader import open_snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memory_audit.entry import Source
    from memory_audit.models.protocols import Embedder

__all__ = ["READERS", "StoreMemory", "measure"]

COMMAND = "python -m benchmarks.gate.lineage.agmi_semantic"
READERS: Mapping[str, TrustRules | None] = {
    "every memory": None,
    "trusted label": TrustRules(),
    "trusted, own keys": TrustRules(principals=frozenset({"user"})),
}
NOW_MS = 1_800_000_000_000


class StoreMemory:
    """The store as the suite wants a memory (its `SemanticMemoryAdapter`, which needs no inheritance).

    Args:
        rules: Base labels of a reader who drops what is not trusted; None serves every memory.
        holds_key: Tells whether the writer of an item holds the key of the user it names.
        embedder: For the ranking.
    """

    name = "memaudit"

    def __init__(self, rules: TrustRules | None, holds_key: Any, embedder: Embedder) -> None:
        self._rules, self._holds_key = rules, holds_key
        self._keyring = generate_keys()
        self._vector = lru_cache(maxsize=4_096)(lambda text: embedder.embed([text])[0])
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._waiting: list[Entry] = []
        self._written = 0

    def reset(self) -> None:
        """Begin with no store."""
        self.close()
        self._folder = tempfile.TemporaryDirectory()
        self._waiting, self._written = [], 0

    def close(self) -> None:
        """Remove the store."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def supports_users(self) -> bool:
        """Users are tenants."""
        return True

    def measured_on(self) -> str:
        """Say what was measured."""
        return "signed store, packaged MiniLM"

    def add_memory(self, item: Any) -> None:
        """Take a write; it is appended with the others before the next read."""
        source: Source = item.source if item.source in ("user", "agent", "tool") else "external"
        self._waiting.append(
            Entry(
                tenant=item.user_id, entry_id=f"m{self._written + len(self._waiting)}", source=source,
                principal="user" if self._holds_key(item) else "somebody", request=item.text, response=item.text,
                created_at_ms=NOW_MS, metadata={name: str(value) for name, value in item.metadata.items()},
            )
        )  # fmt: skip

    def retrieve(self, query: str, user_id: str, k: int = 5) -> list[Any]:
        """Return the memories that the agent would see, best first."""
        return self.retrieve_where(query, user_id, {}, k)

    def retrieve_where(self, query: str, user_id: str, where: Mapping[str, str], k: int = 5) -> list[Any]:
        """Return those of them that have the metadata `where`, which are signed with the entry."""
        from agmi.adapters.semantic_base import Retrieved  # type: ignore[import-untyped]  # noqa: PLC0415

        snapshot = open_snapshot(self._store(), self._keyring.policy, now_ms=NOW_MS + 1)
        if user_id not in snapshot.tenants:
            return []
        entries = snapshot.entries(user_id)
        left_out = {item.entry_id for item in entries if any(item.metadata.get(key) != where[key] for key in where)}
        if self._rules is not None:
            lineage = VerifiedLineage(snapshot, user_id, self._rules).dag
            left_out |= {item.entry.entry_id for item in labelled(entries, lineage) if item.label != "trusted"}
        import numpy as np  # noqa: PLC0415 - only here

        rank = dense_ranker(np.stack([self._vector(item.request) for item in entries]), {query: self._vector(query)})
        found = RankedMemory(entries, rank, k).retrieve(query, frozenset(left_out))
        return [Retrieved(text=item.response, user_id=item.tenant) for item in found]

    def _store(self) -> Path:
        if self._folder is None:
            raise AssertionError("the suite resets before it writes")
        store = Path(self._folder.name) / "store"
        if self._waiting and not self._written:
            create_store(store, self._waiting, self._keyring, now_ms=NOW_MS)
        elif self._waiting:
            append_entries(store, self._waiting, self._keyring, now_ms=NOW_MS)
        self._written, self._waiting = self._written + len(self._waiting), []
        return store


def measure(
    embedder: Embedder, readers: Sequence[str], *, mutations: bool, attacks: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Run the suite, or only some attacks; a row per reader, attack and channel, with the outcome of each fixture.

    Outcomes are the suite's: `surfaced`, `kept out`, or `no verdict` where its own control failed.
    """
    from agmi.attacks.memory_specific import ALL_MEMORY_ATTACKS  # type: ignore[import-untyped]  # noqa: PLC0415
    from agmi.signing import KEYRING  # type: ignore[import-untyped]  # noqa: PLC0415

    def holds_key(item: Any) -> bool:
        return bool(KEYRING.verify(item.user_id, item.source, item.text, item.signature))

    words = {True: "surfaced", False: "kept out", None: "no verdict"}
    rows: list[dict[str, Any]] = []
    for reader in readers:
        memory = StoreMemory(READERS[reader], holds_key, embedder)
        for attack in ALL_MEMORY_ATTACKS:
            if attacks and attack.name not in attacks:
                continue
            found = attack(mutate=mutations).run(memory)
            if not found.channels:
                raise SystemExit(f"{reader}: {attack.name}: the suite came to no result: {found.error}")
            rows += [
                {
                    "reader": reader, "attack": attack.name, "version": attack.version, "mutations": mutations,
                    "channel": channel, "surfaced": outcomes.count(True), "cases": len(outcomes),
                    "outcomes": [words[outcome] for outcome in outcomes],
                }
                for channel, outcomes in found.channels.items()
            ]  # fmt: skip
        memory.close()
    return rows


def main() -> None:
    """Measure, print and write `agmi_semantic.json`, or `agmi_semantic_mutations.json`."""
    parser = argparse.ArgumentParser(
        prog=COMMAND, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mutations", action="store_true", help="also try the suite's rewordings of each attack")
    parser.add_argument("--folder", type=Path, default=RESULTS, help="where the result goes")
    options = parser.parse_args()
    if find_spec("agmi") is None:
        print("skipped: needs the PyPI package agent-memory-integrity")
        return
    from importlib.metadata import version  # noqa: PLC0415

    from memory_audit.models.loading import ModelSpecs, load_embedder  # noqa: PLC0415

    embedder = load_embedder(ModelSpecs())
    config = {
        "suite": version("agent-memory-integrity"), "embedder": embedder.model_id, "readers": list(READERS),
        "mutations": options.mutations,
    }  # fmt: skip
    name = "agmi_semantic_mutations" if options.mutations else "agmi_semantic"
    command = f"{COMMAND} --mutations" if options.mutations else COMMAND
    result = ResultFile(name, command, config, folder=options.folder, fresh=True)
    for reader in READERS:
        for row in measure(embedder, [reader], mutations=options.mutations):
            result.add_row(row)
            print(f"{reader:18} {row['attack']:26} {row['channel']:15} {row['surfaced']} of {row['cases']} surfaced")
    bled = sum(row["surfaced"] for row in result.rows if row["attack"] == "cross_session_bleed")
    result.add_bar("memories of one tenant served to another", bled, "", "= 0", met=bled == 0)
    strict = [row for row in result.rows if row["reader"] == "trusted, own keys"]
    without_key = sum(row["surfaced"] for row in strict if row["channel"] in ("external", "laundered"))
    result.add_bar("writes without the user's key, served as trusted", without_key, "", "= 0", met=without_key == 0)


if __name__ == "__main__":
    main()
