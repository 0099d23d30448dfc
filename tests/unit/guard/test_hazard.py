"""Taxonomies are read strictly; signatures match by containment, and the empty one never."""

# ruff: noqa: ANN003 - what the tests pass is passed on

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.errors import UsageError
from memory_audit.guard.blocks.hazard import HazardSignature, default_taxonomy, load_taxonomy, matches, parse_taxonomy

LABEL = {"name": "a", "definition": "does a", "positive": "do a", "negative": "do not"}
NAMES = st.frozensets(st.sampled_from("abcd"))


def taxonomy(labels=(LABEL,), **changes):
    return json.dumps({"name": "mine", "version": 1, "labels": list(labels)} | changes).encode()


def sign(labels, digest="t"):
    return HazardSignature(labels=frozenset(labels), taxonomy=digest, model="m")


def test_the_packaged_taxonomy_has_the_papers_five_labels():
    names = {"skip_validation", "remote_exec", "external_upload", "force_success", "disable_audit"}
    assert set(default_taxonomy().names) == names


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (taxonomy([LABEL, LABEL]), "label 'a' is there twice"),
        (taxonomy([]), "0 labels"),
        (taxonomy([LABEL | {"name": ""}]), "lower-case word"),
        (taxonomy([LABEL | {"definition": "  "}]), "definition of a is empty"),
        (taxonomy([LABEL | {"positive": "x\u202ey"}]), "hidden character"),
        (taxonomy([LABEL | {"negative": "x" * 2_000}]), "more than 1024 bytes"),
        (taxonomy([LABEL | {"extra": 1}]), "unknown field 'extra'"),
        (taxonomy([{"name": "a"}]), "definition is missing"),
        (taxonomy([LABEL | {"threshold_nats": "high"}]), "expected a number"),
        (taxonomy([LABEL | {"threshold_nats": float("nan")}]), "expected a number"),
        (taxonomy([LABEL | {"name": f"l{n}"} for n in range(33)]), "33 labels"),
        (taxonomy(version=True), "version is True"),
        (taxonomy(name="My Taxonomy"), "lower-case word"),
        (b"name: a\nname: b\nversion: 1\nlabels: []", "a member is there twice near line 2: 'name'"),
        (b"name: &x mine\nversion: 1\nlabels: [*x]", "aliases are not allowed"),
        (b"- 1", "expected a mapping"),
        (b"\xff", "not valid YAML"),
        (b"#" * 70_000, "at most 65536 bytes"),
    ],
)
def test_a_taxonomy_that_breaks_a_rule_is_refused(data, message):
    with pytest.raises(UsageError, match=message):
        parse_taxonomy(data, "file")


def test_a_missing_taxonomy_file_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"none\.yaml: cannot be read"):
        load_taxonomy(tmp_path / "none.yaml")


def test_the_digest_covers_meaning_and_not_thresholds():
    plain = parse_taxonomy(taxonomy(), "file")
    strict = parse_taxonomy(taxonomy(labels=[LABEL | {"threshold_nats": 3.0}]), "file")
    assert strict.digest == plain.digest
    assert strict.judge({"a": 2.9}) == frozenset()
    for change in ({"version": 2}, {"name": "other"}, {"labels": [LABEL | {"definition": "does b"}]}):
        assert parse_taxonomy(taxonomy(**change), "file").digest != plain.digest


@given(NAMES)
def test_the_empty_signature_matches_nothing_though_it_is_a_subset_of_everything(labels):
    assert not matches(sign(()), sign(labels))
    assert not matches(sign(labels), sign(()))


@given(NAMES, NAMES)
def test_matching_is_symmetric_and_by_containment(a, b):
    assert matches(sign(a), sign(b)) == matches(sign(b), sign(a))
    assert matches(sign(a), sign(b)) == bool(a and b and (a <= b or b <= a))


def test_signatures_of_two_taxonomies_never_match():
    assert not matches(sign("a", "t"), sign("a", "u"))
