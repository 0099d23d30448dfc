"""What the documentation shows exists: imports, commands, options, files. And it can be read."""

import ast
import re
import shlex

import pytest
import typer.main

import memory_audit
from docs.generate import ROOT, written_pages
from memory_audit.jobs.cli.main import app

PAGES = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in written_pages()}
OWN = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]

MOST_WORDS_OF_THE_README = 900
MOST_WORDS_OF_A_SENTENCE = 30


def blocks(language: str) -> list[tuple[str, str]]:
    """Every code block of a language, with the page that it stands on."""
    shape = re.compile(rf"^```{language}\n(.*?)^```", re.DOTALL | re.MULTILINE)
    return [(name, block) for name, text in PAGES.items() for block in shape.findall(text)]


def commands() -> list[tuple[str, str]]:
    """Every line that starts with the command, in a block of the shell's or in an indented one."""
    lines = [(name, line) for name, block in blocks("sh") for line in block.replace("\\\n", " ").splitlines()]
    lines += [(name, line[4:]) for name, text in PAGES.items() for line in text.splitlines() if line.startswith("    ")]
    return [(name, line) for name, line in lines if line.startswith("memaudit ") and "[OPTIONS]" not in line]


@pytest.mark.parametrize(("page", "code"), blocks("python"))
def test_a_python_example_imports_from_the_public_face_alone(page, code):
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("memory_audit"):
            assert node.module == "memory_audit"
            assert {alias.name for alias in node.names} <= set(memory_audit.__all__)
        assert not (isinstance(node, ast.Import) and any(each.name.startswith("memory_audit.") for each in node.names))


@pytest.mark.parametrize(("page", "line"), commands())
def test_a_command_that_is_shown_has_the_options_that_it_is_shown_with(page, line):
    words = shlex.split(line, comments=True)[1:]
    command = typer.main.get_command(app)
    context = command.make_context("memaudit", [], resilient_parsing=True)
    while hasattr(command, "commands") and words and words[0] in command.commands:
        name = words.pop(0)
        command = command.commands[name]
        context = command.make_context(name, [], parent=context, resilient_parsing=True)
    if context.command_path == "memaudit submit":  # what follows its own options is another command's
        return
    known = {option for parameter in command.get_params(context) for option in parameter.opts}

    assert not hasattr(command, "commands") or not words or words[0].startswith("-"), words
    assert {word for word in words if re.match(r"--?[a-z]", word)} <= known | {"--help", "--version"}


@pytest.mark.parametrize("page", OWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_link_to_a_file_leads_to_one(page):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert target.startswith(("http://", "https://")) or (page.parent / target).exists(), target


@pytest.mark.parametrize("page", OWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_and_modules_that_are_named_are_there(page):
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"`((?:audit|models|jobs|benchmarks|training|tests)/[\w./-]*)`", text):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"`(?:python -m )?((?:memory_audit|benchmarks|training)(?:\.\w+)+)[ `]", text):
        place = name.replace(".", "/").replace("memory_audit/", "audit/")
        place = re.sub(r"^audit/(models|jobs)\b", r"\1", place)
        assert (ROOT / f"{place}.py").exists() or (ROOT / place).is_dir() or name == "memory_audit.__all__", name


@pytest.mark.parametrize("page", OWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_sentence_is_too_long_to_follow(page):
    text = re.sub(r"^```.*?^```|<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    lines = [line for line in text.splitlines() if not re.match(r"\s*[|#]|    \S|\s*!\[|\s*:::|\s*---", line)]
    prose = re.sub(r"^\s*(?:[-*+]|\d+\.)\s+", "\n\n", "\n".join(lines), flags=re.MULTILINE)
    prose = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", prose)

    for block in re.split(r"\n\s*\n", re.sub(r"[`*_]", "", prose)):
        for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z(])", " ".join(block.split())):
            assert len(sentence.split()) <= MOST_WORDS_OF_A_SENTENCE, sentence


def test_the_readme_is_one_page():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= MOST_WORDS_OF_THE_README
