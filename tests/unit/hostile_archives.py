"""Over a hundred archives made to do harm, and what the error must say of each."""

import stat
import struct
from dataclasses import dataclass, field

from made_zip import File, deflated, made_zip

from servelab.archive.unpack import Limits
from servelab.archive.zip_format import MARK

GOOD = File("results/runs/a/status.json", b'{"outcome": "ok"}\n' * 20)
SMALL = Limits(members=20, member_bytes=1 << 20, total_bytes=2 << 20, ratio=50, ratio_from_bytes=1 << 12)


@dataclass
class Hostile:
    """An archive, and what the error must say of it."""

    content: bytes
    says: str
    member: str | None = None
    """As the message names it; None where the fault is no member's."""
    limits: Limits = field(default_factory=Limits)


NAMES = {
    "parent": ("../evil", "`..`"),
    "parent deep inside": ("results/../../evil", "`..`"),
    "parent at the end": ("results/..", "`..`"),
    "many parents": ("../" * 12 + "etc/cron.d/evil", "`..`"),
    "here": ("./evil", "`.`"),
    "here inside": ("results/./evil", "`.`"),
    "empty": ("", "empty part"),
    "empty part": ("results//evil", "empty part"),
    "folder": ("results/runs/", "empty part"),
    "absolute": ("/etc/passwd", "absolute"),
    "absolute twice": ("//etc/passwd", "absolute"),
    "backslash parent": ("..\\evil", "backslash"),
    "backslash inside": ("results\\..\\..\\evil", "backslash"),
    "mixed slashes": ("results/..\\..\\evil", "backslash"),
    "drive": ("C:/windows/evil", "colon"),
    "drive relative": ("C:evil", "colon"),
    "drive with backslash": ("C:\\windows\\evil", "backslash"),
    "share": ("\\\\server\\share\\evil", "backslash"),
    "device path": ("\\\\?\\C:\\evil", "backslash"),
    "alternate stream": ("report.html:evil", "colon"),
    "nul in the middle": ("report.html\0.exe", "invisible"),
    "nul before a parent": ("a\0/../../evil", "invisible"),
    "line feed": ("report\n.html", "invisible"),
    "escape sequence": ("\x1b[2Jreport.html", "invisible"),
    "delete character": ("report\x7f.html", "invisible"),
    "c1 control": ("report\x9b2J.html", "invisible"),
    "right to left": ("report\u202elmth.exe", "invisible"),
    "isolate": ("report\u2066.html", "invisible"),
    "zero width space": ("re\u200bport.html", "invisible"),
    "zero width joiner": ("re\u200dport.html", "invisible"),
    "byte order mark": ("\ufeffreport.html", "invisible"),
    "soft hyphen": ("re\u00adport.html", "invisible"),
    "line separator": ("re\u2028port.html", "invisible"),
    "private use": ("re\ue000port.html", "invisible"),
    "tag characters": ("report\U000e0041.html", "invisible"),
    "decomposed": ("re\u0301sume.html", "NFC"),
    "angstrom sign": ("\u212b.html", "NFC"),
    "two dot leader": ("\u2025/evil", "`..`"),
    "one dot leaders": ("\u2024\u2024/evil", "`..`"),
    "wide dots": ("\uff0e\uff0e/evil", "`..`"),
    "wide slash": ("..\uff0fevil", "`..`"),
    "wide backslash": ("..\uff3cevil", "backslash"),
    "wide colon": ("C\uff1aevil", "colon"),
    "small colon": ("C\ufe55evil", "colon"),
    "dot at the end": ("report.html.", "ends with a dot"),
    "dots at the end": ("results/.../evil", "ends with a dot"),
    "ellipsis": ("results/\u2026/evil", "ends with a dot"),
    "space at the end": ("report.html ", "space"),
    "space in front": (" report.html", "space"),
    "only a space": ("results/ /evil", "space"),
    "wide space": ("results/\u3000/evil", "space"),
    "windows device": ("results/NUL", "device of Windows"),
    "windows device with suffix": ("con.txt", "device of Windows"),
    "windows port": ("results/com1.log/evil", "device of Windows"),
    "wide windows device": ("\uff23\uff2f\uff2e", "device of Windows"),
    "long part": ("a" * 256, "longer than 255"),
    "long name": ("/".join(["a" * 200] * 6), "longer than 1024"),
    "deep": ("a/" * 40 + "evil", "more than 32 parts"),
}
SAME = {
    "twice": ("report.html", "report.html", "occurs twice"),
    "other case": ("report.html", "REPORT.html", "the same as"),
    "sharp s": ("strasse.txt", "stra\u00dfe.txt", "the same as"),
    "ligature": ("file.txt", "\ufb01le.txt", "the same as"),
    "kelvin": ("k.txt", "\uff2b.txt", "the same as"),
    "long s": ("results.txt", "re\u017fults.txt", "the same as"),
    "file as folder": ("results", "results/evil", "folder is the same as"),
    "folder as file": ("results/good", "results", "the same as"),
    "folder in another case": ("results/good", "Results/evil", "folder is the same as"),
    "folder as file in another case": ("results/good", "RESULTS", "the same as"),
}
MODES = {
    "symbolic link": (stat.S_IFLNK | 0o777, "symbolic link"),
    "character device": (stat.S_IFCHR | 0o666, "a device"),
    "block device": (stat.S_IFBLK | 0o660, "a device"),
    "pipe": (stat.S_IFIFO | 0o644, "a pipe"),
    "socket": (stat.S_IFSOCK | 0o755, "a socket"),
    "folder": (stat.S_IFDIR | 0o755, "a folder"),
    "nothing": (0o644, "no file"),
    "set user id": (stat.S_IFREG | stat.S_ISUID | 0o755, "does not write"),
    "set group id": (stat.S_IFREG | stat.S_ISGID | 0o755, "does not write"),
    "executable": (stat.S_IFREG | 0o755, "does not write"),
}
EXTRAS = {
    "hard link of pkware": b"\x0d\x00\x17\x00" + bytes(12) + b"/etc/passwd",
    "link of asi unix": b"\x6e\x75\x19\x00" + bytes(14) + b"/etc/passwd",
    "unicode path": struct.pack("<HHBL", 0x7075, 12, 1, 0) + b"../evil",
    "unknown": b"\xff\xff\x04\x00evil",
    "broken": b"\x01",
    "empty zip64": b"\x01\x00\x00\x00",
    "zip64 not asked for": struct.pack("<2HQ", 1, 8, 1 << 40),
}
METHODS = {
    "shrink": 1,
    "implode": 6,
    "deflate64": 9,
    "bzip2": 12,
    "lzma": 14,
    "zstd": 93,
    "xz": 95,
    "ppmd": 98,
    "aes": 99,
}
FLAGS = {
    "encrypted": (0x1, "encrypted"),
    "strongly encrypted": (0x41, "encrypted"),
    "masked headers": (0x2000, "encrypted"),
    "sizes behind the data": (0x8, "does not write"),
    "patch": (0x20, "does not write"),
    "utf-8 on ascii": (0x800, "does not write"),
}
OTHERWISE = {
    "method": {"method": 0},
    "crc": {"crc32": 1},
    "packed size": {"packed": 1},
    "size": {"size": 1 << 20},
    "flags": {"flags": 0x8},
    "name": {"name": b"../../evil"},
    "longer name": {"name": b"results/runs/a/status.json.sh"},
}
ENTRY = {
    "other system": {"system": 0, "mode": 0x20},
    "time": {"time": 1},
    "date": {"date": 0x5A21},
    "version made by": {"made_by": 63},
    "version needed": {"version": 63},
    "disk": {"disk": 1},
    "internal attributes": {"internal": 1},
}
ZEROS = b"\0" * (1 << 20)


