"""Entailment beside the backbone: evidence, curves, and how a reader puts both together."""

from __future__ import annotations

import asyncio
import json
import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.errors import UsageError
from memory_audit.guard.blocks.hazard import default_taxonomy
from memory_audit.guard.text.chunks import PIECE_BYTES
from memory_audit.models.fakes import FakeEntailment, FakeGenerator, FakeProbe
from memory_audit.models.hazards.extraction import HazardReader
from memory_audit.models.hazards.signature_cache import SignatureCache
from memory_audit.models.hazards.statements import (
    FLOOR,
    MAX_UNITS,
    HazardStatements,
    LabelCurve,
    packaged_curves,
    parse_curves,
    statement_evidence,
    units,
)
from memory_audit.models.lazy import LazyEntailment
from memory_audit.models.loading import ModelSpecs
from memory_audit.models.readers import hazard_reader, nli_beside

TAXONOMY = default_taxonomy()


class WordEntailment(FakeEntailment):
    """A premise entails a statement by the share of the statement's words that it has."""

    def probabilities(self, pairs):
        rows = []
        for premise, statement in pairs:
            words = set(statement.casefold().split())
            share = len(words & set(premise.casefold().replace(".", " ").split())) / max(len(words), 1)
            rows.append((0.0, 1.0 - share, share))
        return np.asarray(rows, np.float32).reshape(len(pairs), 3)


def curves_for(**weights: float) -> dict[str, LabelCurve]:
    return {
        name: LabelCurve(
            statements=("checks are skipped",), weights=(weights.get(name, 0.0),), margin_slope=0.5, bias=1.0
        )
        for name in TAXONOMY.names
    }


def packaged_record() -> dict:
    label = {"statements": ["A."], "weights": [1.0], "margin_slope": 0.1, "probe_slope": 0.1, "bias": 0.0}
    return {"taxonomy": TAXONOMY.digest, "labels": {name: dict(label) for name in TAXONOMY.names}}


def test_the_units_are_the_sentences_and_the_whole():
    assert units("Do it. Skip checks!") == ("Do it.", "Skip checks!", "Do it. Skip checks!")
    assert units("one") == ("one",)


def test_of_many_sentences_none_is_left_out():
    text = " ".join(f"Sentence {number}." for number in range(100))
    found = units(text)
    assert len(found) <= MAX_UNITS + 1
    assert all(any(f"Sentence {number}." in unit for unit in found[:-1]) for number in range(100))


def test_sentences_without_white_space_between_them_are_units():
    assert units("他住在北京。他喝茶！真的？")[:-1] == ("他住在北京。", "他喝茶！", "真的？")
    assert units("राम आया। वह गया।")[:-1] == ("राम आया।", "वह गया।")


@pytest.mark.parametrize(
    "text",
    [
        " ".join(f"Open the order {number} and note its number in the ledger of the week." for number in range(600)),
        " ".join(f"word{number}" for number in range(1_000)),
        "".join(chr(0x4E00 + number) for number in range(1_500)),
        "".join(f"{number:05d}" for number in range(1_000)),
    ],
)
def test_a_long_text_is_read_whole_in_units_that_a_model_reads_to_the_end(text: str):
    *parts, whole = units(text)
    assert whole == text
    assert max(len(part.encode()) for part in parts) <= PIECE_BYTES
    place = 0
    for part in parts:
        found = text.find(part, max(place - PIECE_BYTES, 0))
        assert 0 <= found <= place + 1  # nothing but white space lies between two
        place = found + len(part)
    assert not text[place:].strip()


def test_evidence_is_the_strongest_sentences():
    found = statement_evidence(
        WordEntailment(), "Good day. Here checks are skipped.", ["checks are skipped", "logs vanish"]
    )
    assert found == pytest.approx([math.log(1 + FLOOR), math.log(FLOOR)], abs=1e-5)


@given(
    st.lists(st.sampled_from(["Checks run.", "They are skipped.", "All is fine."]), min_size=1, max_size=5), st.data()
)
def test_an_added_sentence_takes_nothing_from_what_the_others_show(sentences, data):
    model, statements = WordEntailment(), ["checks are skipped"]
    added = data.draw(st.lists(st.sampled_from(["Everything is checked first.", "No checks are skipped."]), max_size=3))
    before = max(float(statement_evidence(model, sentence, statements)[0]) for sentence in sentences)
    assert float(statement_evidence(model, " ".join([*sentences, *added]), statements)[0]) >= before - 1e-6


def test_log_odds_add_the_margin_and_the_evidence():
    statements = HazardStatements(WordEntailment(), curves_for(skip_validation=2.0), TAXONOMY.digest)
    found = asyncio.run(statements.log_odds("Here checks are skipped.", dict.fromkeys(TAXONOMY.names, -2.0)))
    assert found["skip_validation"] == pytest.approx(1.0 - 1.0 + 2.0 * math.log(1 + FLOOR), abs=1e-5)
    assert found["remote_exec"] == pytest.approx(0.0)


