"""Types of the options that name something: what a type checker accepts for them. A test compares them with the tables."""

from __future__ import annotations

from typing import Literal

Activation = Literal["relu", "leaky_relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"]
"""A fused function of the result (mm32/activations.py)."""
Precision = Literal["fp32", "bf16x6", "ieee", "tf32"]
"""What error is allowed (docs/numerics.md)."""
Kernel = Literal["auto", "naive", "dot", "tiled", "simt", "mma", "direct", "tensorcore"]
"""A kernel by name, or "auto" (docs/kernels.md)."""
Layout = Literal["nn", "nt", "tn", "tt"]
"""How A and B are stored: n as multiplied, t transposed."""
Side = Literal["left", "right"]
"""Of a product: operand A or operand B."""
