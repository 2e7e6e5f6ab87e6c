"""Verifies archives of studies: makes again what can be, matches the workflow with its commit, lists the rest.

Prints what covers the files of each archive, a line per fault, and a verdict. Exits with 1 on any fault, and for an
archive with files that nothing covers, unless these are accepted. Needs no network.
"""

import argparse
import sys
from pathlib import Path

from servelab.archive.coverage import coverage_lines
from servelab.archive.signatures import check_signature, signature_of
from servelab.archive.verify import Verdict, verify_archive
from servelab.core.cli import run
from servelab.core.identity import file_sha256

ROOT = Path(__file__).resolve().parents[1]


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archives", nargs="+", type=Path, metavar="FILE")
    parser.add_argument(
        "--accept-unsigned",
        action="store_true",
        help="accept files that nothing proves, such as raw records without a signature, if they contradict nothing",
    )
    parser.add_argument(
        "--allowed-signers",
        type=Path,
        metavar="KEYS",
        help="file of the keys that you trust (ssh-keygen(1)): signatures of the archive and of its runs are checked",
    )
    parser.add_argument("--list", action="store_true", help="print the name of every file that is not proved")
    parser.add_argument(
        "--own-workflow",
        action="store_true",
        help="recompute the tables with the workflow in the archive instead of this one: runs code of the archive",
    )
    return parser


def main(arguments: argparse.Namespace) -> None:
    accepted = [_report(archive, arguments) for archive in arguments.archives]
    sys.exit(0 if all(accepted) else 1)


def _report(archive: Path, arguments: argparse.Namespace) -> bool:
    """Prints what is known of an archive; returns whether it is accepted."""
    own_workflow = arguments.own_workflow
    signature = check_signature(archive, arguments.allowed_signers)
    verdict = verify_archive(
        archive,
        ROOT,
        own_workflow=own_workflow,
        is_whole_signed=signature.signer is not None,
        allowed_signers=arguments.allowed_signers,
    )
    if signature_of(archive).exists():  # the runs of an archive without a signature may have their own
        verdict.faults += signature.faults
    print(f"{archive}: {signature.text}")
    if verdict.known_as:
        for line in coverage_lines(verdict.coverage, verdict.known_as):
            print(f"{archive}: {line}")
        if own_workflow:
            print(f"{archive}: made again by the archive's own code, so that says no more than the code is trusted")
    for name, what in verdict.coverage.unproved.items() if arguments.list else ():
        print(f"{archive}: not proved: {name}: {what}")
    for fault in verdict.faults:
        print(f"{archive}: {'not comparable' if fault in verdict.incomparable else 'does not hold'}: {fault}")
    accepted, said = _conclusion(verdict, arguments.accept_unsigned)
    print(f"{archive}: {said}; sha256 {file_sha256(archive)}")
    return accepted


def _conclusion(verdict: Verdict, accept_unsigned: bool) -> tuple[bool, str]:
    if faults := len(verdict.faults) - len(verdict.incomparable):
        return False, f"DOES NOT HOLD: {faults} faults"
    if verdict.incomparable:
        return False, (
            f"cannot be compared: {len(verdict.incomparable)} files were made by other code or packages; verify it in "
            "its own environment (docs/archive.md), or with --own-workflow"
        )
    checked = "; ".join(verdict.holds)
    if verdict.coverage.is_whole:
        return True, f"holds: {checked}"
    unproved = f"{len(verdict.coverage.unproved):,} files are not proved"
    if accept_unsigned:
        return True, f"is consistent: {checked}; {unproved}, and accepted without a signature"
    return False, f"is not proved: {unproved}; --accept-unsigned accepts them, if you trust where you got it; {checked}"


if __name__ == "__main__":
    run(lambda: main(options().parse_args()))
