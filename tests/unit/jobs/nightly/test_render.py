"""Units that schedule a night: valid where they are read, and every name stays one word."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.errors import UsageError
from memory_audit.jobs.nightly.config import Schedule
from memory_audit.jobs.nightly.render import FINAL, FORMS, NAME, render
from memory_audit.jobs.nightly.run_night import NEEDS_A_PERSON

SCHEDULE = Schedule(at="02:05", image="registry.example/memaudit:0.1", claim="memaudit", gpus=1)
HOSTILE = Path("/srv/a b/$(touch x); % 'c' \"d\" \\e`f`\N{SNOWMAN}/nightly.yaml")
OPTIONS = ("--quiet", "--wait", "300")
PATHS = st.text(st.characters(exclude_categories=["C", "Z"], include_characters=" "), min_size=1, max_size=30)


def unit(form, config=HOSTILE, **options):  # noqa: ANN003
    return render(form, config, SCHEDULE, **options)


def test_the_crontab_line_runs_the_command_in_its_folder():
    (text,) = unit("cron", Path("/srv/acme/nightly.yaml")).values()
    assert text.startswith("5 2 * * * cd /srv/acme && /")
    assert text.endswith("/memaudit nightly /srv/acme/nightly.yaml --quiet --wait 300\n")


@given(PATHS)
def test_a_crontab_line_keeps_any_path_one_word(name):
    config = Path("/srv") / name.replace("/", "_") / "nightly.yaml"
    (text,) = render("cron", config, SCHEDULE).values()
    line = text.removeprefix("5 2 * * * ").removesuffix("\n")
    assert "%" not in line.replace("\\%", "")  # cron would end the command there
    words = shlex.split(line.replace("\\%", "%"))
    assert words[:3] == ["cd", str(config.parent), "&&"]
    assert words[4:] == ["nightly", str(config), *OPTIONS]


def test_what_a_shell_makes_of_the_line_is_the_path(tmp_path):
    folder = tmp_path / HOSTILE.parent.name
    folder.mkdir()
    (text,) = render("cron", folder / "nightly.yaml", SCHEDULE).values()
    line = text.removeprefix("5 2 * * * ").replace("\\%", "%")
    head, _, tail = line.partition(" && ")
    rest = tail.partition(" ")[2]
    done = subprocess.run(
        ["/bin/sh", "-c", f"{head} && pwd && printf '%s\n' {rest}"], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n") == [str(folder), "nightly", str(folder / "nightly.yaml"), *OPTIONS, ""]
    assert list(tmp_path.rglob("x")) == []


@pytest.mark.tool("systemd-analyze")
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_takes_service_and_timer(tmp_path, monkeypatch):
    program = tmp_path / "bin" / "memaudit"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr("memory_audit.jobs.nightly.render._program", lambda: str(program))
    folder = tmp_path / "a b $HOME %h 'c' \"d\""
    folder.mkdir()
    files = render("systemd", folder / "nightly.yaml", SCHEDULE)
    assert set(files) == {f"{NAME}.service", f"{NAME}.timer"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    words = ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / name) for name in files)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert NAME not in done.stderr


def test_a_unit_escapes_what_systemd_expands():
    service = unit("systemd")[f"{NAME}.service"]
    assert r'''"nightly" "/srv/a b/$$(touch x); %% 'c' \"d\" \\e`f`☃/nightly.yaml" "--quiet"''' in service
    assert "RestartPreventExitStatus=1 2 4 5 6 70\n" in service
    assert "OnCalendar=*-*-* 02:05:00 UTC\n" in unit("systemd")[f"{NAME}.timer"]


def document(form, config=HOSTILE, **options):  # noqa: ANN003
    (text,) = unit(form, config, **options).values()
    return yaml.safe_load(text)


def test_a_cron_job_fits_the_schema_of_kubernetes():
    validate = pytest.importorskip("kubernetes_validate").validate
    job = document("k8s")
    validate(job, "1.37", strict=True)
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    spec = job["spec"]["jobTemplate"]["spec"]
    assert spec["template"]["spec"]["containers"][0]["command"][2] == str(HOSTILE).replace("$", "$$")
    rule = spec["podFailurePolicy"]["rules"][0]
    assert (rule["action"], rule["onExitCodes"]["values"]) == ("FailJob", list(FINAL))
    assert NEEDS_A_PERSON in FINAL  # another start would be another night


@pytest.mark.parametrize("alpha", [False, True])
def test_a_ray_job_runs_the_command_as_one_line_of_a_shell(alpha):
    config = Path(str(HOSTILE).replace("$", ""))
    job = document("raycron", config, alpha=alpha)
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayCronJob" if alpha else "RayJob")
    assert not alpha or job["spec"].keys() == {"schedule", "jobTemplate"}
    spec = job["spec"]["jobTemplate"] if alpha else job["spec"]
    assert shlex.split(spec["entrypoint"]) == ["memaudit", "nightly", str(config), *OPTIONS]
    assert (spec["backoffLimit"], spec["shutdownAfterJobFinishes"]) == (0, True)
    template = spec["rayClusterSpec"]["headGroupSpec"]["template"]
    assert template["spec"]["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    validate = pytest.importorskip("kubernetes_validate").validate
    validate({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, **template}, "1.37", strict=True)


@pytest.mark.parametrize("form", FORMS)
def test_a_path_with_a_line_break_is_refused(form):
    with pytest.raises(UsageError, match="control characters"):
        unit(form, Path("/srv/a\nb/nightly.yaml"))


@pytest.mark.parametrize(("form", "name"), [("k8s", "a:b"), ("raycron", "a:b"), ("raycron", "$(x)")])
def test_a_path_that_kubernetes_would_read_otherwise_is_refused(form, name):
    with pytest.raises(UsageError, match="cannot be scheduled by"):
        unit(form, Path("/srv") / name / "nightly.yaml")


@pytest.mark.parametrize("form", ["k8s", "raycron"])
def test_kubernetes_needs_an_image_and_a_claim(form):
    with pytest.raises(UsageError, match="needs image and claim"):
        render(form, HOSTILE, Schedule())


@pytest.mark.parametrize("at", ["2:30", "24:00", "02:60", "", "02:30; rm -rf /", "02:30\n"])
def test_a_time_is_a_time(at):
    with pytest.raises(UsageError, match=r"schedule\.at"):
        Schedule(at=at)


def test_the_command_writes_what_it_prints(desk, run):
    code, out, _ = run("render", "cron", "nightly.yaml")
    assert code == 0
    assert run("render", "cron", "nightly.yaml", "--out", "units")[0] == 0
    assert (desk / "units" / f"{NAME}.crontab").read_text() == out
    for words in (("render", "at", "nightly.yaml"), ("render", "cron", "nightly.yaml", "--alpha")):
        assert run(*words)[0] == UsageError.exit_code
    code, _, err = run("render", "raycron", "nightly.yaml")
    assert (code, "local runs without Ray" in err) == (UsageError.exit_code, True)
