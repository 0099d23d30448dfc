"""Which model is hosted where on a cluster, as its nodes come and go.

A place is room for one replica: a GPU, or on a cluster without any a node with CPUs. One GPU in SMALL_OF is for the
small models, NLI and embedder, and each other one for a replica of the backbone; the only GPU of a cluster is for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from memory_audit.models.backbone.generator_vllm import SHARED_GPU

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = ["GpuShares", "Place", "Role", "places"]

Role = Literal["backbone", "nli", "embedder"]

SMALL_OF = 8
"""GPUs of which one is for the small models: a replay takes as long as hundreds of pairs."""


class Place(NamedTuple):
    """Room for one replica."""

    node: str
    """Id of the node."""

    number: int
    """Of the room on that node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuShares:
    """Which part of a GPU a replica takes, as Ray counts them.

    Whatever starts first, all fit: a model that waits for a GPU that another one holds would wait for ever.
    """

    backbone: float
    small: float
    """Of the NLI model, and of the embedder."""

    @staticmethod
    def of(gpus: int, *, local_backbone: bool) -> GpuShares:
        """Share out GPUs.

        Args:
            gpus: How many the cluster has.
            local_backbone: Whether the backbone is served here; one behind a URL needs none.
        """
        if not gpus:
            return GpuShares(backbone=0.0, small=0.0)
        if not local_backbone:
            return GpuShares(backbone=0.0, small=0.5)
        if gpus == 1:
            return GpuShares(backbone=SHARED_GPU, small=0.1)
        return GpuShares(backbone=1.0, small=0.5)


def places(
    nodes: Mapping[str, Mapping[str, float]], shares: GpuShares, *, replicas: int = 0, kept: Collection[Place] = ()
) -> dict[Role, list[Place]]:
    """Say where replicas are to be, as the cluster is now.

    Args:
        nodes: Id to resources, of the nodes that are alive.
        shares: Which part of a GPU each takes.
        replicas: Of the backbone at most; on a cluster without GPUs, exactly. 0 is as many as there are places.
        kept: Where small models are now: they stay, if they can.
    """
    gpus = [Place(node, number) for node in sorted(nodes) for number in range(int(nodes[node].get("GPU", 0)))]
    machines = sorted(node for node, found in nodes.items() if found.get("CPU", 0) >= 1) or sorted(nodes)
    of_machines = [Place(node, 0) for node in machines]
    if not shares.backbone:
        small = gpus if shares.small else of_machines
        wanted = replicas or len(machines)
        dealt = [Place(node, number) for number in range(wanted) for node in machines][:wanted]
        return {"backbone": dealt, "nli": small, "embedder": small}
    small = [place for place in kept if place in gpus]
    small += [place for place in reversed(gpus) if place not in small]
    small = small[: 1 + (len(gpus) - 1) // SMALL_OF]
    alone = gpus if shares.backbone < 1 else [place for place in gpus if place not in small]
    return {"backbone": alone[: replicas or None], "nli": small, "embedder": small}
