"""The code that decides what a script writes, found in the source."""

import os
import shutil
from pathlib import Path

import pytest

from servelab.workflow.code_files import CodeFiles

SCRIPTS = Path(__file__).parents[2] / "scripts"


def made(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / "scripts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "scripts"


def found(folder: Path, files: dict[str, str], script: str = "make") -> set[str]:
    scripts = made(folder, files)
    code = CodeFiles(scripts, folder / "code")
    return {str(path.relative_to(scripts)) for path in code.files_of(script)}


def test_what_is_imported_directly_or_not_and_the_packages_that_it_lies_in(tmp_path):
    files = {
        "make.py": "from pack.first import value\nimport json\n",
        "pack/__init__.py": "",
        "pack/first.py": "import pack.deep.second as second\n",
        "pack/deep/__init__.py": "from pack import third\n",
        "pack/deep/second.py": "",
        "pack/third.py": "",
        "pack/unused.py": "from pack import first\n",
        "other.py": "import pack.unused\n",
    }
    assert found(tmp_path, files) == set(files) - {"pack/unused.py", "other.py"}


@pytest.mark.parametrize(
    "text",
    [
        "def late():\n    from pack import wanted\n",
        "try:\n    import pack.wanted\nexcept ImportError:\n    pass\n",
        "if True:\n    pass\nelse:\n    from pack.wanted import (\n        name,\n    )\n",
        "if TYPE_CHECKING:\n    from pack import unused\nelse:\n    from pack import wanted\n",
        "if TYPE_CHECKING:\n    from pack import unused\nelif True:\n    from pack import wanted\n",
        "class Lazy:\n    @property\n    def it(self):\n        import pack.wanted\n",
    ],
)
def test_imports_count_wherever_they_are_but_those_for_type_checkers(tmp_path, text):
    modules = {"pack/__init__.py": "", "pack/wanted.py": "", "pack/unused.py": ""}
    assert found(tmp_path, {"make.py": text, **modules}) == {"make.py", "pack/__init__.py", "pack/wanted.py"}


def test_relative_imports(tmp_path):
    files = {
        "make.py": "import pack.deep",
        "pack/__init__.py": "",
        "pack/deep/__init__.py": "from . import near\nfrom .near import name\n",
        "pack/deep/near.py": "from .. import far\nfrom ..away import name\n",
        "pack/far.py": "",
        "pack/away.py": "",
        "pack/near.py": "",
    }
    assert found(tmp_path, files) == set(files) - {"pack/near.py"}


def test_a_registry_has_every_module_beside_it(tmp_path):
    files = {
        "make.py": "from pack.variants import ALL",
        "pack/__init__.py": "",
        "pack/variants/__init__.py": "ALL = Registry('variant')\nALL.load(__name__)\n",
        "pack/variants/one.py": "from pack import needed\n",
        "pack/variants/deep/__init__.py": "",
        "pack/variants/deep/unused.py": "",
        "pack/needed.py": "",
        "pack/unused.py": "",
    }
    assert found(tmp_path, files) == set(files) - {"pack/unused.py", "pack/variants/deep/unused.py"}


def test_templates_of_the_packages_that_are_rendered(tmp_path):
    files = {
        "make.py": "from pack import page",
        "pack/__init__.py": "",
        "pack/page.py": "loaders = [jinja2.PackageLoader('pack.own')]",
        "pack/own/__init__.py": "",
        "pack/own/templates/a.j2": "",
        "pack/own/templates/deep/b.css": "",
        "pack/templates/unused.j2": "",
    }
    assert found(tmp_path, files) == set(files) - {"pack/templates/unused.j2"}
    (tmp_path / "scripts/pack/own/__init__.py").write_text("jinja2.PackageLoader(__name__)")
    assert "pack/own/templates/a.j2" in found(tmp_path, {"make.py": "import pack.own"})


def test_a_digest_is_as_old_as_its_newest_file_and_new_when_one_changes(tmp_path):
    scripts = made(tmp_path, {"make.py": "import one", "one.py": "", "two.py": ""})
    for age, name in enumerate(("make.py", "two.py", "one.py")):
        os.utime(scripts / name, ns=(0, 10**18 + age))
    digest = Path(CodeFiles(scripts, tmp_path / "code").digest("make"))
    assert digest.stat().st_mtime_ns == 10**18 + 2
    (scripts / "two.py").write_text("changed = True")
    (scripts / "one.py").touch()
    CodeFiles(scripts, tmp_path / "code").digest("make")
    assert digest.stat().st_mtime_ns == 10**18 + 2  # nothing that it has a line for is another
    before = digest.read_text()
    (scripts / "one.py").write_text("import two")
    CodeFiles(scripts, tmp_path / "code").digest("make")
    assert digest.stat().st_mtime_ns > 10**18 + 2
    assert len(digest.read_text().splitlines()) == 3 and digest.read_text() != before


def test_what_is_kept_of_an_earlier_start_changes_nothing(tmp_path):
    scripts = tmp_path / "scripts"
    shutil.copytree(SCRIPTS, scripts, ignore=shutil.ignore_patterns("__pycache__"))
    first, again = (CodeFiles(scripts, tmp_path / "code") for _ in range(2))
    for script in scripts.glob("*.py"):
        assert first.files_of(script.stem) == again.files_of(script.stem)


def test_modules_whose_change_once_left_stale_results(tmp_path):
    code = CodeFiles(SCRIPTS, tmp_path)
    assert SCRIPTS / "servelab/study/study.py" in code.files_of("decide_stage")  # the margin's default
    for script in ("aggregate", "decide_stage", "recommend", "build_history", "compare_studies"):
        assert SCRIPTS / "servelab/metrics/statistics.py" in code.files_of(script)  # the intervals' confidence
