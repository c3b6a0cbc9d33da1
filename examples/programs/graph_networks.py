"""PyTorch Geometric: a training step of GraphSAGE and of a graph attention network, on all nodes of a random graph.

    python examples/programs/graph_networks.py [--small]        # needs torch-geometric: pip install -e ".[programs]"

The package's own models, GraphSAGE and GAT, with wide layers. Messages are gathered and added up along edges by torch's
index_select and scatter, which are not products: the wider the layers relative to the number of neighbours, the more of the time
is products.
"""

from __future__ import annotations

import sys

import torch
from torch.nn import functional as F
from torch_geometric.nn.models import GAT, GraphSAGE

from mm32.bench import models


def make(device: str, small: bool) -> list[models.Model]:
    nodes, neighbours, width, classes = (500, 4, 64, 10) if small else (32768, 8, 2048, 40)
    torch.manual_seed(0)
    with torch.device(device):
        features = torch.randn(nodes, width)
        edges = torch.randint(nodes, (2, nodes * neighbours))
        labels = torch.randint(classes, (nodes,))
        networks = {
            "GraphSAGE": GraphSAGE(width, width, num_layers=3, out_channels=classes),
            "graph attention": GAT(width, width, num_layers=3, out_channels=classes, heads=4),
        }

    def loss(
        model: torch.nn.Module, x: torch.Tensor, edge_index: torch.Tensor, y: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        logits = model(x, edge_index)
        return F.cross_entropy(logits, y), logits

    def optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), lr=1e-3)

    what = f"3 layers of {width}, {nodes} nodes, {neighbours} edges to each on average: forward, backward, Adam"
    return [
        models.Model(
            name,
            f"torch_geometric's {type(network).__name__}, {what}",
            models.training(network, (features, edges, labels), loss, optimizer),
        )
        for name, network in networks.items()
    ]


if __name__ == "__main__":
    sys.exit(models.main(__doc__, make))
