"""The configuration: one set of defaults, flags win, and a digest of what results depend on."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.config import AuditConfig, load_config
from memory_audit.errors import UsageError

CONFIGS = st.builds(
    AuditConfig,
    harm=st.just({"kind": "regex", "pattern": "x"}) | st.just({"kind": "answer-label", "labels": ["A", "B"]}),
    retrieval=st.sampled_from(["dense", "levenshtein"]),
    k=st.integers(1, 9),
    attribution=st.sampled_from(["set", "loo"]),
    alpha=st.floats(0, 1),
    budget=st.none() | st.integers(0, 5),
    probe_pattern=st.none() | st.just(r"Answer: (\w)"),
    seed=st.integers(0, 3),
)


@given(CONFIGS, CONFIGS)
def test_digests_are_equal_exactly_where_configurations_are(a, b):
    assert (a.digest() == b.digest()) == (a == b)


def test_where_the_servers_key_is_makes_no_other_run_and_is_not_published():
    assert AuditConfig(backbone_key_env="MY_KEY").digest() == AuditConfig().digest()
    assert AuditConfig(backbone_key_env="MY_KEY").canonical() == AuditConfig().canonical()


def test_the_order_of_settings_changes_no_digest():
    harm = {"kind": "regex", "pattern": "x"}
    assert AuditConfig(harm=harm).digest() == AuditConfig(harm=dict(reversed(harm.items()))).digest()


@given(CONFIGS)
def test_a_configuration_written_as_yaml_comes_back(config):
    with_path = yaml.safe_dump(config.canonical())
    values = yaml.safe_load(with_path)
    assert load_config(None, values).digest() == config.digest()


def test_every_field_that_results_depend_on_is_in_the_canonical_form():
    names = {field.name for field in fields(AuditConfig)} - {"backbone_key_env", "calibration", "max_run_replays"}
    assert list(AuditConfig().canonical()) == sorted(names)


def test_flags_win_over_the_file_and_the_file_over_defaults(tmp_path):
    path = tmp_path / "memaudit.yaml"
    path.write_text("k: 7\nalpha: 1\nmax-replays: 10\n")
    config = load_config(path, {"k": 3, "alpha": None})
    assert (config.k, config.alpha, config.max_replays) == (3, 1.0, 10)
    assert config == replace(AuditConfig(), k=3, alpha=1.0, max_replays=10)
    assert isinstance(config.alpha, float)


def test_an_empty_file_is_the_defaults(tmp_path):
    (tmp_path / "a.yaml").write_text("# nothing\n")
    assert load_config(tmp_path / "a.yaml", {}) == AuditConfig()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kk": 3}, "unknown option 'kk'; known are agent, all_pairs_below, alpha"),
        ({"k": "five"}, "k is 'five', expected a whole number"),
        ({"k": True}, "k is True, expected a whole number"),
        ({"k": 2.0}, "k is 2.0, expected a whole number"),
        ({"k": 0}, "k is 0, expected a whole number from 1 to 10,000,000"),
        ({"alpha": 1.5}, "alpha is 1.5, expected a number from 0 to 1"),
        ({"alpha": float("nan")}, "alpha is nan, expected a number from 0 to 1"),
        ({"retrieval": "bm25"}, "expected one of dense, levenshtein"),
        ({"retrieval": ["dense"]}, "expected one of dense, levenshtein"),
        ({"budget": -1}, "budget is -1, expected a whole number from 0 to 10,000,000 or nothing"),
        ({"samples": 101}, "samples is 101, expected a whole number from 0 to 100"),
        ({"budget": "all"}, "budget is 'all', expected a whole number from 0"),
        ({"harm": "regex"}, "harm is 'regex', expected a mapping"),
        ({"probe_pattern": "("}, "is not a regular expression"),
        ({"neighbours": 0}, "neighbours is 0, expected a whole number from 1"),
        ({"all_pairs_below": 1_501}, "all_pairs_below is 1501, expected a whole number from 0 to 1,500"),
    ],
)
def test_wrong_options_are_refused_in_one_line(values, message):
    with pytest.raises(UsageError) as failure:
        load_config(None, values)
    assert message in str(failure.value)
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"k: [", "not valid YAML"),
        (b"\xff\xfe", "not valid YAML"),
        (b"- a\n- b\n", "expected a mapping"),
        (b"5: a\n", "expected a mapping"),
        (b"!!python/object/apply:os.system [true]", "not valid YAML"),
        (b"k: 1 # " + b"x" * (1 << 20), "at most 1048576 bytes are allowed"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused_by_name(tmp_path, raw, message):
    path = tmp_path / "memaudit.yaml"
    path.write_bytes(raw)
    with pytest.raises(UsageError) as failure:
        load_config(path, {})
    assert str(path) in str(failure.value)
    assert message in str(failure.value)
    assert "\n" not in str(failure.value)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        load_config(tmp_path / "none.yaml", {})


def test_a_configuration_holds_no_label_even_in_its_agent():
    with pytest.raises(TypeError):
        AuditConfig(poisoned=["m1"])  # type: ignore[call-arg]


@pytest.mark.parametrize("name", ["attribution_nats", "consistent_extra_nats"])
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_evidence_thresholds_are_finite(name, value):
    with pytest.raises(UsageError, match=f"{name} is .*expected nats"):
        AuditConfig(**{name: value})