def _with(file: File) -> bytes:
    return made_zip([GOOD, file])


def _shown(name: str) -> str:
    text = name.encode("unicode_escape").decode()
    return text if len(text) <= 160 else f"{text[:160]}…"


def _hostile() -> dict[str, Hostile]:
    found = {f"name: {key}": Hostile(_with(File(name)), says, _shown(name)) for key, (name, says) in NAMES.items()}
    for key, (one, other, says) in SAME.items():
        found[f"same: {key}"] = Hostile(made_zip([File(one), File(other)]), says, _shown(other))
    target = b"../../../etc/passwd"
    for key, (mode, says) in MODES.items():
        found[f"mode: {key}"] = Hostile(_with(File("evil", target, mode=mode << 16)), says, "evil")
    for key, extra in EXTRAS.items():
        found[f"extra field: {key}"] = Hostile(_with(File("evil", entry_extra=extra)), "does not write", "evil")
        found[f"extra field of the header: {key}"] = Hostile(
            _with(File("evil", local_extra=extra)), "does not write", "evil"
        )
    for key, method in METHODS.items():
        found[f"method: {key}"] = Hostile(_with(File("evil", method=method)), f"method {method}", "evil")
    for key, (flags, says) in FLAGS.items():
        found[f"flags: {key}"] = Hostile(_with(File("evil", flags=flags)), says, "evil")
    for key, local in OTHERWISE.items():
        found[f"header says otherwise: {key}"] = Hostile(_with(File("evil", local=local)), "does not match", "evil")
    for key, entry in ENTRY.items():
        found[f"entry: {key}"] = Hostile(_with(File("evil", entry=entry)), "", "evil")
    return found | _bombs() | _damaged() | _structure()


