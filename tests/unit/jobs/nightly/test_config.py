"""The configuration of a nightly job: what it takes, and what it refuses in one line."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from memory_audit.errors import UsageError
from memory_audit.jobs.nightly import config as module
from memory_audit.jobs.nightly.config import Policy, load_night
from tests.unit.jobs.test_cli import bytes_of, one_line

REPOSITORY = Path(__file__).parents[4]

LEAST = "store: s\nruns: {folder: r}\nevents: [e]\n"


def load(tmp_path, text):
    file = tmp_path / "nightly.yaml"
    file.write_text(text, encoding="utf-8")
    return load_night(file)


def test_the_least_that_is_needed_purges_nothing_and_tells_nobody(tmp_path):
    config = load(tmp_path, LEAST)
    assert (config.policy, config.policy.most_entries) == (Policy(), 0)
    assert (config.notify.webhook, config.notify.mail, config.runs.keep) == (None, None, 30)


def test_all_that_it_takes(tmp_path):
    config = load(
        tmp_path,
        LEAST.replace("{folder: r}", "{folder: r, keep: 7}")
        + "sources: [{file: d, tenant: acme, principal: bot, whole: false}]\nkeys: k\npin: p\naudit: a\nlocal: true\n"
        "missing_share: 0.1\n"
        "policy: {most_entries: 3, most_share: 0.1, verdicts: [cleared, contributed], most_p: 0.02}\n"
        "notify: {webhook: 'env:HOOK', timeout_s: 3, mail: {folder: o, to: a@b.c, sender: d@e.f}, metrics: m.prom}\n"
        "schedule: {at: '23:59', image: i, claim: c, gpus: 2}\n",
    )
    assert config.policy.verdicts == ("cleared", "contributed")
    assert (config.sources[0].whole, config.schedule.at) == (False, "23:59")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("purge: true", "unknown field 'purge'"),
        ("policy: {most_entries: 3}", "most_entries and most_share are given together"),
        ("policy: {most_entries: 3, most_share: 2}", "policy.most_share is 2, expected a number"),
        ("policy: {most_entries: -1, most_share: 1}", "policy.most_entries is -1"),
        ("policy: {verdicts: [guilty]}", "'guilty'"),
        ("policy: {most_entires: 3}", "unknown field 'most_entires' of policy"),
        ("notify: {webhook: 'file:///etc/passwd'}", "notify.webhook is no address"),
        ("notify: {webhook: 'https://user@:x'}", "notify.webhook is no address"),
        ("notify: {timeout_s: 0}", "notify.timeout_s is 0"),
        ("notify: {mail: {folder: o, to: 'a@b.c, x@y.z', sender: d@e.f}}", "notify.mail.to is"),
        ('notify: {mail: {folder: o, to: "a@b.c\\nBcc: x@y.z", sender: d@e.f}}', "notify.mail.to is"),
        ("schedule: {at: 10:30}", "schedule.at is 630"),
        ("missing_share: 0", "missing_share is 0"),
        ("sources: [{}]", "a source has either a file or a system"),
        ("store: t", "a member is there twice"),
        ("keys: *a", "not valid YAML"),
    ],
)
def test_what_it_refuses_is_one_line_and_nothing_is_made(folder, run, more, told):
    (folder / "nightly.yaml").write_text(LEAST + more + "\n", encoding="utf-8")
    before = bytes_of(folder)
    code, _, err = run("nightly", "nightly.yaml")
    assert (code, told in one_line(err)) == (UsageError.exit_code, True), err
    assert bytes_of(folder) == before


@pytest.mark.parametrize("missing", ["store", "runs", "events"])
def test_what_is_needed_is_named(tmp_path, missing):
    text = "\n".join(line for line in LEAST.splitlines() if not line.startswith(missing))
    with pytest.raises(UsageError, match=f"{missing} is missing"):
        load(tmp_path, text)


def test_the_documented_examples_are_taken(tmp_path):
    page = (REPOSITORY / "docs/howto/nightly.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert load(tmp_path, example).policy.most_entries == 5
    (written,) = re.findall(r"\n\n(    store:.*?)\n\n", str(module.__doc__), re.DOTALL)
    assert load(tmp_path, textwrap.dedent(written)).policy.most_p == 0.02
