"""Host arrays to the device without waiting for it."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import torch


def upload(array: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """``array`` on ``device``. On CPU it is a view of the array; on CUDA the copy goes through pinned memory, since one
    from pageable memory would first wait for everything queued on the stream."""
    host = torch.from_numpy(array)
    if device.type == "cpu":
        return host
    return host.pin_memory().to(device, non_blocking=True)
