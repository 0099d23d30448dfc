"""Units that schedule a nightly job: systemd, cron, Kubernetes, and Ray on Kubernetes.

Each runs `memaudit nightly CONFIG` in the folder of the configuration, once at a time. Whatever a name holds, it stays
one word: in a shell by `shlex`, in a crontab and a systemd unit by their own rules, in YAML by its writer.

A code of `memaudit.errors` decides whether a start is tried again: 3, and a death, are. A night that needs a person (1)
or cannot go on without one (2, 4, 70) is not, as another start would be another night.
"""

from __future__ import annotations

import shlex
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from memory_audit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memory_audit.jobs.nightly.config import Schedule

__all__ = ["FORMS", "render"]

FORMS = ("systemd", "cron", "k8s", "raycron")

FINAL = (1, 2, 4, 5, 6, 70)
"""Exit codes that another start does not change."""

RETRIES = 3

WAIT_S = 300
"""More than the lease of a dead holder lasts (`memory_audit.jobs.store.lease`): a pod in its place waits for it."""

NAME = "memaudit-nightly"

RAY_VERSION = "2.60.0"


def render(form: str, config: Path, schedule: Schedule, *, alpha: bool = False) -> dict[str, str]:
    """Write the units of one form.

    Args:
        form: One of FORMS.
        config: The configuration, which lies at the same absolute path where the job runs.
        schedule: When, and in which container.
        alpha: For raycron, a RayCronJob, which KubeRay has behind a feature gate, in the place of a RayJob.

    Returns:
        File name to text.

    Raises:
        UsageError: a path that the form cannot hold, or no image or claim where one is needed.
    """
    config = config.absolute()
    hour, minute = (int(part) for part in schedule.at.split(":"))
    if any(character < " " or character == "\x7f" for character in str(config)):
        raise UsageError(f"{str(config)!r:.300}: a path with control characters cannot be scheduled")
    if form == "systemd":
        return _systemd(config, schedule.at)
    if form == "cron":
        return {f"{NAME}.crontab": f"{minute} {hour} * * * {_crontab(config)}\n"}
    if schedule.image is None or schedule.claim is None:
        raise UsageError(f"schedule: {form} needs image and claim")
    if found := set(str(config)) & set(":" if form == "k8s" else ":$"):  # a mount's path, what KubeRay hands on
        raise UsageError(f"{config}: a path with {min(found)!r} cannot be scheduled by {form}")
    if form == "k8s":
        return {f"{NAME}.yaml": _yaml(_cron_job(config, schedule, f"{minute} {hour} * * *"))}
    job = _ray_job(config, schedule)
    if alpha:
        job = {
            "apiVersion": "ray.io/v1", "kind": "RayCronJob", "metadata": {"name": NAME},
            "spec": {"schedule": f"{minute} {hour} * * *", "jobTemplate": job["spec"]},
        }  # fmt: skip
    return {f"{NAME}.yaml": _yaml(job)}


def _words(config: str) -> list[str]:
    """Return the words of the command after the program's name."""
    return ["nightly", config, "--quiet", "--wait", str(WAIT_S)]


def _program() -> str:
    """Return the absolute path of `memaudit`, as schedulers have another PATH."""
    return str(Path(sysconfig.get_path("scripts")) / "memaudit")


def _systemd(config: Path, at: str) -> dict[str, str]:
    final = " ".join(map(str, FINAL))
    command = " ".join(map(_unit_word, [_program(), *_words(str(config))]))
    service = f"""[Unit]
Description=MemAudit, nightly job
StartLimitIntervalSec=6h
StartLimitBurst={RETRIES + 1}

[Service]
Type=oneshot
WorkingDirectory={_specifiers(str(config.parent))}
ExecStart={command}
Restart=on-failure
RestartSec=5min
RestartPreventExitStatus={final}
"""
    timer = f"""[Unit]
Description=MemAudit, nightly job

[Timer]
OnCalendar=*-*-* {at}:00 UTC
Persistent=true

[Install]
WantedBy=timers.target
"""
    return {f"{NAME}.service": service, f"{NAME}.timer": timer}


def _specifiers(text: str) -> str:
    return text.replace("%", "%%")


def _unit_word(text: str) -> str:
    """Quote one word of ExecStart (systemd.service(5), "Command lines")."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{_specifiers(escaped)}"'


def _crontab(config: Path) -> str:
    """Return the command of a crontab line: cron ends it at a `%` that no backslash is before."""
    words = shlex.join([_program(), *_words(str(config))])
    return f"cd {shlex.quote(str(config.parent))} && {words}".replace("%", "\\%")


def _container(config: Path, schedule: Schedule) -> dict[str, Any]:
    gpus = {"nvidia.com/gpu": schedule.gpus}
    return {
        "name": "memaudit",
        "image": schedule.image,
        "workingDir": str(config.parent),
        "volumeMounts": [{"name": "memaudit", "mountPath": str(config.parent)}],
        **({"resources": {"limits": gpus}} if schedule.gpus else {}),
    }


def _volumes(schedule: Schedule) -> list[dict[str, Any]]:
    return [{"name": "memaudit", "persistentVolumeClaim": {"claimName": schedule.claim}}]


def _state(config: Path) -> list[dict[str, str]]:
    """Return the variable that has what was seen of the store kept on the claim."""
    return [{"name": "XDG_STATE_HOME", "value": _unexpanded(str(config.parent / "state"))}]


def _unexpanded(text: str) -> str:
    """Return a text for a container's command or environment, where Kubernetes expands `$(NAME)`."""
    return text.replace("$", "$$")


def _cron_job(config: Path, schedule: Schedule, cron: str) -> dict[str, Any]:
    container = {
        **_container(config, schedule),
        "command": ["memaudit", *_words(_unexpanded(str(config)))],
        "env": _state(config),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": NAME},
        "spec": {
            "schedule": cron,
            "timeZone": "Etc/UTC",
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": 3_600,
            "jobTemplate": {
                "spec": {
                    "backoffLimit": RETRIES,
                    "podFailurePolicy": {
                        "rules": [
                            {
                                "action": "FailJob",
                                "onExitCodes": {"containerName": "memaudit", "operator": "In", "values": list(FINAL)},
                            },
                            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                        ]
                    },
                    "template": {
                        "spec": {"restartPolicy": "Never", "containers": [container], "volumes": _volumes(schedule)}
                    },
                }
            },
        },
    }


def _ray_job(config: Path, schedule: Schedule) -> dict[str, Any]:
    """Return a RayJob: KubeRay starts a cluster, runs one night on it, and ends it."""
    head = {**_container(config, schedule), "name": "ray-head"}
    head["env"] = _state(config)
    group = {"rayStartParams": {}, "template": {"spec": {"containers": [head], "volumes": _volumes(schedule)}}}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"generateName": f"{NAME}-"},
        "spec": {
            "entrypoint": shlex.join(["memaudit", *_words(str(config))]),
            "shutdownAfterJobFinishes": True,
            "ttlSecondsAfterFinished": 3_600,
            "backoffLimit": 0,
            "rayClusterSpec": {"rayVersion": RAY_VERSION, "headGroupSpec": group},
        },
    }


def _yaml(value: Mapping[str, Any]) -> str:
    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120))
