"""e3nn: a training step of an E(3)-equivariant message-passing network on a random cloud of points.

    python examples/programs/equivariant.py [--small]        # needs e3nn: pip install -e ".[programs]"

The package's own MessagePassing (e3nn.nn.models.v2106): tensor products of features with spherical harmonics along edges,
weighted by a network of the distance, and tensor products that mix channels. Much of its time is passes over the edges' features.
The network begins with every convolution switched off by learned weights (`alpha`); here these are random, as after training.
e3nn compiles its tensor products by TorchScript while the first steps run.
"""

from __future__ import annotations

import sys

import torch
from e3nn import o3
from e3nn.math import soft_one_hot_linspace
from e3nn.nn.models.v2106.gate_points_message_passing import MessagePassing

from mm32.bench import models

HARMONICS = o3.Irreps.spherical_harmonics(2)
RADIAL = 16  # functions of the distance


def make(device: str, small: bool) -> list[models.Model]:
    nodes, neighbours, channels, layers = (40, 4, 8, 2) if small else (12288, 8, 256, 3)
    hidden = "+".join(f"{channels}x{ir}" for ir in ("0e", "1o", "2e"))
    torch.manual_seed(0)  # the network is made on the CPU, where e3nn makes its tables
    network = MessagePassing(
        irreps_node_sequence=[f"{channels}x0e", *[hidden] * layers, "1x0e"],
        irreps_node_attr="0e",
        irreps_edge_attr=HARMONICS,
        fc_neurons=[RADIAL, channels],
        num_neighbors=float(neighbours),
    ).float()
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if ".alpha." in name:
                weight.normal_()
    features = torch.randn(nodes, channels)
    edges = torch.randint(nodes, (2, nodes * neighbours))
    edges[1] = (edges[0] + 1 + edges[1] % (nodes - 1)) % nodes  # none from a node to itself
    positions = torch.randn(nodes, 3)
    targets = torch.randn(nodes, 1)

    def loss(
        model: torch.nn.Module, x: torch.Tensor, at: torch.Tensor, ends: torch.Tensor, y: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        source, target = ends
        along = at[source] - at[target]
        harmonics = o3.spherical_harmonics(HARMONICS, along, normalize=True, normalization="component")
        radial = soft_one_hot_linspace(along.norm(dim=1), 0.0, 4.0, RADIAL, basis="smooth_finite", cutoff=False)
        energies = model(x, torch.ones_like(x[:, :1]), source, target, harmonics, radial * RADIAL**0.5)
        return (energies - y).square().mean(), energies

    def optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), lr=1e-3)

    data = [t.to(device) for t in (features, positions, edges, targets)]
    what = f"e3nn's MessagePassing, {layers} layers of {hidden}, {nodes} nodes, {neighbours} edges to each on average"
    prepare = models.training(network.to(device), data, loss, optimizer)
    return [models.Model("equivariant network", f"{what}: forward, backward, Adam", prepare, warmup=3)]


if __name__ == "__main__":
    sys.exit(models.main(__doc__, make))
