"""Links of the documents lead somewhere, and what they name exists."""

import re
from pathlib import Path

import pytest
import yaml

from servelab.search.forecast import forecast
from servelab.search.preflight import CHECKS
from servelab.search.project import load_project
from servelab.search.strategies import stage_names
from servelab.study.study import PROOF_STAGES

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
SEARCH = (ROOT / "docs/search.md").read_text()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_lead_somewhere(document):
    links = re.findall(r"\]\(([^)#:]+)\)", document.read_text())
    assert [link for link in links if not (document.parent / link).exists()] == []


def test_rooms_for_variants_exist():
    named = re.findall(r"`((?:scripts|tests|config)/[\w./]*)", (ROOT / "docs/adding.md").read_text())
    assert len(named) > 10
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_test_that_the_evidence_names_exists():
    text = (ROOT / "docs/evidence.md").read_text(encoding="utf-8")
    named = re.findall(r"`(?:tests/)?((?:bench|engines|h100|pods|slurm|unit|workflow)/test_\w+\.py)`", text)
    named += [f"bench/{name}" for name in re.findall(r"`(test_\w+\.py)`", text)]
    assert len(named) > 25
    assert [path for path in named if not (ROOT / "tests" / path).exists()] == []


def test_the_guide_of_a_node_shows_the_study_and_its_plan(tmp_path):
    """The plan's first rows and the proof's, as a dry run prints them."""
    study = ROOT / "config/studies/vllm-h100-node.yaml"
    page = (ROOT / "docs/vllm-on-one-h100-node.md").read_text()
    assert f"```yaml\n{study.read_text()}```" in page
    lines = forecast(load_project(study, ROOT), tmp_path).lines()
    proof = next(line for line in lines if "Proof:" in line)
    for line in [*lines[:4], proof]:
        assert f"    {line}\n" in page, line


def test_the_code_prints_the_messages_that_the_troubleshooting_page_explains():
    files = [ROOT / "Makefile", *(ROOT / "scripts").rglob("*.py"), *(ROOT / "rules").glob("*.smk")]
    source = re.sub(r'"\s*f?"', "", "\n".join(path.read_text() for path in files))  # long messages are split in two
    page = (ROOT / "docs/troubleshooting.md").read_text().split("## A candidate failed")[0]
    parts = [part for message in re.findall(r"^\| `(.*?)` \|", page, re.MULTILINE) for part in message.split("…")]
    assert len(parts) > 30
    assert [part for part in parts if part.strip() not in source] == []


def test_the_troubleshooting_page_explains_every_reason_of_a_failure():
    page = (ROOT / "docs/troubleshooting.md").read_text()
    table = (ROOT / "docs/engines.md").read_text()
    reasons = re.findall(r"^\| failed \| `(\w+)` \|", table, re.MULTILINE)
    assert len(reasons) > 5
    assert [reason for reason in reasons if f"\n| `{reason}` |" not in page] == []


def test_the_rooms_of_the_architecture_are_the_folders_of_the_package():
    table = (ROOT / "docs/architecture.md").read_text().split("## Rooms of the package")[1].split("\n## ")[0]
    rooms = {path.parent.name for path in (ROOT / "scripts/servelab").glob("*/__init__.py")}
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == rooms


def test_modules_and_files_that_texts_name_exist():
    folders = [ROOT / name for name in ("docs", "scripts", "rules", "config", "profiles")]
    texts = [path for folder in folders for path in folder.rglob("*") if path.suffix in (".md", ".py", ".smk", ".yaml")]
    missing = []
    for text in (*DOCUMENTS, *texts):
        if text.name == "CHANGELOG.md":  # it names what went
            continue
        content = text.read_text()
        paths = re.findall(r"(?<![\w/])((?:scripts|tests)/[\w/]+\.(?:py|smk))\b", content)
        missing += [(text.name, path) for path in paths if not (ROOT / path).exists()]
        named = re.findall(r"`(servelab(?:\.\w+){2,})`", content)
        missing += [(text.name, name) for name in named if not defined(name.split("."))]
    assert missing == []


def defined(parts: list[str]) -> bool:
    """Whether a dotted name is a module, or a name that a module has."""
    *package, name = parts
    module = (ROOT / "scripts").joinpath(*parts)
    if module.with_suffix(".py").exists() or module.is_dir():
        return True
    parent = (ROOT / "scripts").joinpath(*package)
    source = parent.with_suffix(".py") if parent.with_suffix(".py").exists() else parent / "__init__.py"
    return (
        source.exists()
        and re.search(rf"^(?:def|class) {name}\b|^{name}\b", source.read_text(), re.MULTILINE) is not None
    )


def example(language):
    """The one example of docs/search.md in a language."""
    found = re.findall(rf"```{language}\n(.*?)```", SEARCH, re.DOTALL)
    assert len(found) == 1
    return found[0]


def test_the_keys_of_the_search_are_those_of_a_study(study_content, make_project):
    shown = yaml.safe_load(example("yaml").replace("on: sharegpt", "'on': sharegpt"))
    assert set(shown) == {"search", "objective", "budget"}
    project = make_project(study_content | shown | {"workloads": ["sharegpt"]})
    first, *refined = stage_names(project.study)[: -len(PROOF_STAGES)]
    assert first == "design"
    assert all(name.startswith("refine-") for name in refined)
    assert project.study.budget.accelerator_hours == 8
    assert project.study.objective.constraints["ttft_ms"] == {"p99": 2000}


def test_the_python_of_the_search_gives_what_it_says(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    code = example("python")
    exec(compile(code, "docs/search.md", "exec"), {})
    said = re.search(r"print\(.*\)  # (.*)", code)
    assert capsys.readouterr().out.strip() == said[1]


@pytest.mark.parametrize("metric", re.findall(r"`metric: (\w+)`", SEARCH))
def test_objectives_are_metrics_with_a_direction(metric, study_content, make_project):
    study_content["objective"] |= {"metric": metric, "slos": {"ttft_ms": 500}}
    study_content["hardware"]["price_per_accelerator_hour"] = 2.0
    assert make_project(study_content).study.objective.metric == metric


def test_documentation_names_every_check_of_the_preflight():
    page = (ROOT / "docs/studies.md").read_text()
    assert [known.name for known in CHECKS if f"| `{known.name}` | {known.title} |" not in page] == []
