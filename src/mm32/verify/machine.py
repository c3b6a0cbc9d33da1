"""The machine that a verification ran on: card, driver, versions."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import torch

from mm32.collect_env import driver_version


def processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def card() -> torch.device | None:
    """Return the card that a verification in this process and its workers use; None if they use the CPU."""
    return torch.device("cuda:0") if torch.cuda.is_available() else None


def describe(device: torch.device) -> dict[str, Any]:
    """Return plain values about the device and the software, for the report; those about a card only if `device` is one."""
    found: dict[str, Any] = {
        "device": str(device),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "threads": torch.get_num_threads(),
        "cpu": processor(),
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {
            "card": properties.name,
            "uuid": str(getattr(properties, "uuid", properties.name)),
            "compute_capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": properties.multi_processor_count,
            "memory_gib": round(properties.total_memory / 2**30, 1),
            "l2_mib": round(properties.L2_cache_size / 2**20, 1),
            "driver": driver_version(),
        }
    return found
