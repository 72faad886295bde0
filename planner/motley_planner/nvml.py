"""Lists this machine's NVIDIA cards through NVML, with the index under which CUDA sees each of them.

NVML orders cards by PCI bus and ignores ``CUDA_VISIBLE_DEVICES``; CUDA orders by speed and obeys it. The two are joined
by UUID. Asking CUDA for UUIDs creates no context.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from motley_planner.inventory import Card, InventoryError, Node

_MIB = 1 << 20
_LIBCUDA = "libcuda.so.1"


def local_node(name: str = "", cuda_order: Callable[[], Mapping[str, int]] | None = None) -> Node:
    """This machine's cards in NVML order. InventoryError if there is no NVML, no driver or a card without a total.

    ``cuda_order`` maps the UUIDs that CUDA shows to its indices; default: ask libcuda.
    """
    nvml = importlib.import_module("pynvml")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise InventoryError(
            f"NVML: {error}; install the NVIDIA driver (in a container: pass the GPUs in), or use CPU ranks"
        ) from error
    try:
        indices = (cuda_order or cuda_indices)()
        cards = [_card(nvml, number, indices) for number in range(nvml.nvmlDeviceGetCount())]
        return Node(name, tuple(cards), _text(nvml.nvmlSystemGetDriverVersion()))
    except nvml.NVMLError as error:
        raise InventoryError(f"NVML: listing the cards failed: {error}") from error
    finally:
        nvml.nvmlShutdown()


def cuda_indices() -> dict[str, int]:
    """UUID to CUDA index as this process sees it; empty without a usable libcuda."""
    try:
        library = ctypes.CDLL(_LIBCUDA)
    except OSError:
        return {}
    count = ctypes.c_int()
    if library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count)):
        return {}
    found = {}
    for index in range(count.value):
        device, raw = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        if library.cuDeviceGet(ctypes.byref(device), index) or library.cuDeviceGetUuid(raw, device):
            continue
        found[f"GPU-{UUID(bytes=bytes(raw))}"] = index
    return found


def _card(nvml: Any, number: int, indices: Mapping[str, int]) -> Card:
    handle = nvml.nvmlDeviceGetHandleByIndex(number)
    uuid = _text(nvml.nvmlDeviceGetUUID(handle))
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError as error:
        raise InventoryError(
            f"NVML: {uuid} reports no memory total ({error}); write an inventory file with its total_mib"
        ) from error
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    return Card(
        uuid=uuid,
        product=_text(nvml.nvmlDeviceGetName(handle)),
        total_mib=memory.total // _MIB,
        used_mib=-(-memory.used // _MIB),
        cuda_index=indices.get(uuid),
        pci_bus_id=_text(nvml.nvmlDeviceGetPciInfo(handle).busId),
        compute_capability=f"{major}.{minor}",
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
