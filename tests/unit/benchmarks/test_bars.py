"""What is printed of the bars: the shipped defaults, those not met first; others only when asked for."""

from benchmarks.harness.bars import read_bars
from benchmarks.harness.resultfile import ResultFile


def test_defaults_come_alone_and_those_not_met_come_first(tmp_path):
    result = ResultFile("speed", "c", {}, folder=tmp_path)
    result.add_bar("met", 1.0, "x", "<= 2", met=True)
    result.add_bar("unknown", None, "x", "<= 2", met=None)
    result.add_bar("missed", 3.0, "x", "<= 2", met=False)
    result.add_bar("ablation", 4.0, "x", "<= 2", met=False, of="variant")
    assert [bar["name"] for bar in read_bars(tmp_path)] == ["missed", "unknown", "met"]
    assert [bar["name"] for bar in read_bars(tmp_path, variants=True)] == ["ablation", "missed", "unknown", "met"]


def test_every_committed_bar_has_a_limit_and_says_whom_it_is_about():
    bars = read_bars(variants=True)
    assert {bar["of"] for bar in bars} == {"default", "variant"}
    assert not {"", "none stated"} & {bar["limit"] for bar in bars}
