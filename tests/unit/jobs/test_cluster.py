"""What `submit` refuses before it speaks to any cluster, and the cluster's own description."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator, ValidationError

from audit.errors import UsageError
from jobs.cluster import EXCLUDED, MAX_ID_CHARACTERS, submission_id_of, submit

REPOSITORY = Path(__file__).parents[3]
NOWHERE = "http://127.0.0.1:9"


@given(st.text(max_size=300), st.dates(min_value=dt.date(2000, 1, 1)))
def test_every_store_name_makes_an_id_that_submit_accepts(store, day):
    name = submission_id_of(store, day)
    assert name.endswith(day.isoformat())
    with pytest.raises(UsageError, match="no command to submit"):
        submit(NOWHERE, [], submission_id=name)
    assert len(name) <= MAX_ID_CHARACTERS
    with pytest.raises(UsageError, match="looks like a secret"):  # the id was accepted: the next check speaks
        submit(NOWHERE, ["x", "PRIVATE+KEY+x"], submission_id=name)


@pytest.mark.parametrize("name", ["", "a b", "../x", "x" * (MAX_ID_CHARACTERS + 1), "-x", "a/b", "a\n"])
def test_ids_that_are_no_plain_words_are_refused(name):
    with pytest.raises(UsageError, match="submission id"):
        submit(NOWHERE, ["true"], submission_id=name)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OPENAI_API_KEY", "x"),
        ("HF_TOKEN", "x"),
        ("db_password", "x"),
        ("SIGNER", "PRIVATE+KEY+memaudit/log+00000000+AAAA"),
        ("PEM", "-----BEGIN ENCRYPTED PRIVATE KEY-----"),
        ("BACKBONE", "http://user:word@host/v1"),
    ],
)
def test_variables_that_hold_secrets_are_refused_without_repeating_them(name, value):
    with pytest.raises(UsageError, match=f"variable '{name}' looks like a secret") as failure:
        submit(NOWHERE, ["true"], submission_id="a", env_vars={name: value})
    assert value not in str(failure.value).replace(name, "") or len(value) == 1


def test_a_command_that_holds_a_secret_is_refused_without_repeating_it():
    with pytest.raises(UsageError, match="word 3 of the command looks like a secret") as failure:
        submit(NOWHERE, ["memaudit", "audit", "https://user:word@host/"], submission_id="a")
    assert "word@" not in str(failure.value)


@pytest.mark.parametrize("name", ["MEMAUDIT_KEY_FILE", "TOKEN_PATH", "SECRETS_DIR", "API_KEY_ENV", "PYTHONPATH"])
def test_references_to_secrets_pass(name):
    with pytest.raises(UsageError, match="no Ray cluster answers"):
        submit(NOWHERE, ["true"], submission_id="a", env_vars={name: "/run/secrets/x"})


@pytest.mark.parametrize("address", ["127.0.0.1:8265", "ray://host:10001", "auto", "", "http://user:word@host:8265"])
def test_addresses_that_are_no_dashboard_are_refused(address):
    with pytest.raises(UsageError, match="give the dashboard's address as http://HOST:8265"):
        submit(address, ["true"], submission_id="a")


def test_a_working_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no such folder to upload"):
        submit(NOWHERE, ["true"], submission_id="a", working_dir=tmp_path / "none")


def cluster() -> dict:
    return yaml.safe_load((REPOSITORY / "ray_cluster.yaml").read_text())


def rays_schema() -> Draft7Validator:
    import ray  # noqa: PLC0415 - only its folder is wanted

    path = Path(ray.__file__).parent / "autoscaler" / "ray-schema.json"
    return Draft7Validator(json.loads(path.read_text()))


def test_the_cluster_description_is_valid_for_rays_own_schema_and_a_wrong_one_is_not():
    rays_schema().validate(cluster())
    with pytest.raises(ValidationError):
        rays_schema().validate(cluster() | {"worker_count": 2})


def test_rays_autoscaler_accepts_the_cluster_description():
    check = (
        "import sys, yaml\n"
        "from ray.autoscaler._private.util import prepare_config, validate_config\n"
        "validate_config(prepare_config(yaml.safe_load(open(sys.argv[1]))))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", check, str(REPOSITORY / "ray_cluster.yaml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_head_takes_no_tasks_and_workers_have_a_gpu():
    config = cluster()
    types = config["available_node_types"]
    assert types[config["head_node_type"]]["resources"] == {"CPU": 0}
    workers = [kind for name, kind in types.items() if name != config["head_node_type"]]
    assert workers
    assert all(kind["resources"]["GPU"] >= 1 and kind["resources"]["CPU"] >= 1 for kind in workers)


def test_no_key_is_copied_to_the_cluster():
    assert "*.key" in cluster()["rsync_exclude"]
    assert {"*.key", "**/*.key"} <= set(EXCLUDED)
    assert "PRIVATE" not in (REPOSITORY / "ray_cluster.yaml").read_text()


class StartingUp:
    """A client of a cluster that cannot take jobs yet."""

    def __init__(self, refusals: int, why: str = "Request failed with status code 500: No available agent") -> None:
        self.refusals, self.why, self.asked = refusals, why, 0

    def submit_job(self, *, submission_id: str, **_: object) -> str:
        self.asked += 1
        if self.asked <= self.refusals:
            raise RuntimeError(self.why)
        return submission_id


@pytest.mark.parametrize(("refusals", "patience_s", "taken"), [(0, 1.0, True), (3, 1.0, True), (100, 0.05, False)])
def test_a_cluster_that_has_just_started_is_asked_again_for_a_while(monkeypatch, refusals, patience_s, taken):
    client = StartingUp(refusals)
    monkeypatch.setattr("jobs.cluster._client", lambda _: client)
    monkeypatch.setattr("jobs.cluster.PATIENCE_S", patience_s)
    monkeypatch.setattr("jobs.cluster.RETRY_S", 0.01)
    if taken:
        assert submit("http://127.0.0.1:1", ["true"], submission_id="night") == "night"
        assert client.asked == refusals + 1
    else:
        with pytest.raises(UsageError, match=r"did not take job night: .*No available agent"):
            submit("http://127.0.0.1:1", ["true"], submission_id="night")


def test_any_other_refusal_is_final(monkeypatch):
    client = StartingUp(1, "no such runtime environment")
    monkeypatch.setattr("jobs.cluster._client", lambda _: client)
    with pytest.raises(UsageError, match="did not take job night: no such runtime environment"):
        submit("http://127.0.0.1:1", ["true"], submission_id="night")
    assert client.asked == 1


def test_a_job_that_was_taken_though_the_cluster_said_not_is_no_duplicate(monkeypatch):
    answers = iter([RuntimeError("No available agent to submit job"), RuntimeError("Job night already exists")])

    class Late:
        def submit_job(self, **_: object) -> str:
            raise next(answers)

    monkeypatch.setattr("jobs.cluster._client", lambda _: Late())
    monkeypatch.setattr("jobs.cluster.RETRY_S", 0.01)
    assert submit("http://127.0.0.1:1", ["true"], submission_id="night") == "night"
