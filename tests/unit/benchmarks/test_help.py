"""Every benchmark that can be started answers --help and refuses unknown words, before it measures or writes."""

import ast
import re
import runpy
import sys
from pathlib import Path

import pytest

from benchmarks.harness.resultfile import RESULTS

REPOSITORY = RESULTS.parents[1]
FILES = [path for folder in ("benchmarks", "training") for path in (REPOSITORY / folder).rglob("*.py")]
GUARD = re.compile(r"^if __name__ == .__main__.:", re.MULTILINE)
PACKAGES = {path for path in FILES if path.name == "__main__.py"}
RUNNABLE = sorted(PACKAGES | {path for path in FILES if GUARD.search(path.read_text(encoding="utf-8"))})


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)


def written() -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in RESULTS.rglob("*")}


def run(path: Path) -> None:
    """Run a benchmark as `python -m` does."""
    # Not started without a parser: it would run for hours, and write over its result.
    assert ".parse_args(" in path.read_text(encoding="utf-8"), f"{name_of(path)} reads no command line"
    try:
        runpy.run_path(str(path), run_name="__main__")
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] in {"memory_audit", "benchmarks", "training", "tests"}:
            raise
        pytest.skip(f"{name_of(path)} cannot be imported: {error}")


def test_the_runnable_benchmarks_are_found():
    assert {"benchmarks.systems.crash", "benchmarks.guard.hst.__main__", "benchmarks.guard.hst.peer_worker"} <= set(
        map(name_of, RUNNABLE)
    )


@pytest.mark.parametrize("path", RUNNABLE, ids=name_of)
def test_help_begins_with_the_docstring_and_writes_no_result(path, monkeypatch, capsys):
    before, doc = written(), ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    monkeypatch.setattr(sys, "argv", [str(path), "--help"])
    with pytest.raises(SystemExit) as stop:
        run(path)
    assert stop.value.code == 0
    assert doc.splitlines()[0] in capsys.readouterr().out.splitlines()
    assert written() == before


@pytest.mark.parametrize("path", RUNNABLE, ids=name_of)
def test_an_unknown_word_is_refused_and_writes_no_result(path, monkeypatch, capsys):
    before = written()
    monkeypatch.setattr(sys, "argv", [str(path), "--no-such-option"])
    with pytest.raises(SystemExit) as stop:
        run(path)
    assert stop.value.code == 2
    assert "error: " in capsys.readouterr().err
    assert written() == before
