"""Verifies archives: their files by the manifest, their records, and all that is recomputed from these.

Prints what holds, a line per fault, and a verdict. Exits with 1 on any fault, and for an archive without a signature
unless these are accepted. Needs no network.
"""

import argparse
import sys
from pathlib import Path

from servelab.archive.about import SHOWS
from servelab.archive.layout import ArchiveSignature, add_signature_options, check_signature
from servelab.archive.verify import Verification, verified
from servelab.core.identity import file_sha256

ROOT = Path(__file__).resolve().parents[1]


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archives", nargs="+", type=Path, metavar="FILE")
    add_signature_options(parser)
    return parser


def main(arguments: argparse.Namespace) -> None:
    accepts, signers = arguments.accept_unsigned, arguments.allowed_signers
    accepted = [report(archive, signers, accepts_unsigned=accepts) for archive in arguments.archives]
    sys.exit(0 if all(accepted) else 1)


def report(archive: Path, allowed_signers: Path | None, *, accepts_unsigned: bool) -> bool:
    """Prints what is known of an archive; returns whether it is accepted."""
    signature = check_signature(archive, allowed_signers)
    with verified(archive, ROOT) as (found, _):
        found.faults += signature.faults
    print(f"{archive}: {signature.text}")
    print(f"{archive}: {SHOWS}")
    for number, fault in enumerate(found.faults):
        print(f"{archive}: {'not comparable' if number < found.incomparable else 'does not hold'}: {fault}")
    accepted, said = _conclusion(found, signature, accepts=accepts_unsigned)
    print(f"{archive}: {said}; sha256 {file_sha256(archive)}")
    return accepted


def _conclusion(found: Verification, signature: ArchiveSignature, *, accepts: bool) -> tuple[bool, str]:
    if faults := len(found.faults) - found.incomparable:
        return False, f"DOES NOT HOLD: {faults} faults"
    if found.incomparable:
        return False, (
            f"cannot be compared: {found.incomparable} files were made by other code or packages; verify it in "
            "its own environment (docs/archive.md)"
        )
    checked = "; ".join(found.holds)
    if signature.signer:
        return True, f"holds: {checked}"
    if why := signature.refusals(accepts_unsigned=accepts):
        return False, f"is consistent, but {why[0]}; {checked}"
    return True, f"is consistent: {checked}; accepted without a signature"
