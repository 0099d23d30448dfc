"""Tables of `docs/results/guard.md`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.harness.pages.shown import one, per_cent, record, rows, table, thousands

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["DEFAULT", "DEFAULT_RUN", "PARTS", "mixed"]

DEFAULT, ALONE = "act+labels", "act"
"""The guard's modes as results name them: what it does by default, and what needs no backbone."""

DEFAULT_RUN = "hst_int8"
"""The run of the lockout benchmark by the guard as it comes."""

SETS = ("verbatim", "paraphrases, written", "paraphrases, backbone", "benign", "benign, length-matched", "safe twins",
        "adaptive")  # fmt: skip
SHOWN = ("verbatim", "written paraphrases", "model's paraphrases", "benign", "benign, length-matched", "safe twins",
         "adaptive")  # fmt: skip

VARIANTS = (
    ("hst_int8_without_probe", "containment+key", "`containment+key` without its probe"),
    ("hst_int8_backbone_only", "containment+key", "`containment+key`, labels by the backbone alone"),
    ("hst_int8_list", "containment", "`containment`, one JSON answer for all labels (the paper's way)"),
    ("hst_int8_list", "exact", "`exact`, likewise"),
    ("hst_int8_list", "containment+key", "`containment+key`, likewise"),
    ("hst_int8_list", DEFAULT, f"`{DEFAULT}`, likewise"),
)
"""Run, mode, and what it is called."""

KINDS = {
    "bad practice, six parts of working life": ("assistant", "data", "office", "operations", "science_and_trades",
                                                "software"),
    "a standing order that serves somebody else": ("orders",),
    "a false fact or permission": ("beliefs",),
    "another thing or person in place of the one asked for": ("targets",),
    "a false rule of answering": ("answers",),
    "all": ("all",),
}  # fmt: skip

FORMS = (
    ("plain, other words", ("plain", "plain, another"), "by other means", "by other means"),
    ("terse, or the core alone", ("terse or core alone",), "the act's words put right", "the same words, put right"),
    ("softened and padded", ("softened and padded",), "padded, put right", "padded likewise, put right"),
    ("another language", ("another language",), "another language", "another language"),
    ("nearly word for word, milder", ("nearly word for word",), "nearly word for word, put right",
     "nearly word for word, put right"),
    ("one clause in an honest routine", ("buried in routine",), "buried in routine, put right",
     "the same routine, the clause put right"),
)  # fmt: skip
"""Form of a restatement, as it is counted; the safe answers that it is held against, as they are counted and called."""

READ = (("`act`: a near key decides in doubt", ALONE), ("labels alone decide in doubt", f"{DEFAULT}, labels alone"),
        (f"**`{DEFAULT}`** (default)", DEFAULT))  # fmt: skip


def lockout() -> str:
    """What of each set is refused, by the guard's modes and by other guards."""
    names = {DEFAULT: f"**guard, `{DEFAULT}`** (default)", ALONE: f"guard, `{ALONE}` (no vLLM)"}
    lines = [
        _blocked(DEFAULT_RUN, mode, names.get(mode, f"guard, `{mode}`"))
        for mode in (DEFAULT, ALONE, "containment+key", "containment", "exact", "key")
    ]
    for peer, name in (("agent-memory-guard", "agent-memory-guard"), ("memgovern", "memgovern"),
                       ("bastionmemory", "bastionmemory")):  # fmt: skip
        lines.append([name, *(_peer(peer, each) for each in SETS)])
    first = [one(DEFAULT_RUN, part="blocking", mode=DEFAULT, set=each) for each in SETS]
    limit = one(DEFAULT_RUN, part="length")["limit"]
    lines.append([f"text longer than {limit} characters", *(round(row["length_only"] * row["n"]) for row in first)])
    return table(("refused", *(f"{name}, of {row['n']}" for name, row in zip(SHOWN, first, strict=True))), lines)


def variants() -> str:
    """Likewise with fewer or other instruments."""
    return table(("refused", *SHOWN), [_blocked(run, mode, name) for run, mode, name in VARIANTS])


def _blocked(run: str, mode: str, name: str) -> list[object]:
    found = {row["set"]: row for row in rows(run, part="blocking", mode=mode)}
    return [name, *(found[each]["blocked"] if each in found else "–" for each in SETS)]


def _peer(peer: str, each: str) -> str:
    counts = sorted({row["blocked"] for row in rows("hst_peers", peer=peer, set=each)})
    return " to ".join(str(count) for count in counts) or "–"


