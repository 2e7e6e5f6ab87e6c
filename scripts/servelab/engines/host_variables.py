"""Variables that name the places of an engine's parts, as the vendors' set_env.sh and images set them.

An installation on the host passes those that are set (`Engine.host_variables`). They are places only: a variable that
changes how an engine computes (`ATB_OPERATION_EXECUTE_ASYNC`, `TASK_QUEUE_ENABLE`) belongs into a study.
"""

from __future__ import annotations

CANN = (
    *("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH", "ASCEND_OPP_PATH", "ASCEND_AICPU_PATH", "ASCEND_CUSTOM_OPP_PATH"),
    *("TOOLCHAIN_HOME", "ATB_HOME_PATH"),
)
"""Of CANN's toolkit, and of NNAL, which has ATB."""

MINDIE = (
    *CANN,
    *("ATB_SPEED_HOME_PATH", "PYTORCH_INSTALL_PATH", "ASCENDIE_HOME", "MINDIE_TORCH_HOME", "MINDIE_LLM_HOME_PATH"),
    *("MIES_INSTALL_PATH", "HSECEASY_PATH"),
)
"""Of ATB-Models and of MindIE's parts, too."""

TENSORRT_LLM = ("OPAL_PREFIX", "PMIX_INSTALL_PREFIX", "CUDA_HOME")
"""NVIDIA's images have an Open MPI (HPC-X) that is not where it was built; without its prefix MPI cannot start."""
