"""Which code decides what a script writes: the modules that it imports, directly or not, and the templates they render.

A rule that is cheap to repeat has this as an input, so that a change of any of these files repeats it. Rules that
measure, download or convert have no such input: their outputs are named by their content.

Imports are read from the source, those inside functions included. Imports for type checkers alone do not run and do not
count. A package that calls `Registry.load(__name__)` imports every module beside it. `jinja2.PackageLoader` names the
package whose `templates/` are rendered.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path

from servelab.core.files import write_text

SIBLINGS = ".*"
"""Stands for all modules beside the one that has it among its imports."""
TEMPLATES = "/templates"
"""Ends the name of a package whose templates are rendered; alone, the package is the module itself."""


class CodeFiles:
    """The Python files below `scripts`, and what each imports, as they are now.

    Parsing them takes half a second, so what each imports is kept in `folder`, by the content of its file.
    """

    def __init__(self, scripts: Path, folder: Path) -> None:
        self._scripts, self._folder = scripts, folder
        self._modules = {_module_name(path.relative_to(scripts)): path for path in sorted(scripts.rglob("*.py"))}
        self._sha256 = {path: _sha256(path) for path in self._modules.values()}
        imports = self._read_imports()
        self._needs = {
            path: {*self._resolved(name, imports[self._sha256[path]])} for name, path in self._modules.items()
        }

    def files_of(self, script: str) -> list[Path]:
        """`scripts/<script>.py` and every file below `scripts` that decides what it writes, sorted."""
        found: set[Path] = set()
        to_read = {self._scripts / f"{script}.py"}
        while to_read:
            path = to_read.pop()
            found.add(path)
            to_read |= self._needs.get(path, set()) - found
        return sorted(found)

    def digest(self, script: str) -> str:
        """A file that has the sha256 of each of `files_of`, which a rule has as one input; returns its path.

        It is made as old as the newest of them, and is written again when one of them has changed. So Snakemake does
        what it would do with each of them as an input, and neither looks at each for each job nor prints them all.
        """
        files = self.files_of(script)
        lines = "".join(f"{self._sha256.get(path) or _sha256(path)}  {path}\n" for path in files)
        digest = digest_file(script, self._folder)
        existed = digest.exists()
        if not existed or digest.read_text(encoding="utf-8") != lines:
            write_text(digest, lines)
        if not existed:
            newest_ns = max(path.stat().st_mtime_ns for path in files)
            os.utime(digest, ns=(newest_ns, newest_ns))
        return str(digest)

    def _read_imports(self) -> dict[str, list[str]]:
        """Names that each file imports, by the sha256 of its content."""
        kept, reader = self._folder / "imports.json", self._sha256.get(Path(__file__), _sha256(Path(__file__)))
        known = json.loads(kept.read_bytes()) if kept.exists() else {}
        before = known["imports"] if known.get("reader") == reader else {}
        imports = {
            sha256: before[sha256] if sha256 in before else sorted({*_imports(ast.parse(path.read_bytes()))})
            for path, sha256 in self._sha256.items()
        }
        if imports != before:
            write_text(kept, json.dumps({"reader": reader, "imports": imports}))
        return imports

    def _resolved(self, module: str, imports: list[str]) -> Iterator[Path]:
        """Files that the names imported by a module stand for; of a module of a package, the package comes too."""
        package = module if self._modules[module].name == "__init__.py" else module.rpartition(".")[0]
        for imported in [module, *imports]:
            if imported == SIBLINGS:
                yield from (path for name, path in self._modules.items() if name.rpartition(".")[0] == module)
            elif imported.endswith(TEMPLATES):
                renders = imported.removesuffix(TEMPLATES) or module
                templates = self._modules[renders].parent / "templates"
                yield from (path for path in templates.rglob("*") if path.is_file())
            else:
                name = importlib.util.resolve_name(imported, package)
                while name:
                    if name in self._modules:
                        yield self._modules[name]
                    name = name.rpartition(".")[0]


def digest_file(script: str, folder: Path) -> Path:
    """Where `CodeFiles.digest` is written."""
    return folder / f"{script}.sha256"


def _imports(node: ast.AST) -> Iterator[str]:
    """Names that a module imports. Some are not modules, but defined in one."""
    parts = ast.iter_child_nodes(node)
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        origin = "." * node.level + (node.module or "")
        yield origin
        yield from (f"{origin}.{alias.name}" if node.module else origin + alias.name for alias in node.names)
    elif isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        parts = iter(node.orelse)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        yield from _loaded(node.func.attr, node.args[0])
    for part in parts:
        yield from _imports(part)


def _loaded(function: str, package: ast.expr) -> Iterator[str]:
    """What a call of that function with the package as its first argument loads."""
    is_own = isinstance(package, ast.Name) and package.id == "__name__"
    if function == "load" and is_own:
        yield SIBLINGS
    if function == "PackageLoader" and is_own:
        yield TEMPLATES
    elif function == "PackageLoader":
        yield from (ast.literal_eval(package), ast.literal_eval(package) + TEMPLATES)


def _module_name(path: Path) -> str:
    """`servelab.core` of servelab/core/__init__.py, `servelab.core.cli` of servelab/core/cli.py."""
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