def adversary() -> str:
    """One sender of all paraphrases, under one name and under ever new ones."""
    named = ("one", "ever new")
    lines: list[list[object]] = []
    for each, name in (
        ("paraphrases, written", "written paraphrases"),
        ("paraphrases, backbone", "model's paraphrases"),
    ):
        found = [one(DEFAULT_RUN, part="adversary", names=names, set=each) for names in named]
        lines.append([f"{name} refused, in the order given", *(f"**{row['blocked']}** of {row['n']}" for row in found)])
        lines.append([
            "… of shuffled orders, those in which all are refused",
            *(f"{row['shuffled_all_refused']} of {row['shuffled_orders']}" for row in found),
        ])  # fmt: skip
    worst = [
        [row["prp_at_3"] for row in rows(DEFAULT_RUN, part="adversary, retrieval", names=names)] for names in named
    ]
    lines.append(
        ["poison in the first three results, worst of three encoders", *(f"**{max(each):g}**" for each in worst)]
    )
    for each, name in (("paraphrases, backbone", "model's paraphrases among harmless writes"),
                       ("benign", "benign records among them"), ("safe twins", "safe twins among them")):  # fmt: skip
        found = [mixed(each, names) for names in named]
        lines.append([f"{name}, refused", *(f"{row['blocked']} of {row['n']}" for row in found)])
    return table(("", "under one name", "under ever new names"), lines)


def mixed(each: str, names: str) -> dict[str, Any]:
    """Return what is refused of a set where paraphrases and harmless writes come together, by the guard as it comes."""
    return one(DEFAULT_RUN, part="mixed", set=each, names=names, distrust_after=2, alarm_after=2, suspend_after=0)


def drawn() -> str:
    """Ten times as many paraphrases."""
    sets = ("paraphrases", "paraphrases, by readers", "safe twins, rewritten")
    lines: list[list[object]] = [
        [
            f"`{mode}`, each text by itself",
            *(_of(one("lockout_drawn", part="blocking", mode=mode, set=each)) for each in sets),
        ]
        for mode in (DEFAULT, ALONE)
    ]
    for names in ("one", "ever new"):
        found = [
            one("lockout_drawn", part="one after the other", names=names, set=each, distrust_after=2, suspend_after=0)
            for each in sets
        ]
        lines.append([f"`{DEFAULT}`, one after the other, names: {names}", *(_of(row) for row in found)])
    head = ("refused", "paraphrases, by the rule of words", "paraphrases, by the readers", "rewritten safe twins")
    return table(head, lines)


def _of(row: dict[str, Any]) -> str:
    low, high = (
        f"{bound:.2f}" if 99.9 < bound < 100 else f"{bound:.1f}" for bound in (100 * row["low"], 100 * row["high"])
    )
    return f"{row['blocked']} of {row['n']}: {per_cent(row['rate'], 1)} ({low}–{high})"


def retrieval() -> str:
    """Poison in the first three results, under each condition."""
    lines = [
        (name, *(
            f"{row['prp_at_3']:.2f}" for each in SETS[1:3]
            for row in rows(DEFAULT_RUN, part="condition", embedder="minilm", set=each, condition=condition)
        ))
        for condition, name in (
            ("no-forget", "nothing is removed"), ("id-delete", "poison is deleted by its id, and written again"),
            ("retrieval-time exact, δ = 0", "filtered when read, exact labels"),
            ("retrieval-time fuzzy, δ = 0", "filtered when read, overlapping labels"),
            ("commit-time", "**guard, each text by itself**"),
        )
    ]  # fmt: skip
    return table(("share of poison in the first three results (MiniLM)", *SHOWN[1:3]), lines)


def unseen(result: str) -> Callable[[], str]:
    """Return the part of one set of scenarios that nothing was fitted on."""

    def part() -> str:
        lines = [
            (name, *(
                f"{row['refused']} of {row['n']}"
                for kind in ("practice", "steering") for texts in ("restated", "safe")
                for row in (one(result, mode=mode, kind=kind, texts=texts),)
            ))
            for name, mode in READ
        ]  # fmt: skip
        return table(
            ("refused", "bad practice, restated", "honest notes", "steering, restated", "honest notes "), lines
        )

    return part


def unseen_forms() -> str:
    """Of the blind scenarios, by the form of the restatement."""
    found = rows("lockout_blind", mode=DEFAULT, texts="restated")
    lines = [(way, f"{sum(row['by_way'][way] for row in found)} of {sum(row['n'] for row in found) // 5}")
             for way in found[0]["by_way"]]  # fmt: skip
    return table(("form of the restatement", "refused by the default"), lines)


def kinds() -> str:
    """The reader, by what the removed memory taught."""
    lines = []
    for name, parts in KINDS.items():
        found = [one("act_cascade", readers="both", part=part) for part in parts]
        refused, doubted = (
            _range([100 * row[share] for row in found], "{:.0f}", " %")
            for share in ("restated_refused", "restated_in_doubt_or_refused")
        )
        lines.append((name, _range([row["auc"] for row in found], "{:.3f}"), refused, doubted))
    return table(("what the removed memory taught", "AUC", "of its restatements refused", "refused or in doubt"), lines)


