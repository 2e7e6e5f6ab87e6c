"""Checks an engine's environment from the inside, without a device; run by its own Python, and needs nothing else.

Its argument is a file with the request as JSON; each answer is a line of JSON after `MARK`. A target `module:name` is
found by import, `file.py:name` by path; of several the first that is found counts, as releases move things.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import io
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MARK = "servelab-check: "
Answer = tuple[str, str]
"""(`ok`, `failed` or `unknown`, what was seen)."""
_TEXT = "Hello, how are you?"


def check_packages(asked: dict[str, Any]) -> Answer:
    """Installed packages against what the engine's own metadata ask for; one left out on purpose is not missed."""
    installed = {_plain(each.metadata["Name"]): each.version for each in importlib.metadata.distributions()}
    name = next((name for name in asked["distributions"] if _plain(name) in installed), None)
    if name is None:
        return "failed", f"{' or '.join(asked['distributions'])} is not installed"
    wants = [line for line in importlib.metadata.requires(name) or [] if "extra ==" not in line]
    if not wants:
        return "ok", f"{name} {installed[_plain(name)]} asks for no other package"
    try:
        from packaging.requirements import Requirement
    except ImportError:
        return "unknown", "the environment has no `packaging` to compare versions with"
    wrong, count = [], 0
    for line in wants:
        wanted = Requirement(line)
        found = installed.get(_plain(wanted.name))
        if found is None or (wanted.marker and not wanted.marker.evaluate()):
            continue
        count += 1
        if not wanted.specifier.contains(found, prereleases=True):
            wrong.append(f"{wanted.name} {found}, {name} asks for {wanted.specifier}")
    return ("failed", "; ".join(wrong)) if wrong else ("ok", f"{count} packages are as {name} asks for")


def check_application(asked: dict[str, Any]) -> Answer:
    """Imports what serves; builds it where it takes nothing but the parsed arguments."""
    found = _find(asked["application"])
    return "ok", f"{found.__name__ if inspect.ismodule(found) else asked['application'][0]} can be imported"


def check_options(asked: dict[str, Any]) -> Answer:
    """The release's parser can be made, and takes what every server is given."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            _parse_function(asked)(asked["base_flags"])
    except SystemExit:
        return "failed", f"the parser refuses {' '.join(asked['base_flags'])}: {_last(said.getvalue())}"
    return "ok", "its parser is made"


def check_tokenizer(asked: dict[str, Any]) -> Answer:
    """Loads the model's tokenizer as the engine does, and encodes a text with it."""
    tokenizer = _find(asked["tokenizer"])(asked["model"])
    count = len(tokenizer.encode(_TEXT))
    if not count:
        return "failed", f"it makes no token of {_TEXT!r}"
    return (
        "ok",
        f"{type(tokenizer).__mro__[1 if type(tokenizer).__qualname__.count('.') else 0].__name__}: {count} tokens",
    )


def check_configuration(asked: dict[str, Any]) -> Answer:
    """Loads the model's configuration as the engine does; what the engine reads from it must have the file's value."""
    load = _find(asked["configuration"])
    given = json.loads((Path(asked["model"]) / "config.json").read_text(encoding="utf-8"))
    loaded = load(asked["model"], trust_remote_code=False)
    for key in asked["read_keys"]:
        value = getattr(loaded, key, None)
        if key in given and value != given[key]:
            lost = "is gone" if value is None else f"is {value}"
            return "failed", f"`{key}` is {given[key]} in config.json and {lost} when loaded; the engine uses a default"
    return "ok", type(loaded).__name__


def check_kernels(asked: dict[str, Any]) -> Answer:
    """Kernel packages that the study's candidates ask for are installed; nothing of them is loaded."""
    missing = [
        f"{kernel['package']} ({kernel['asked_by']})"
        for kernel in asked["kernels"]
        if not all(_is_installed(module) for module in kernel["modules"])
    ]
    if missing:
        return "failed", f"not installed: {', '.join(missing)}"
    names = ", ".join(dict.fromkeys(kernel["package"] for kernel in asked["kernels"]))
    return "ok", f"installed: {names}" if names else "no candidate asks for more than the engine brings"


