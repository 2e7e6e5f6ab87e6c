"""NVIDIA GPUs, read with NVML, the driver's library that `nvidia-smi` uses too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pynvml

from servelab.machine.devices import Device
from servelab.measure.telemetry import SOURCES, Reading, TelemetrySource, Watched

_QUERIES: dict[str, Callable[[Any], float]] = {
    "gpu_utilization_percent": lambda gpu: pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
    "memory_used_bytes": lambda gpu: pynvml.nvmlDeviceGetMemoryInfo(gpu).used,
    "power_w": lambda gpu: pynvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
    "energy_j_total": lambda gpu: pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1000,
    "clock_sm_mhz": lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM),
    "clock_memory_mhz": lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_MEM),
    "throttle_reasons": lambda gpu: pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu),
    "temperature_c": lambda gpu: pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU),
}
_NOT_THERE = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)


class Nvml(TelemetrySource):
    """Metrics that the GPU or the driver does not support are left out."""

    name = "nvml"

    @classmethod
    def concerns(cls, watched: Watched) -> bool:
        return bool(_gpus(watched))

    def __init__(self, watched: Watched) -> None:
        pynvml.nvmlInit()
        self._elsewhere = watched.elsewhere
        self._handles = {gpu.index: pynvml.nvmlDeviceGetHandleByUUID(gpu.key) for gpu in _gpus(watched)}

    def read(self) -> Iterator[Reading]:
        yield Reading("devices", len(self._handles) + self._elsewhere)
        for index, handle in self._handles.items():
            for metric, ask in _QUERIES.items():
                if (value := _supported(ask, handle)) is not None:
                    yield Reading(metric, value, index)

    def close(self) -> None:
        pynvml.nvmlShutdown()


def _gpus(watched: Watched) -> list[Device]:
    """Devices with an identifier of NVML's form."""
    return [device for device in watched.devices if device.key.startswith("GPU-")]


def _supported(ask: Callable[[Any], float], handle: Any) -> float | None:
    try:
        return ask(handle)
    except pynvml.NVMLError as error:
        if error.value in _NOT_THERE:
            return None
        raise


SOURCES.register(Nvml.name, Nvml)
