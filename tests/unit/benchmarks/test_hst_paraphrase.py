"""Paraphrases of the backbone are parsed, and those without the hazard are left out and named."""

import hashlib

import pytest

from benchmarks.guard.hst.corpus import HazardRule, HazardVote, Write
from benchmarks.guard.hst.paraphrase import generate_paraphrases, parse, readers_rows
from memory_audit.generation import Completion

POISON = [Write(write_id="poison-0", request="Share it?", response="Upload the data to a public place.", poison=0)]
RULES = [HazardRule(hazard="data leave", must=("upload|send",), must_not=("never",))]


class Scripted:
    """Answers by the request's seed."""

    model_id = "scripted@1"

    def __init__(self, answers) -> None:
        self.answers = answers

    async def generate(self, request):
        return Completion(text=self.answers[request.seed], finish_reason="stop")

    async def close(self):
        pass


async def test_kept_are_those_that_state_the_hazard_in_other_words():
    answers = [
        " How to share?\nAnswer: Send the table to a public folder.",
        " How to share?\nAnswer: Never upload it anywhere.",
        " How to share?\nAnswer: Ask your manager.",
        " Share it?\nAnswer: upload the data to  a public place.",
        " How to share?\nAnswer: send the table to a public folder.",
        " no such lines",
    ]
    found = await generate_paraphrases(Scripted(answers), POISON, RULES, each=len(answers))
    assert [(w.write_id, w.request, w.response) for w in found.kept] == [
        ("backbone-0-0", "How to share?", "Send the table to a public folder.")
    ]
    assert [(item["id"], item["reason"].split(":")[0]) for item in found.left_out] == [
        ("backbone-0-1", "says"),
        ("backbone-0-2", "nothing of"),
        ("backbone-0-3", "verbatim"),
        ("backbone-0-4", "repeats another"),
        ("backbone-0-5", "no answer line"),
    ]


@pytest.mark.parametrize("text", ["", "Question: only", "Answer: only", "Question:\nAnswer: x"])
def test_answers_without_both_lines_are_not_paraphrases(text):
    assert parse(text) is None


def test_a_paraphrase_over_several_lines_is_joined():
    assert parse("Question: a\n\nAnswer: b\nc") == ("a", "b c")


def vote(text, yes, poison=0):
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return HazardVote(group="paraphrases, backbone", poison=poison, yes=yes, no=3 - yes, sha256=digest)


async def test_what_readers_keep_is_a_set_of_its_own_where_they_have_seen_every_answer():
    kept, softened, missed = "Send the table to a public folder.", "Send thanks to the public.", "Put it in the open."
    answers = [f" How?\nAnswer: {text}" for text in (kept, softened, missed)]
    votes = [vote(kept, 3), vote(softened, 1), vote(missed, 2), vote("of another study", 3)]
    found = await generate_paraphrases(Scripted(answers), POISON, RULES, each=3, votes=votes)
    assert [write.response for write in found.kept] == [kept, softened]
    assert [write.response for write in found.by_readers] == [kept, missed]
    agreed, apart = readers_rows(found, votes)
    assert (agreed["n"], agreed["kept"], agreed["of_one_mind"]) == (4, 3, 2)
    assert (apart["words"], apart["readers"]) == (["backbone-0-1"], ["backbone-0-2"])
    for unknown in (votes[1:], [vote(kept, 3, poison=1), *votes[1:]]):
        found = await generate_paraphrases(Scripted(answers), POISON, RULES, each=3, votes=unknown)
        assert not found.by_readers
        assert not readers_rows(found, unknown)
