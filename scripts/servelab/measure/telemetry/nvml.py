"""NVIDIA GPUs, read with NVML, the driver's library that `nvidia-smi` uses too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pynvml

from servelab.machine.devices import Device
from servelab.measure.telemetry import SOURCES, Reading, TelemetrySource, Watched

_QUERIES: dict[str, tuple[Callable[[Any], float], str]] = {
    "gpu_utilization_percent": (
        lambda gpu: pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
        "Part of NVML's last sample period (at most 1 s) in which a kernel ran",
    ),
    "memory_used_bytes": (
        lambda gpu: pynvml.nvmlDeviceGetMemoryInfo(gpu).used,
        "Device memory in use, including what the driver reserves",
    ),
    "power_w": (
        lambda gpu: pynvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
        "Power of the whole board; the mean over the last second on Ampere and later, except A100",
    ),
    "energy_j_total": (
        lambda gpu: pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1000,
        "Energy since the driver was loaded; Volta and later",
    ),
    "clock_sm_mhz": (lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM), "Clock of the SMs"),
    "clock_memory_mhz": (lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_MEM), "Clock of the memory"),
    "throttle_reasons": (
        lambda gpu: pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu),
        "Bit mask of why the clocks are not higher: 1 idle, 2 set by the user, 4 power cap, 8 hardware slowdown, "
        "16 sync boost, 32 thermal by software, 64 thermal by hardware, 128 power brake, 256 display",
    ),
    "temperature_c": (
        lambda gpu: pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU),
        "Temperature of the GPU",
    ),
}
_NOT_THERE = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)


class Nvml(TelemetrySource):
    """Metrics that the GPU or the driver does not support are left out."""

    name = "nvml"
    metrics: ClassVar = {
        "devices": "Number of devices of this run, so that a device without readings is noticed",
        **{metric: text for metric, (_, text) in _QUERIES.items()},
    }

    @classmethod
    def concerns(cls, watched: Watched) -> bool:
        """See `TelemetrySource.concerns`."""
        return bool(_gpus(watched))

    def __init__(self, watched: Watched) -> None:
        pynvml.nvmlInit()
        self._elsewhere = watched.elsewhere
        self._handles = {gpu.index: pynvml.nvmlDeviceGetHandleByUUID(gpu.key) for gpu in _gpus(watched)}

    def read(self) -> Iterator[Reading]:
        """See `TelemetrySource.read`."""
        yield Reading("devices", len(self._handles) + self._elsewhere)
        for index, handle in self._handles.items():
            for metric, (ask, _) in _QUERIES.items():
                if (value := _supported(ask, handle)) is not None:
                    yield Reading(metric, value, index)

    def close(self) -> None:
        """See `TelemetrySource.close`."""
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