def _bombs() -> dict[str, Hostile]:
    many = [File(f"file-{number}") for number in range(30)]
    large = [File(f"file-{number}", ZEROS[: 1 << 19]) for number in range(6)]
    free = Limits(members=20, member_bytes=1 << 20, total_bytes=2 << 20, ratio=5000)
    packed = deflated(ZEROS, 9)
    return {
        "bomb: ratio": Hostile(_with(File("evil", ZEROS)), "more than 50 : 1", "evil", SMALL),
        "bomb: ratio by default": Hostile(_with(File("evil", b"x", size=1 << 30)), "more than 300 : 1", "evil"),
        "bomb: member": Hostile(_with(File("evil", ZEROS * 2)), "more than are allowed", "evil", free),
        "bomb: all members": Hostile(made_zip(large), "in all", None, free),
        "bomb: members": Hostile(made_zip(many), "30 members", None, SMALL),
        "bomb: declares less": Hostile(_with(File("evil", ZEROS, size=100)), "more than the 100 bytes", "evil"),
        "bomb: declares nothing": Hostile(_with(File("evil", ZEROS, size=0)), "more than the 0 bytes", "evil"),
        "bomb: stored declares less": Hostile(
            _with(File("evil", b"x" * 99, method=0, size=9)), "more than the 9", "evil"
        ),
        "bomb: same data twice": Hostile(made_zip([GOOD, File("evil", offset=0)]), "overlaps", "evil"),
        "bomb: the same member twice": Hostile(
            made_zip([GOOD, File(GOOD.name, GOOD.content, offset=0)]), "overlaps", str(GOOD.name)
        ),
        "bomb: quoted members": Hostile(_quoted(packed), "overlaps", "inner"),
    }


def _quoted(packed: bytes) -> bytes:
    """A member whose data begins with the header of the next one, which shares the rest of it."""
    inner = made_zip([File("inner", ZEROS)])
    header = inner[: 30 + len("inner")]
    quoting = struct.pack("<BHH", 0, len(header), 0xFFFF - len(header)) + header + packed
    outer = File("outer", header + ZEROS, packed=quoting)
    return made_zip([outer, File("inner", ZEROS, offset=30 + len("outer") + 5)])


