"""Drawings stay inside their picture, repeat exactly, and say what they leave out."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_audit.report.drawing import HEIGHT, MAX_NODES, MAX_POINTS, WIDTH, draw_graph, draw_scatter
from memory_audit.result import GraphEdge
from tests.unit.report.sample import sample_result

TENANT = sample_result().tenants[0]
REMOVED = TENANT.removal.removed


def inside(marks):
    return all(0 <= mark.x <= WIDTH and 0 <= mark.y <= HEIGHT for mark in marks)


def scatter_of(scores, anchors, removed=REMOVED):
    cas = [score.cas for score in scores if score.cas is not None]
    unusual = statistics.fmean(cas) + 2 * statistics.pstdev(cas) if cas else None
    return draw_scatter(scores, anchors, removed, unusual)


def graph_of(scores, edges, removed=REMOVED):
    return draw_graph(scores, edges, {}, removed)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.none() | st.floats(-1e300, 1e300), st.none() | st.floats(0, 1e300)), min_size=0, max_size=20)
)
def test_any_finite_scores_are_drawn_inside_the_picture(rows):
    scores = [
        replace(TENANT.scores[0], entry_id=f"m-{i}", rank=i + 1, cmis=cmis, cas=cas)
        for i, (cmis, cas) in enumerate(rows)
    ]
    scatter = scatter_of(scores, {})
    assert inside(scatter.marks)
    assert len(scatter.marks) + scatter.marks_left_out == len(scores)
    assert all(value >= 0 for line in scatter.lines for value in line[:4])
    assert sum(label.kind == "tick" for label in scatter.labels) < 30


def test_larger_scores_lie_further_up_and_right():
    low = replace(TENANT.scores[0], entry_id="low", rank=2, cmis=0.1, cas=0.1)
    high = replace(TENANT.scores[0], entry_id="high", rank=1, cmis=0.9, cas=0.8)
    marks = {mark.title.split(":")[0]: mark for mark in scatter_of([low, high], {}).marks}
    assert marks["high"].x > marks["low"].x
    assert marks["high"].y < marks["low"].y


def test_entries_without_influence_lie_in_their_own_lane():
    scatter = scatter_of(TENANT.scores, {})
    (lane_y,) = [line.y1 for line in scatter.lines if line.kind == "lane"]
    lane = [mark for mark in scatter.marks if mark.y == lane_y]
    assert len(lane) == sum(score.cmis is None for score in TENANT.scores)
    assert all("influence (CMIS) not replayed" in mark.title for mark in lane)
    known = [replace(score, cmis=0.0) for score in TENANT.scores]
    assert "lane" not in {line.kind for line in scatter_of(known, {}).lines}


def test_a_name_beside_the_threshold_stays_inside_the_picture():
    for unusual, anchor in ((10.0, "start"), (1.0, "end")):
        cas = [*[0.9] * 30, unusual]
        scores = [replace(TENANT.scores[0], entry_id=f"m-{i}", rank=i + 1, cas=value) for i, value in enumerate(cas)]
        scatter = scatter_of(scores, {})
        (label,) = [label for label in scatter.labels if label.text.startswith("unusual")]
        (cut,) = [line.x1 for line in scatter.lines if line.kind == "cut"]
        assert (label.anchor, label.x < cut) == (anchor, anchor == "end")
        assert 130 < label.x < WIDTH or anchor == "start"


def test_removed_entries_link_to_their_cards():
    scatter = scatter_of(TENANT.scores, {"tick-4113": "#t0-m0"})
    assert [mark.title.split(":")[0] for mark in scatter.marks if mark.href] == ["tick-4113"]
    assert [mark.kind for mark in scatter.marks if mark.href] == ["removed"]


def test_the_graph_repeats_exactly_and_draws_every_pair():
    one, two = (graph_of(TENANT.scores, TENANT.edges) for _ in range(2))
    assert one == two
    assert inside(one.marks)
    assert len(one.marks) == len(TENANT.scores)
    assert len(one.lines) == len(TENANT.edges)
    conflicts = sum(edge.contradiction >= 0.5 for edge in TENANT.edges)
    assert sum(line.kind == "conflict" for line in one.lines) == conflicts > 0


def test_a_large_graph_keeps_the_removed_and_their_neighbours_and_says_what_is_left_out():
    names = [f"m-{i:04}" for i in range(MAX_POINTS + 10)]
    scores = [replace(TENANT.scores[0], entry_id=name, rank=i + 1) for i, name in enumerate(names)]
    edges = [GraphEdge(a="m-1400", b=f"m-{i}", similarity=0.5, contradiction=0.9) for i in range(1300, 1390)]
    drawing = graph_of(scores, edges, ("m-1400", "m-1401"))
    assert len(drawing.marks) == MAX_NODES
    assert drawing.marks_left_out == len(names) - MAX_NODES
    assert drawing.lines_left_out == 0
    assert {"m-1400", "m-1401", "m-1300"} <= {mark.title.split(":")[0] for mark in drawing.marks}
    scatter = scatter_of(scores, {}, ("m-1400", "m-1401"))
    assert (len(scatter.marks), scatter.marks_left_out) == (MAX_POINTS, 10)
    assert sum(mark.kind == "removed" for mark in scatter.marks) == 2


@pytest.mark.parametrize("count", [0, 1, 2])
def test_tiny_stores_are_drawn(count):
    drawing = graph_of(TENANT.scores[:count], [])
    assert len(drawing.marks) == count
    assert inside(drawing.marks)


def test_pairs_that_name_unknown_entries_are_not_drawn():
    edge = GraphEdge(a=TENANT.scores[0].entry_id, b="nobody", similarity=0.5, contradiction=0.5)
    drawing = graph_of(TENANT.scores, [edge])
    assert (drawing.lines, drawing.lines_left_out) == ((), 1)


def test_names_do_not_cover_each_other():
    labels = scatter_of(TENANT.scores, {}).labels
    assert {label.text for label in labels if label.kind == "tag"} == {"tick-4113", "tick-4127", "tick-4140"}
