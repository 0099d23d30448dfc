"""What --data must hold is told by --help, and a missing or damaged file is one line and exit code 2."""

import json
import runpy
import sys
from pathlib import Path

import pytest

from benchmarks.attribution.minja.qa_data import check_qa_data, load_questions
from benchmarks.harness import public_data
from benchmarks.harness.public_data import reading
from benchmarks.harness.resultfile import RESULTS
from benchmarks.systems.nli_throughput import snli
from memory_audit.errors import UsageError
from memory_audit.models.weights import packaged
from memory_audit.models.weights.cache import CACHE_VARIABLE
from training.behaviours.report import turns_of

FOLDER = RESULTS.parents[1]
SETS = {
    "training/behaviour_reading.py": ["MEMORYBANK"],
    "benchmarks/attribution/peers/__main__.py": ["MMLU", "MINJA_QA"],
    "benchmarks/attribution/calibration.py": ["MMLU", "MINJA_QA"],
    "benchmarks/attribution/clean_store.py": ["MMLU", "MINJA_QA"],
    "benchmarks/guard/hst/__main__.py": ["MEMORYGRAFT"],
    "benchmarks/guard/lockout_drawn.py": ["MEMORYGRAFT"],
    "benchmarks/guard/lockout_unseen.py": ["MEMORYBANK"],
    "benchmarks/guard/many_acts.py": ["MEMORYBANK"],
    "benchmarks/guard/reader_weights.py": ["MEMORYGRAFT"],
    "benchmarks/attribution/minja_qa.py": ["MMLU", "MINJA_QA"],
    "benchmarks/attribution/minja_rap.py": ["WEBSHOP", "MINJA_RAP"],
    "benchmarks/systems/nli_throughput.py": ["SNLI"],
    "benchmarks/attribution/probes_kept.py": ["MMLU", "MINJA_QA"],
    "benchmarks/attribution/public_stores/__main__.py": ["CONFLICTQA", "POISONEDRAG"],
    "benchmarks/attribution/published_methods.py": ["CONFLICTQA", "POISONEDRAG"],
    "benchmarks/scan/clean.py": ["MEMORYBANK", "MMLU", "WEBSHOP"],
    "benchmarks/scan/clean_harm.py": ["MEMORYBANK", "MMLU", "WEBSHOP"],
}
"""Benchmarks with --data, and what they read."""


def start(name: str, words: list[str], monkeypatch) -> object:
    """Run a benchmark as `python -m` does; return its exit code."""
    monkeypatch.setattr(sys, "argv", [name, *words])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(FOLDER / name), run_name="__main__")
    return stop.value.code


@pytest.fixture
def no_models(tmp_path, monkeypatch) -> None:
    """As on a new machine, where a model that is loaded is assembled first: that takes minutes, and fails here."""

    def refuse(name: str, needed_bytes: int) -> None:
        pytest.fail(f"{name} ({needed_bytes} bytes) was assembled")

    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(packaged, "build_folder", refuse)


def make_qa_data(folder: Path) -> Path:
    """A stand-in with the shape of the real files, in words of its own."""
    example = "\n\nQ: Is it day?\n(A) yes (B) no (C) both (D) none\nA: The sun is up. The answer is (A)."
    files = {
        "mmlu/test/law_test.csv": "Which food is law?,one,two,three,four,B\n",
        "mmlu/mmlu-cot.json": json.dumps({"law": f"Questions.{example}"}),
        "minja/QA/victim.json": json.dumps([{"victim": "food", "note": [{"note1": "(First, look.)"}]}]),
        "minja/QA/initial_demo.txt": "Question:When?\\nOptions:\\nA) now\\nThought: Now.\\nAnswer: A",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_every_benchmark_with_data_is_listed():
    texts = {
        path.relative_to(FOLDER).as_posix(): path.read_text(encoding="utf-8")
        for part in ("benchmarks", "training")
        for path in (FOLDER / part).rglob("*.py")
    }
    assert {name for name, text in texts.items() if " add_data(parser, " in text} == set(SETS)
    assert [name for name, text in texts.items() if '"--data"' in text] == ["benchmarks/harness/public_data.py"]


@pytest.mark.parametrize("name", SETS)
def test_help_says_which_files_are_read(name, monkeypatch, capsys):
    assert start(name, ["--help"], monkeypatch) == 0
    shown = capsys.readouterr().out
    assert all(getattr(public_data, data_set) in shown for data_set in SETS[name])


@pytest.mark.usefixtures("no_models")
@pytest.mark.parametrize("name", SETS)
def test_missing_data_is_one_line_before_any_model_is_loaded(name, tmp_path, monkeypatch, capsys):
    assert start(name, ["--data", str(tmp_path / "nowhere")], monkeypatch) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"benchmark: {tmp_path / 'nowhere'}/")
    assert line.endswith("; --help says what --data must hold")


@pytest.mark.usefixtures("no_models")
@pytest.mark.parametrize(
    "damage",
    [
        ("mmlu/test/law_test.csv", "question,A,B,C,D,answer\n", "expected A, B, C or D"),
        ("mmlu/test/law_test.csv", "question,A\n", "not enough values"),
        ("mmlu/mmlu-cot.json", '{"law": ', "Expecting value"),
        ("minja/QA/victim.json", '[{"victim": "food"}]', "lacks 'note'"),
        ("minja/QA/initial_demo.txt", "nothing", "no 'Thought:'"),
    ],
)
def test_a_damaged_file_is_one_line_before_any_model_is_loaded(damage, tmp_path, monkeypatch, capsys):
    name, content, message = damage
    path = make_qa_data(tmp_path) / name
    check_qa_data(tmp_path)
    path.write_text(content, encoding="utf-8")
    assert start("benchmarks/attribution/minja_qa.py", ["--data", str(tmp_path)], monkeypatch) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"benchmark: {path}: damaged, or of another form: ")
    assert message in line


def test_bytes_that_are_no_text_are_damage(tmp_path):
    (make_qa_data(tmp_path) / "mmlu" / "test" / "law_test.csv").write_bytes(b"\xff\xfe\n")
    with pytest.raises(UsageError, match=r"law_test\.csv: damaged"):
        load_questions(tmp_path)


def test_other_loaders_name_a_damaged_file(tmp_path):
    for loader, name in ((turns_of, "memorybank/memory_bank_en.json"), (snli, "nli/snli/snli_1.0_test.jsonl")):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text("[]", encoding="utf-8")
        with pytest.raises(UsageError, match=rf"{path.name}: damaged"):
            loader(tmp_path)


def test_a_mistake_that_is_not_the_files_is_not_hidden(tmp_path):
    with pytest.raises(AssertionError), reading(tmp_path):
        raise AssertionError
