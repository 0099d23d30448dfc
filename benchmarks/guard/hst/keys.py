"""What semantic keys alone can tell: the largest cosine of each write with a removed poison's key, set by set.

No language model is needed. `above_look` is the share of a set that the guard's default would show to the model,
`above_alone` what it would refuse without one; an AUC of 0.5 says that no threshold on the key would help.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.gate.derivation.measures import auc
from memory_audit.guard.decide.settings import GuardSettings
from memory_audit.guard.text.forms import action_of, text_forms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from benchmarks.guard.hst.corpus import Corpus, Write
    from memory_audit.models.protocols import Embedder

__all__ = ["key_rows"]


def key_rows(corpus: Corpus, name: str, embedder: Embedder) -> list[dict[str, Any]]:
    """Return one row for each set of writes; of an adaptive attack its essential writes count, each by itself."""
    keys = embedder.embed([text for write in corpus.poison for text in action_of(write.entry())])

    def nearest(writes: Sequence[Write]) -> NDArray[np.float64]:
        texts = [text_forms(write.entry()) for write in writes]
        largest = (embedder.embed([text for group in texts for text in group]) @ keys.T).max(axis=1)
        ends = np.cumsum([len(group) for group in texts])
        return np.asarray([part.max() for part in np.split(largest, ends[:-1])], np.float64)

    sets: dict[str, list[Write]] = {
        "paraphrases, written": list(corpus.paraphrases),
        "benign": list(corpus.benign),
        "safe twins": list(corpus.safe_twins),
    }
    for attack in corpus.adaptive:
        essential = [write for write in attack.writes if write.write_id in attack.essential]
        sets.setdefault(f"adaptive, {attack.kind}", []).extend(essential)
    found = {group: nearest(writes) for group, writes in sets.items()}
    settings = GuardSettings()
    return [
        {
            "part": "keys", "embedder": name, "set": group, "n": len(cosines),
            "p10": _round(np.quantile(cosines, 0.1)), "median": _round(np.median(cosines)),
            "p90": _round(np.quantile(cosines, 0.9)), "largest": _round(cosines.max()),
            "above_look": _round((cosines >= settings.look_above).mean()),
            "above_alone": _round((cosines >= settings.key_alone_above).mean()),
            "auc_over_benign": _auc(cosines, found["benign"]), "auc_over_twins": _auc(cosines, found["safe twins"]),
        }
        for group, cosines in found.items()
    ]  # fmt: skip


def _auc(higher: NDArray[np.float64], lower: NDArray[np.float64]) -> float:
    return _round(auc(np.r_[higher, lower], np.arange(len(higher) + len(lower)) < len(higher)))


def _round(value: Any) -> float:
    return round(float(value), 3)