def check_toolkit(asked: dict[str, Any]) -> Answer:
    """A CUDA compiler, where kernels are built at run time and no package brings them built."""
    building = [
        kernel
        for kernel in asked["kernels"]
        if kernel["is_built"] and not any(_is_installed(module) for module in kernel["prebuilt"])
    ]
    if not building:
        return "ok", "no kernel is built at run time"
    names = ", ".join(dict.fromkeys(f"{kernel['package']} ({kernel['asked_by']})" for kernel in building))
    if compiler := _compiler():
        return "ok", f"built at run time: {names}, with {compiler}"
    if asked["is_elsewhere"]:
        return "unknown", f"built at run time: {names}; no CUDA compiler and no GPU is here"
    return "failed", f"built at run time: {names}, and there is no CUDA compiler (nvcc)"


CHECKS: dict[str, Callable[[dict[str, Any]], Answer]] = {
    "packages": check_packages,
    "kernels": check_kernels,
    "toolkit": check_toolkit,
    "application": check_application,
    "options": check_options,
    "tokenizer": check_tokenizer,
    "configuration": check_configuration,
}


def main() -> None:
    """Answers each check that the request names."""
    asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sys.path.remove(str(Path(__file__).parent))  # what is beside this file is no module of the environment
    with contextlib.suppress(Exception):  # what cannot be put in place shows in the checks
        _stand_in(asked["stand_in"])
    for name in asked["checks"]:
        try:
            verdict, saw = CHECKS[name](asked)
        except BaseException as error:
            saw = f"{type(error).__name__}: {_last(str(error))}"
            said = [str(each) for each in _chain(error) if asked["no_device"]]
            needs_device = any(re.search(asked["no_device"], each, re.IGNORECASE) for each in said)
            verdict = "unknown" if needs_device else "failed"
        print(f"{MARK}{json.dumps({'check': name, 'verdict': verdict, 'saw': saw})}", flush=True)


def _stand_in(target: list[str]) -> None:
    """Puts another platform in the place of the one that an engine would look for: `[module, attribute, class]`."""
    if target:
        module, attribute, replacement = target
        setattr(importlib.import_module(module), attribute, _find([replacement])())


def _parse_function(asked: dict[str, Any]) -> Callable[[list[str]], object]:
    if asked["parse"]:
        found: Callable[[list[str]], object] = _find(asked["parse"])
        return found
    parser = _find(asked["parser_class"])()
    parser = _find(asked["fill_parser"])(parser) or parser
    return lambda flags: parser.parse_args(flags)


def _find(targets: list[str]) -> Any:
    """The first target that is there; the error of the first one if none is."""
    missing: list[Exception] = []
    for target in targets:
        place, _, name = target.partition(":")
        try:
            found = _load(Path(place)) if place.endswith(".py") else importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{place}.".startswith(f"{error.name}."):
                raise  # it is there, and what it imports is not
            missing.append(error)
            continue
        try:
            for part in filter(None, name.split(".")):
                found = getattr(found, part)
        except AttributeError as error:
            missing.append(error)
            continue
        return found
    raise missing[0]


def _load(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _plain(name: str) -> str:
    """A distribution's name in the one spelling by which names are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _compiler() -> str | None:
    """Where FlashInfer, DeepGEMM and PyTorch look for nvcc: CUDA_HOME, PATH, /usr/local/cuda; and NVIDIA's packages."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    places = [Path(home) / "bin/nvcc" for home in homes if home]
    found = [str(place) for place in places if place.is_file()]
    return found[0] if found else shutil.which("nvcc")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and those that it came from."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no message"


if __name__ == "__main__":
    main()
