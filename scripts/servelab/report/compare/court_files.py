"""Findings of a comparison's conditions in forms that CI systems read: JUnit XML, annotations of GitHub Actions."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence

from servelab.report.compare.court import Finding

_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, production 2; a log line may have them."""


def junit(findings: Sequence[Finding], name: str) -> str:
    """One test case a finding: worse is a failure, what cannot be told an error, all else passes."""
    words = [finding.word for finding in findings]
    suite = ET.Element(
        "testsuite",
        name=f"servelab {name}",
        tests=str(len(findings)),
        failures=str(words.count("worse")),
        errors=str(words.count("cannot tell")),
    )
    for finding in findings:
        case = ET.SubElement(
            suite,
            "testcase",
            classname=_text(finding.workload),
            name=_text(f"{finding.condition}: {finding.configuration}"),
        )
        if finding.word == "worse":
            ET.SubElement(case, "failure", type=finding.word, message=_text(finding.why))
        elif finding.word == "cannot tell":
            ET.SubElement(case, "error", type=finding.word, message=_text(finding.why))
        else:
            ET.SubElement(case, "system-out").text = _text(f"{finding.word}: {finding.why}")
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _text(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def github_lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Workflow commands: an error for worse, a warning for what cannot be told, a notice for all else.

    The escapes are those of GitHub's own toolkit, packages/core/src/command.ts.
    """
    levels = {"worse": "error", "cannot tell": "warning"}
    for finding in findings:
        title = f"{finding.word}: {finding.condition}"
        message = f"{finding.configuration} on {finding.workload}: {finding.why}"
        yield f"::{levels.get(finding.word, 'notice')} title={_escaped(title, ',:')}::{_escaped(message)}"


def _escaped(text: str, more: str = "") -> str:
    return "".join(f"%{ord(character):02X}" if character in f"%\r\n{more}" else character for character in text)
