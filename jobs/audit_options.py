"""What `memaudit audit`, `plan` and `calibrate` may say instead of memaudit.yaml, as options of the command line."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memory_audit.config import load_config
from memory_audit.jobs.run.run_audit import name_backbone

if TYPE_CHECKING:
    from memory_audit.config import AuditConfig

__all__ = ["BackboneKeyEnv", "CalibrationSettings", "Settings"]

BackboneKeyEnv = Annotated[
    str | None,
    typer.Option(
        "--backbone-key-env", envvar="MEMAUDIT_BACKBONE_KEY_ENV",
        help="Name of the environment variable that holds the key of the backbone's server.",
    ),
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSettings:
    """What the command line may say instead of memaudit.yaml; the names are those of `AuditConfig`."""

    k: Annotated[int | None, typer.Option(help="Memories the agent retrieves; default: 5.")] = None
    retrieval: Annotated[str | None, typer.Option(help="dense or levenshtein; default: dense.")] = None
    backbone: Annotated[
        str | None, typer.Option(help="packaged, a folder or id, or openai:URL#MODEL; default: packaged.")
    ] = None
    backbone_key_env: BackboneKeyEnv = None
    nli: Annotated[str | None, typer.Option(help="packaged, or a Hugging Face folder or id; default: packaged.")] = None
    embedder: Annotated[
        str | None, typer.Option(help="packaged, or a sentence-transformers folder or id; default: packaged.")
    ] = None

    def over(self, file: Path | None) -> AuditConfig:
        """Return the configuration: flags win over the file, defaults hold where neither says it."""
        default = Path("memaudit.yaml")
        chosen = file if file is not None else (default if default.is_file() else None)
        return name_backbone(load_config(chosen, asdict(self)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(CalibrationSettings):
    """What an audit takes besides."""

    alpha: Annotated[
        float | None,
        typer.Option(help="Weight of influence (CMIS) against inconsistency (CAS) in the score; default: 0.6."),
    ] = None
    attribution: Annotated[
        str | None, typer.Option(help="set, or loo for the paper's plain leave-one-out; default: set.")
    ] = None
    graph: Annotated[
        str | None,
        typer.Option(
            help="local compares what a search examines, full every memory, as loo and a budget do; default: local."
        ),
    ] = None
    calibration: Annotated[
        str | None, typer.Option(help="File of `memaudit calibrate`; default: none, and findings have no p.")
    ] = None
    significance: Annotated[
        float | None,
        typer.Option(
            help="With --calibration, the share of clean incidents in which a benign memory may be blamed; default: "
            "0.02, which takes 49 of them."
        ),
    ] = None
    budget: Annotated[
        int | None,
        typer.Option(
            help="Remove so many, highest scores first, none without evidence; default: as many as end the harm."
        ),
    ] = None
    max_replays: Annotated[
        int | None,
        typer.Option(
            help="Most replays of each tenant's search; the final check of removal and probes comes on top; default: "
            "no limit."
        ),
    ] = None
    max_run_replays: Annotated[
        int | None,
        typer.Option(
            help="Most replays of the whole run, final checks too; tenants with most harmful events come first. What "
            "is left out is named, with exit code 3, and a larger one continues the run; default: no limit."
        ),
    ] = None
    descendants: Annotated[
        str | None,
        typer.Option(help="Memories derived from removed ones: remove, quarantine or report; default: remove."),
    ] = None