def test_a_reader_with_statements_returns_log_odds_and_names_both_models():
    generator = FakeGenerator()
    plain = asyncio.run(HazardReader(generator).margins("Here checks are skipped.", TAXONOMY))
    statements = HazardStatements(WordEntailment(), curves_for(skip_validation=2.0), TAXONOMY.digest)
    reader = HazardReader(generator, statements=statements)
    both = asyncio.run(reader.margins("Here checks are skipped.", TAXONOMY))
    assert reader.model_id == f"{generator.model_id} + {WordEntailment.model_id}"
    assert both["remote_exec"] == pytest.approx(1.0 + 0.5 * plain["remote_exec"])


@pytest.mark.parametrize(
    ("with_statements", "calibrated", "told"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_only_a_calibrated_reader_with_statements_says_how_far_a_hazard_is(with_statements, calibrated, told):
    statements = HazardStatements(WordEntailment(), curves_for(skip_validation=2.0), TAXONOMY.digest)
    reader = HazardReader(
        FakeGenerator(), statements=statements if with_statements else None, calibrated=calibrated
    )  # fmt: skip
    assert reader.calibrated_for == (TAXONOMY.digest if told else None)
    other = msgspec.structs.replace(TAXONOMY, version=TAXONOMY.version + 1)
    for taxonomy, says in ((TAXONOMY, told), (other, False)):
        (signature,) = asyncio.run(reader.extract(["Here checks are skipped."], taxonomy))
        margins = asyncio.run(reader.margins("Here checks are skipped.", taxonomy))
        above = max(margins[label.name] - label.threshold_nats for label in taxonomy.labels)
        assert signature.hazard_nats == (above if says else None)
        assert (above > 0) == bool(signature.labels)


def test_what_one_instrument_said_is_not_taken_for_what_both_say(tmp_path):
    cache = SignatureCache(tmp_path / "kept.sqlite")
    statements = HazardStatements(WordEntailment(), curves_for(skip_validation=2.0), TAXONOMY.digest)
    alone = asyncio.run(HazardReader(FakeGenerator(), cache=cache).margins("Here checks are skipped.", TAXONOMY))
    both = asyncio.run(
        HazardReader(FakeGenerator(), cache=cache, statements=statements).margins("Here checks are skipped.", TAXONOMY)
    )
    cache.close()
    assert alone != both


def test_texts_of_another_taxonomy_are_read_by_the_backbone_alone():
    other = msgspec.structs.replace(TAXONOMY, version=TAXONOMY.version + 1)
    statements = HazardStatements(WordEntailment(), curves_for(), TAXONOMY.digest)
    reader = HazardReader(FakeGenerator(), statements=statements)
    plain = asyncio.run(HazardReader(FakeGenerator()).margins("Here checks are skipped.", other))
    assert asyncio.run(reader.margins("Here checks are skipped.", other)) == plain


def test_the_packaged_curves_belong_to_the_packaged_taxonomy():
    curves = packaged_curves(TAXONOMY)
    assert curves is not None
    assert set(curves) == set(TAXONOMY.names)
    assert packaged_curves(msgspec.structs.replace(TAXONOMY, version=TAXONOMY.version + 1)) is None


def test_curves_with_a_negative_weight_are_refused():
    record = packaged_record()
    record["labels"]["remote_exec"]["weights"] = [-0.1]
    with pytest.raises(UsageError, match="a weight is negative"):
        parse_curves(record, TAXONOMY)


def test_curves_of_other_labels_are_refused():
    record = packaged_record()
    del record["labels"]["remote_exec"]
    with pytest.raises(UsageError, match="labels are not the taxonomy's"):
        parse_curves(json.loads(json.dumps(record)), TAXONOMY)


def test_entailment_goes_with_packaged_backbones_unless_told_otherwise():
    assert nli_beside(ModelSpecs(backbone="fake"), TAXONOMY, None) is None
    assert nli_beside(ModelSpecs(backbone="openai:http://h/v1#m"), TAXONOMY, None) is None
    assert nli_beside(ModelSpecs(backbone="packaged"), TAXONOMY, "none") is None
    assert nli_beside(ModelSpecs(backbone="packaged"), TAXONOMY, None) == "packaged"
    named = hazard_reader(FakeGenerator(), ModelSpecs(backbone="fake"), TAXONOMY, nli="fake")
    assert named.model_id == f"{FakeGenerator().model_id} + {FakeEntailment.model_id} + {FakeProbe.model_id}"


def test_an_nli_model_named_for_another_taxonomy_is_refused():
    other = msgspec.structs.replace(TAXONOMY, version=TAXONOMY.version + 1)
    with pytest.raises(UsageError, match="for the packaged taxonomy only; name none"):
        nli_beside(ModelSpecs(backbone="fake"), other, "packaged")
    assert nli_beside(ModelSpecs(backbone="packaged"), other, None) is None


def test_a_lazy_model_scores_as_the_model_does():
    pairs = [("Checks are skipped.", "A check is left out.")]
    lazy = LazyEntailment(ModelSpecs(nli="fake"))
    assert lazy.probabilities(pairs) == pytest.approx(FakeEntailment().probabilities(pairs))