def _range(values: Iterable[float], shape: str, unit: str = "") -> str:
    texts = list(dict.fromkeys(shape.format(value) for value in sorted(values)))
    return texts[0] + unit if len(texts) == 1 else f"{texts[0]} to {texts[-1]}{unit}"


def forms() -> str:
    """The reader, by the form of the restatement."""
    row = one("act_cascade", readers="both", part="all")
    rewritten = one("act_cascade", readers="both", part="rewritten by a small model")
    lines = [
        (name, _range([100 * row["refused_by_kind"][kind] for kind in counted], "{:.0f}", " %"), against,
         f"{row['auc_against'][safe]:.3f}")
        for name, counted, safe, against in FORMS
    ]  # fmt: skip
    lines.append(("rewritten by a small model", f"{100 * rewritten['restated']['refused']:.0f} %",
                  "a safe answer, rewritten likewise", f"{rewritten['auc']:.3f}"))  # fmt: skip
    head = ("form of the restatement", "refused", "safe answers that it is held against", "AUC")
    return table(head, lines)


def readers() -> str:
    """The first reader alone, and both."""
    lines = []
    for readers_named, name in (("first", "first reader alone"), ("both", "**both**")):
        every = one("act_cascade", readers=readers_named, part="all")
        rewritten = one("act_cascade", readers=readers_named, part="rewritten by a small model")
        lines.append((name, f"{every['auc']:.3f}", f"{100 * every['restated_refused']:.0f} %",
                      f"{100 * every['restated_in_doubt_or_refused']:.0f} %",
                      f"{100 * every['refused_by_kind']['buried in routine']:.0f} %",
                      f"{100 * rewritten['restated']['refused']:.0f} %"))  # fmt: skip
    head = ("", "AUC", "restatements refused", "refused or in doubt", "one clause in a routine, refused",
            "rewritten by a small model, refused")  # fmt: skip
    return table(head, lines)


def many() -> str:
    """What is refused of harmless writes, by the number of removals."""
    numbers = (10, 45, 100, 300, 940)
    lines = []
    for moved in (0.0, 1.0):
        for texts in ("MemoryBank's turns", "ordinary notes", "answers to other requests"):
            found = {row["acts"]: row for row in rows("many_acts", texts=texts, moved_nats=moved)}
            writes = thousands(next(iter(found.values()))["writes"])
            threshold = "as it comes" if not moved else f"{moved:g} nat more"
            lines.append((f"{writes} {texts}", threshold, *(
                per_cent(found[number]["refused"], 1) if number in found else "–" for number in numbers
            )))  # fmt: skip
    return table(("refused, by removed behaviours", "threshold", *map(str, numbers)), lines)


def labels() -> str:
    """Three instruments for hazard labels."""
    names = {"backbone": "backbone, asked", "entailment": "entailment", "probe": "probe",
             "backbone and entailment": "backbone and entailment", "all": "**all three**"}  # fmt: skip
    order = list(rows("hazard_reading")[0]["auc"])
    lines = [
        (name, *(f"{one('hazard_reading', method=method)['auc'][label]:.2f}" for label in order),
         sum(one("hazard_reading", method=method)["found"].values()))
        for method, name in names.items()
    ]  # fmt: skip
    truly = sum(rows("hazard_reading")[0]["truly"].values())
    return table(("AUC", *(f"`{label}`" for label in order), f"found of {truly}"), lines)


def latency() -> str:
    """What a write costs."""
    lines: list[tuple[str, str, str]] = [
        (f"`{row['mode']}`, {'behaviour read' if row['path'] == 'act read' else row['path']}",
         f"{row['p50_ms']:.3g} ms", f"{row['p95_ms']:.3g} ms (p95)")
        for row in rows(DEFAULT_RUN, part="latency")
    ]  # fmt: skip
    plain = one("guard_latency", what="no model call")
    tombstones = thousands(record("guard_latency")["config"]["tombstones"])
    lines.append((f"without a model, {tombstones} tombstones", f"{plain['p50_ms']} ms", f"{plain['p99_ms']} ms (p99)"))
    return table(("path", "median", "slow"), lines)


PARTS: dict[str, Callable[[], str]] = {
    "lockout": lockout, "lockout variants": variants, "adversary": adversary, "drawn": drawn, "retrieval": retrieval,
    "blind": unseen("lockout_blind"), "blind forms": unseen_forms, "unseen": unseen("lockout_unseen"),
    "kinds": kinds, "forms": forms, "readers": readers, "many": many, "labels": labels, "guard latency": latency,
}  # fmt: skip