def _damaged() -> dict[str, Hostile]:
    text = b"some lines of text\n" * 40
    packed = deflated(text)
    wrong = bytes([packed[0] ^ 0xFF]) + packed[1:]
    return {
        "damaged: crc": Hostile(_with(File("evil", text, crc32=1)), "CRC", "evil"),
        "damaged: crc of stored": Hostile(_with(File("evil", text, method=0, crc32=1)), "CRC", "evil"),
        "damaged: declares more": Hostile(_with(File("evil", text, size=len(text) + 1)), "not the", "evil"),
        "damaged: stored declares more": Hostile(
            _with(File("evil", text, method=0, size=9999)), "not the 9,999", "evil"
        ),
        "damaged: data": Hostile(_with(File("evil", text, packed=wrong)), "damaged", "evil"),
        "damaged: no data": Hostile(_with(File("evil", text, packed=b"")), "ends too early or too late", "evil"),
        "damaged: half the data": Hostile(
            _with(File("evil", text, packed=packed[: len(packed) // 2])), "ends too early or too late", "evil"
        ),
        "damaged: data behind the stream": Hostile(
            _with(File("evil", text, packed=packed + b"evil")), "ends too early or too late", "evil"
        ),
        "damaged: two streams": Hostile(
            _with(File("evil", text * 2, packed=packed * 2)), "ends too early or too late", "evil"
        ),
        "damaged: zlib header": Hostile(_with(File("evil", text, packed=b"\x78\x9c" + packed)), "", "evil"),
        "damaged: seal": Hostile(_with(File("evil", text, comment=b"sha256:" + b"0" * 64)), "sha256", "evil"),
        "damaged: no seal": Hostile(_with(File("evil", text, comment=b"")), "no sha256", "evil"),
        "damaged: seal in capitals": Hostile(
            _with(File("evil", text, comment=b"sha256:" + b"A" * 64)), "no sha256", "evil"
        ),
        "damaged: name in latin-1": Hostile(_with(File("r\xe9sum\xe9".encode("latin-1"))), "utf-8"),
        "damaged: name in broken utf-8": Hostile(_with(File(b"evil\xc0\xae\xc0\xae", flags=0x800)), "utf-8"),
        "damaged: name with surrogates": Hostile(_with(File(b"evil\xed\xa0\x80", flags=0x800)), "utf-8"),
    }


def _structure() -> dict[str, Hostile]:
    good = made_zip([GOOD, File("report.html")])
    plain = made_zip([GOOD], comment=b"")
    cuts = {f"cut: {part} of 16": Hostile(good[: len(good) * part // 16], "does not end") for part in range(16)}
    record = 22 + len(MARK)
    directory_at = struct.unpack_from("<L", good, len(good) - record + 16)[0]
    end = good[-record:]

    def ends_with(**fields: int) -> bytes:
        told = dict(
            zip(
                ("disk", "start", "here", "count", "size", "offset", "comment"),
                struct.unpack("<4H2LH", end[4:22]),
                strict=True,
            )
        )
        return good[:-record] + b"PK\5\6" + struct.pack("<4H2LH", *(told | fields).values()) + MARK

    wide = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, 2, 2, len(good) - record - directory_at, directory_at)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, len(good) - record, 1)
    return cuts | {
        "structure: no zip": Hostile(b"#!/bin/sh\nrm -rf /\n" * 9, "does not end"),
        "structure: another zip": Hostile(plain, "does not end"),
        "structure: data behind": Hostile(good + b"evil", "does not end"),
        "structure: another archive behind": Hostile(good + good, "bytes"),
        "structure: data in front": Hostile(b"#!/bin/sh\n" + good, ""),
        "structure: data before a member": Hostile(
            made_zip([GOOD, File("evil", before=b"evil")]), "belong to no member", "evil"
        ),
        "structure: data before the first": Hostile(
            made_zip([File("evil", before=b"evil")]), "4 bytes were added", "evil"
        ),
        "structure: data before the directory": Hostile(_gap(good, directory_at), "bytes"),
        "structure: fewer entries": Hostile(ends_with(here=1, count=1), "last record"),
        "structure: more entries": Hostile(ends_with(here=3, count=3), ""),
        "structure: counts differ": Hostile(ends_with(here=1), "last record"),
        "structure: second disk": Hostile(ends_with(disk=1), "last record"),
        "structure: directory elsewhere": Hostile(ends_with(offset=0), "bytes"),
        "structure: longer directory": Hostile(ends_with(size=1 << 30), "directory"),
        "structure: comment too long": Hostile(ends_with(comment=99), "last record"),
        "structure: needless zip64": Hostile(good[:-record] + wide + locator + end, ""),
        "structure: empty file": Hostile(b"", "does not end"),
        "structure: only an end": Hostile(
            b"PK\5\6" + struct.pack("<4H2LH", 0, 0, 9, 9, 460, 0, len(MARK)) + MARK, "directory"
        ),
        "structure: header elsewhere": Hostile(made_zip([GOOD, File("evil", offset=7)]), "no header", "evil"),
        "structure: header beyond the end": Hostile(
            made_zip([GOOD, File("evil", offset=1 << 30)]), "no header", "evil"
        ),
        "structure: entries in another order": Hostile(_swapped_entries(), ""),
    }


def _gap(good: bytes, directory_at: int) -> bytes:
    return good[:directory_at] + b"evil" + good[directory_at:]


def _swapped_entries() -> bytes:
    one, two = File("a"), File("b")
    good = made_zip([one, two])
    entry_bytes = 46 + 1 + 71
    directory_at = len(good) - 22 - len(MARK) - 2 * entry_bytes
    first, second = (
        good[directory_at : directory_at + entry_bytes],
        good[directory_at + entry_bytes : directory_at + 2 * entry_bytes],
    )
    return good[:directory_at] + second + first + good[directory_at + 2 * entry_bytes :]


HOSTILE = _hostile()
