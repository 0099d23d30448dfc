"""A stand-in for the backbone that reads hazards by words: for tests and dry runs of the block list. No weights.

It looks at the record between the fences alone, as a model should, unless `gullible`: then an order in the record to
answer no is obeyed, which is what the framing has to withstand.
"""

from __future__ import annotations

import json
import math
import re
from types import MappingProxyType
from typing import TYPE_CHECKING

from memory_audit.errors import ModelError
from memory_audit.generation import Completion, TokenLogprob

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memory_audit.generation import GenerationRequest

__all__ = ["WORDS", "FakeHazardGenerator"]

WORDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "skip_validation": ("skip", "leave out", "without checking", "bypass"),
        "remote_exec": ("curl", "download and run", "pipe it"),
        "external_upload": ("upload", "public share", "send a copy"),
        "force_success": ("mark success", "report ok", "whatever happens"),
        "disable_audit": ("disable the log", "turn off the log", "delete the audit"),
    }
)
"""Label to words that stand for it."""

SURE_NATS = 3.0
_RECORD = re.compile(r"Record:\n(=== [0-9a-f]{16} ===)\n(.*?)\n\1\n", re.DOTALL)
_ORDER = re.compile(r"answer no|output no hazards", re.IGNORECASE)


class FakeHazardGenerator:
    """Implements `memory_audit.models.protocols.Generator` for the two kinds of hazard requests.

    Args:
        words: Label to the words that stand for it.
        definitions: Label to definition, to recognise a question by; the packaged taxonomy's by default.
        gullible: Obey a record that says "answer no".
        outside: The first answers, which are outside every schema.
        fails: Raise ModelError always.
    """

    def __init__(
        self,
        *,
        definitions: Mapping[str, str],
        words: Mapping[str, Sequence[str]] = WORDS,
        gullible: bool = False,
        outside: int = 0,
        fails: bool = False,
    ) -> None:
        self.model_id = "fake-hazards@1"
        self.requests: list[GenerationRequest] = []
        self._definitions, self._words = definitions, words
        self._gullible, self._outside, self._fails = gullible, outside, fails

    async def generate(self, request: GenerationRequest) -> Completion:
        """Answer one request; see `memory_audit.models.protocols.Generator`."""
        self.requests.append(request)
        if self._fails:
            raise ModelError("fake-hazards@1: died, as told to")
        if self._outside > 0:
            self._outside -= 1
            return _completion("perhaps", (TokenLogprob(text="perhaps", logprob_nats=-0.1),))
        prompt = request.messages[-1].content
        record = _RECORD.search(prompt)
        if record is None:
            raise ModelError("fake-hazards@1: no record in the request")
        text, question = record[2].casefold(), prompt[record.end() :]
        obeyed = self._gullible and _ORDER.search(text) is not None
        held = [name for name, words in self._words.items() if not obeyed and any(word in text for word in words)]
        if request.json_schema is not None:
            return _completion(json.dumps({"hazards": held}), ())
        yes = any(self._definitions[name] in question for name in held)
        word, other = ("yes", "no") if yes else ("no", "yes")
        return _completion(word, (
            TokenLogprob(text=word, logprob_nats=-math.log1p(math.exp(-SURE_NATS))),
            TokenLogprob(text=other, logprob_nats=-math.log1p(math.exp(SURE_NATS))),
        ))  # fmt: skip

    async def close(self) -> None:
        """Nothing to release."""


def _completion(text: str, first: tuple[TokenLogprob, ...]) -> Completion:
    return Completion(text=text, finish_reason="stop", top=(first,) if first else ())
