"""Record what real models answer in the demo, for `memaudit demo --recorded`.

    python -m benchmarks.harness.record_demo [--backbone packaged:1.5b-int8]

Runs the demo once with the packaged models, in this process, and writes their answers to
`models/data/demo_answers.json.gz`. To be run again whenever the corpus, a prompt or the search changes: a test says
when a question is not recorded.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from rich.console import Console

from benchmarks.harness.command import run
from memory_audit.jobs import demo
from memory_audit.jobs.demo_corpus import CONFIG_FILE, corpus_folder
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.models.loading import ModelSpecs, load_embedder, load_entailment, load_generator
from memory_audit.models.recorded import pair_digest, text_digest, write_recording

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from memory_audit.generation import Completion, GenerationRequest

__all__ = ["Recorder"]


class Recorder(LocalExecutor):
    """An executor that keeps what its models answer; it is all three models, too."""

    def __init__(self, specs: ModelSpecs) -> None:
        super().__init__(specs)
        self._models = (load_generator(specs), load_entailment(specs), load_embedder(specs))
        self.completions: dict[str, Completion] = {}
        self.rows: dict[str, Sequence[float]] = {}
        self.vectors: dict[str, NDArray[np.float32]] = {}
        generator, entailment, embedder = self._models
        ask, score, embed = generator.generate, entailment.probabilities, embedder.embed

        async def generate(request: GenerationRequest) -> Completion:
            self.completions[request.digest()] = answer = await ask(request)
            return answer

        def probabilities(pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
            found = score(pairs)
            self.rows |= {pair_digest(*pair): row.tolist() for pair, row in zip(pairs, found, strict=True)}
            return found

        def embedded(texts: Sequence[str]) -> NDArray[np.float32]:
            found = embed(texts)
            self.vectors |= {text_digest(text): row for text, row in zip(texts, found, strict=True)}
            return found

        generator.generate, entailment.probabilities, embedder.embed = generate, probabilities, embedded  # type: ignore[method-assign]
        self._generator, self.entailment, self.embedder = generator, entailment, embedder  # type: ignore[misc]

    def write(self) -> None:
        """Write what was answered."""
        names = {"backbone": self._models[0].model_id, "nli": self._models[1].model_id,
                 "embedder": self._models[2].model_id}  # fmt: skip
        write_recording(names, self.completions, self.rows, self.vectors)


def main() -> None:
    """Run the demo with real models, and keep their answers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="packaged:1.5b-int8")
    options = parser.parse_args()
    recorder = Recorder(replace(ModelSpecs(backbone=options.backbone), vllm=demo.SERVING))
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(demo, "make_executor", return_value=recorder):
        corpus = Path(shutil.copytree(corpus_folder(), Path(folder) / "corpus"))
        with (corpus / CONFIG_FILE).open("a", encoding="utf-8") as settings:
            settings.write('\nhazards: "off"\n')
        demo.run_demo(
            Path(folder) / "demo", Console(), backbone=options.backbone, executor="local", corpus=corpus
        )  # fmt: skip
    recorder.write()


if __name__ == "__main__":
    run(main)
