"""Drawings stay inside their picture, repeat exactly, and say what they leave out."""

from __future__ import annotations

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


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.none() | st.floats(-1e300, 1e300), st.none() | st.floats(0, 1e300)), min_size=0, max_size=20)
)
def test_any_finite_scores_are_drawn_inside_the_picture(rows):
    scores = [
        replace(TENANT.scores[0], entry_id=f"m-{i}", rank=i + 1, cmis=cmis, cas=cas)
        for i, (cmis, cas) in enumerate(rows)
    ]
    scatter = draw_scatter(scores, {}, ())
    assert inside(scatter.marks)
    assert len(scatter.marks) + scatter.left_out == len(scores)
    assert len(scatter.x_ticks) < 15
    assert len(scatter.y_ticks) < 15


def test_larger_scores_lie_further_up_and_right():
    low = replace(TENANT.scores[0], entry_id="low", rank=2, cmis=0.1, cas=0.1)
    high = replace(TENANT.scores[0], entry_id="high", rank=1, cmis=0.9, cas=0.8)
    marks = {mark.title.split(":")[0]: mark for mark in draw_scatter([low, high], {}, ("high",)).marks}
    assert marks["high"].x > marks["low"].x
    assert marks["high"].y < marks["low"].y


def test_entries_without_influence_lie_in_their_own_lane():
    scatter = draw_scatter(TENANT.scores, {}, REMOVED)
    lane = [mark for mark in scatter.marks if mark.y == scatter.lane_y]
    assert len(lane) == sum(score.cmis is None for score in TENANT.scores)
    assert all("influence (CMIS) not replayed" in mark.title for mark in lane)
    known = [replace(score, cmis=0.0) for score in TENANT.scores]
    assert draw_scatter(known, {}, REMOVED).lane_y is None


def test_removed_entries_link_to_their_cards():
    scatter = draw_scatter(TENANT.scores, {"tick-4113": "#t0-m0"}, REMOVED)
    assert [mark.title.split(":")[0] for mark in scatter.marks if mark.href] == ["tick-4113"]
    assert [mark.kind for mark in scatter.marks if mark.href] == ["removed"]


def test_the_graph_repeats_exactly_and_draws_every_pair():
    one, two = (draw_graph(TENANT.scores, TENANT.edges, {}, REMOVED) for _ in range(2))
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
    drawing = draw_graph(scores, edges, {}, ("m-1400", "m-1401"))
    assert len(drawing.marks) == MAX_NODES
    assert drawing.nodes_left_out == len(names) - MAX_NODES
    assert drawing.edges_left_out == 0
    assert {"m-1400", "m-1401", "m-1300"} <= {mark.title.split(":")[0] for mark in drawing.marks}
    scatter = draw_scatter(scores, {}, ("m-1400", "m-1401"))
    assert (len(scatter.marks), scatter.left_out) == (MAX_POINTS, 10)
    assert sum(mark.kind == "removed" for mark in scatter.marks) == 2


@pytest.mark.parametrize("count", [0, 1, 2])
def test_tiny_stores_are_drawn(count):
    drawing = draw_graph(TENANT.scores[:count], [], {}, REMOVED)
    assert len(drawing.marks) == count
    assert inside(drawing.marks)


def test_pairs_that_name_unknown_entries_are_not_drawn():
    edge = GraphEdge(a=TENANT.scores[0].entry_id, b="nobody", similarity=0.5, contradiction=0.5)
    drawing = draw_graph(TENANT.scores, [edge], {}, REMOVED)
    assert (drawing.lines, drawing.edges_left_out) == ((), 1)


def test_names_do_not_cover_each_other():
    labels = draw_scatter(TENANT.scores, {}, REMOVED).labels
    assert {label.text for label in labels} == {"tick-4113", "tick-4127", "tick-4140"}
