"""Replaces secrets, and everything that identifies the user or the machine, by fixed words before a file is archived.

Replaced are credentials by their form and name (`servelab.core.credentials`), values of environment variables with such
a name, proxies, the names of user and host, the host's addresses, home folders, and the project's folder. Numbers are
never changed, and a replaced text is not replaced again, so a table made from redacted records equals the redacted
table.

A name that is also a word (`max`, `test`, `server`) would damage unrelated text. So a name of fewer than 4 characters,
of digits only, or that is a word of this workflow's own source is replaced only in the place of a user or a host: below
`/home`, before or behind `@`, after `user=` or `host:`. Common names (`root`, `localhost`) identify nobody and stay.
"""

from __future__ import annotations

import base64
import html
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import psutil
from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from detect_secrets.plugins.base import BasePlugin

from servelab.archive.redacted_files import changed_file, changed_json
from servelab.core.credentials import (
    BREAK,
    HASH_IN_LOCK,
    REDACTED,
    has_credential,
    is_secret,
    without_colours,
    without_credentials,
)
from servelab.core.errors import ServelabError

PROXY, USER, HOST, ADDRESS = "redacted-proxy", "redacted-user", "redacted-host", "redacted-address"
HOME, PROJECT = "/redacted-home", "/redacted-project"

_STAYS = re.compile(
    r"results/(?:runs/[^/]+/spec\.json|workloads/.*|recorded/[^/]+/logs/.*"
    r"|(?:studies|recorded)/[^/]+/stages/[^/]+/plan\.json)"
    r"|workflow/(?:(?!config/).*|config/recorded/[^/]+/logs/.*)",
    re.DOTALL,
)
"""Members that must stay unchanged: the code, and files whose hash is in another member's name or content."""
_SNIFFED_BYTES = 8192
_CODE = re.compile(r"workflow/(?!config/).*", re.DOTALL)
_SHORTEST_SECRET = 8
"""A shorter value of a variable is replaced only behind the variable's name, since it may be a word or a number."""
_SHORTEST_ENCODED = 12
"""Of a shorter value in base64 too little is left to be sure of it."""
_SHORTEST_NAME = 4
_EVERYBODY = re.compile(
    r"root|user|admin|administrator|nobody|ubuntu|debian|centos|fedora|rocky|ec2-user|runner|jovyan|vagrant|docker|"
    r"servelab|default|localhost(\.localdomain)?|ip6-localhost|host|127(\.\d+){3}|0\.0\.0\.0|::1?|\[::1?\]|00(:00)+|\*?|redacted-\w+"
)
_NAMING = ("USER", "LOGNAME", "SUDO_USER", "HOSTNAME", "SLURMD_NODENAME")
"""Variables that name a user, or from the fourth on a host."""
_HOMES = re.compile(r"(?<![\w.-])(?:/home/[^/\s'\"<>:,;)\]}]+|/Users/[^/\s'\"<>:,;)\]}]+)")
_PROJECTS = re.compile(
    r"(?<![\w.-])(?:/[^/\s'\"<>:,;=()\[\]{}]+)+?(?=/(?:scripts/(?:servelab/|\w+\.py)"
    r"|results/(?:archives|datasets|envs|logs|models|recorded|runs|studies|workloads)/))"
)
"""A project's folder, recognised by what is in it, because the runs may have been measured in another checkout."""
_OF_A_USER = frozenset({"user", "username", "login", "owner"})
_OF_A_HOST = frozenset({"host", "hostname", "node", "nodename"})
_PROXY_NAME = re.compile(r"\w*(?:http|https|all|ftp|no)_proxy|\w+_proxy", re.IGNORECASE)
_PROXY_GIVEN = re.compile(r"(\b\w*_proxy['\"]?\s*[:=]\s*['\"]?)(?!redacted-proxy)[^\s'\",;]{4,}", re.IGNORECASE)


class Redactor:
    """Redacts texts and files; the same environment always gives the same result."""

    def __init__(
        self,
        *,
        project: Path,
        environment: Mapping[str, str],
        homes: Iterable[str] = (),
        users: Iterable[str] = (),
        hosts: Iterable[str] = (),
        addresses: Iterable[str] = (),
    ) -> None:
        """`project` is the folder with `results/`; `hosts` are all hosts that a measured run names, and this one."""
        long = ((name.upper(), value) for name, value in environment.items() if len(value) >= _SHORTEST_SECRET)
        exact = {value: REDACTED for name, value in long if is_secret(name, value) and not value.startswith("/")}
        named_hosts = {label for host in hosts for label in _labels(host)}
        for name, value in environment.items():
            if _PROXY_NAME.fullmatch(name):
                proxies, proxy_hosts = _proxies(value)
                exact |= dict.fromkeys(proxies, PROXY)
                named_hosts |= proxy_hosts
        folders = dict.fromkeys(_spellings(project), PROJECT)
        folders |= {folder: HOME for home in homes for folder in _spellings(Path(home)) if folder not in folders}
        variants = {variant: word for value, word in exact.items() for variant in _variants(value)}
        self._exact = _replacing(variants, between=f"(?:{BREAK.pattern})?")
        self._folders = _replacing(folders, before=r"(?<![\w.-])", after=r"(?![\w-]|\.\w)")
        self._addresses = _replacing(dict.fromkeys(addresses, ADDRESS), before=r"(?<![\w.])", after=r"(?!\w|\.\w)")
        names = dict.fromkeys(users, USER) | dict.fromkeys(named_hosts, HOST)
        names = {name: word for name, word in names.items() if not _EVERYBODY.fullmatch(name.lower())}
        odd = {name for name in names if len(name) >= _SHORTEST_NAME and not name.isdigit()}
        telling = {name: names[name] for name in odd if name.lower() not in _vocabulary()}
        self._telling = _replacing(telling, before=r"(?<![A-Za-z0-9])", after=r"(?![A-Za-z0-9])")
        self._placed = [_placed(name, word) for name, word in names.items() if name not in telling]

    @classmethod
    def of_this_machine(cls, project: Path, *, hosts: Iterable[str] = ()) -> Redactor:
        """Redacts this machine's environment, user, host and addresses; `hosts` are those in the runs' manifests."""
        account, given = psutil.Process().username(), {name: os.environ.get(name, "") for name in _NAMING}
        cards = (each.address.partition("%")[0] for card in psutil.net_if_addrs().values() for each in card)
        own = os.path.expanduser(f"~{account}")  # noqa: PTH111 (the other raises for an unknown account)
        homes = {own, os.environ.get("HOME", "")}
        return cls(
            project=project,
            environment=os.environ,
            # `/root` identifies nobody, and occurs in source and in paths of containers
            homes=sorted(home for home in homes if home.startswith("/") and home not in ("/", "/root")),
            users=sorted({account, *(given[name] for name in _NAMING[:3])} - {""}),
            hosts=sorted({os.uname().nodename, *(given[name] for name in _NAMING[3:]), *hosts} - {""}),
            addresses=sorted(each for each in cards if re.search("[.:]", each) and not _EVERYBODY.fullmatch(each)),
        )

    def text(self, text: str) -> str:
        """A redacted text; one in which something is replaced loses its colours."""
        plain = without_colours(text)
        made = self._text(plain)
        return text if made == plain else made

    def _text(self, text: str) -> str:
        text = self._certain(text)
        text = _PROXY_GIVEN.sub(rf"\1{PROXY}", without_credentials(text))
        text = _HOMES.sub(HOME, _PROJECTS.sub(PROJECT, text))
        for placed in self._placed:
            text = placed(text)
        return self._telling(self._addresses(text))

    def json(self, value: Any) -> Any:
        """Redacted plain data, keys included."""
        return changed_json(value, self._value)

    def _value(self, place: str, key: str, text: str) -> str:
        if is_secret(key, text):
            return REDACTED
        if key.lower() in _OF_A_USER | _OF_A_HOST and not _EVERYBODY.fullmatch(text.lower()):
            return USER if key.lower() in _OF_A_USER else HOST
        return self.text(text)

    def member(self, name: str, source: Path, scratch: Path) -> Path:
        """The file to archive under a name: `source` if nothing in it is replaced, else `scratch` made from it.

        JSON and Parquet are changed by their values, text as a whole. `ServelabError` if something would have
        to be replaced in a file that cannot be changed or must stay unchanged.
        """
        with source.open("rb") as file:
            is_binary = source.suffix not in (".parquet", ".json") and b"\0" in file.read(_SNIFFED_BYTES)
        if not is_binary and not _STAYS.fullmatch(name):
            return changed_file(source, scratch, self._value)
        self.refuse(source, is_code=_CODE.fullmatch(name) is not None)
        return source

    def refuse(self, source: Path, *, is_code: bool = False) -> None:
        """For a file that must stay unchanged: a `ServelabError` names file and place if it has a secret.

        The bare name of a user or a host is allowed: `alice/model` is the public name of a repository. Prompts are
        other people's texts, so in them only this environment's own values count. Code has names like `password=`
        without a secret behind them.
        """
        is_prompts = source.suffix == ".parquet"

        def has_any(text: str, key: str = "") -> bool:
            if is_prompts or self._certain(text) != text:
                return self._certain(text) != text
            return is_secret(key, text) or (has_credential(text) if is_code else without_credentials(text) != text)

        def refused(place: str, key: str, text: str) -> str:
            if has_any(text, key):
                lines = (f"line {number}" for number, line in enumerate(text.split("\n"), 1) if has_any(f"{line}\n"))
                what = "has a credential, or a proxy or a folder of this machine, which must not be archived"
                fix = "it is part of what was measured and cannot be redacted; remove it where it comes from"
                raise ServelabError(f"{source}: {place or next(lines, 'several lines')}: {what}; {fix}")
            return text

        changed_file(source, Path(os.devnull), refused)

    def _certain(self, text: str) -> str:
        return self._folders(self._exact(text))


@cache
def _vocabulary() -> frozenset[str]:
    """Words of this workflow's own source, the same on every machine."""
    words: set[str] = set()
    for file in sorted(Path(__file__).parents[1].rglob("*.py")):
        words.update(re.findall(r"[a-z0-9]+", file.read_text(encoding="utf-8").lower()))
    return frozenset(words)


def _labels(host: str) -> set[str]:
    """A host's full name, its first part, and its domain if it has one."""
    first, _, domain = host.partition(".")
    if re.fullmatch(r"[\d.:]+", host):
        return {host}
    return {host, first, *([domain] if "." in domain else [])} - {""}


def _proxies(value: str) -> tuple[set[str], set[str]]:
    """The texts of a proxy's variable that are replaced everywhere, and the names of hosts in it."""
    whole, hosts = set(), set()
    for part in value.split(","):
        address = part.strip().lstrip("*.")
        split = urlsplit(address if "://" in address else f"//{address}")
        if not address or _EVERYBODY.fullmatch(address.lower()):
            continue
        if "://" in address or split.port:
            whole |= {address, split.netloc.rpartition("@")[2]}
        if split.hostname and not _EVERYBODY.fullmatch(split.hostname):
            hosts |= _labels(split.hostname) if split.hostname.count(".") < 2 else {split.hostname}
    return {text for text in whole if len(text) >= _SHORTEST_SECRET}, hosts


def _spellings(folder: Path) -> list[str]:
    """A folder's path as given, and with links resolved."""
    return sorted({str(folder.absolute()), str(folder.resolve())} - {"/"}, key=len, reverse=True)


def _variants(value: str) -> set[str]:
    """A value as it is, and as JSON, HTML, URLs and base64 write it; also each line of a value with several."""
    lines = {line for line in value.splitlines() if len(line) >= 2 * _SHORTEST_SECRET}
    forms = {value} | (lines if "\n" in value else set())
    encoded = {part for form in forms if len(form) >= _SHORTEST_ENCODED for part in _in_base64(form.encode())}
    for form in list(forms):
        forms |= {
            json.dumps(form)[1:-1],
            json.dumps(form, ensure_ascii=False)[1:-1],
            html.escape(form),
            quote(form, ""),
        }
    return forms | encoded


def _in_base64(value: bytes) -> set[str]:
    """A value as base64 writes it, also inside of a longer text: there it may begin at each of three places."""
    found = set()
    for before in range(3):
        text = base64.b64encode(bytes(before) + value).decode()
        own = text[-(-before * 4 // 3) : len(text) - (0, 3, 2)[(before + len(value)) % 3]]
        found |= {own, own.replace("+", "-").replace("/", "_")}
    return found


def _replacing(words: Mapping[str, str], before: str = "", after: str = "", between: str = "") -> Callable[[str], str]:
    """Replaces each of the keys by its word, longest match first; `between` is what may be after each character."""
    if not words:
        return lambda text: text
    longest_first = sorted(words, key=lambda literal: (-len(literal), literal))
    forms = (between.join(map(_as_in_markdown, literal)) for literal in longest_first)
    pattern = re.compile(f"{before}(?:{'|'.join(forms)}){after}")
    plain = {_plain(literal): word for literal, word in words.items()}
    return lambda text: pattern.sub(lambda match: plain[_plain(match[0])], text)


def _as_in_markdown(character: str) -> str:
    """A pattern of a character, with or without the backslash that Markdown adds."""
    return character if character.isalnum() else r"\\?" + re.escape(character)


def _plain(text: str) -> str:
    """A text without what a match may have more than its literal."""
    return BREAK.sub("", text).replace("\\", "")


def _placed(name: str, word: str) -> Callable[[str], str]:
    """Replaces a name that is also a word, or short, in the place of a user or a host."""
    keys = "|".join(sorted(_OF_A_USER if word == USER else _OF_A_HOST))
    places = rf"(?<=@)|(?<=://)|\b(?:{keys})['\"]?\s*[:=]\s*['\"]?"
    if word == USER:
        places += r"|(?<![\w.-])/(?:home|Users|users|scratch|data|work|var/spool)/"
    behind = rf"(?<![\w.-]){re.escape(name)}(?=@)"
    pattern = re.compile(rf"({places}){re.escape(name)}(?![\w-]|\.\w)|{behind}", re.IGNORECASE)
    return lambda text: pattern.sub(lambda match: (match[1] or "") + word, text)


_LEFT_OUT = {
    "Base64 High Entropy String",
    "Hex High Entropy String",
    "Secret Keyword",
    "Public IP (ipv4)",
    "Basic Auth Credentials",
}


@cache
def rules() -> tuple[BasePlugin, ...]:
    """The rules of detect-secrets that are used, without their checks over a network."""
    kinds: Mapping[str, type[BasePlugin]] = get_mapping_from_secret_type_to_class()
    return tuple(kinds[name]() for name in sorted(kinds.keys() - _LEFT_OUT))


def refuse_secrets(name: str, path: Path) -> None:
    """`ServelabError` with place and rule if a redacted member has a secret. Prompts of a workload are not read."""

    def refused(place: str, key: str, text: str) -> str:
        for number, line in enumerate(text.split("\n"), 1):
            for rule in rules() if not HASH_IN_LOCK.fullmatch(line) else ():
                if any(rule.analyze_string(f'"{key}": "{line}"' if key else line)):
                    what = f"looks like a secret ({rule.secret_type}, a rule of detect-secrets)"
                    fix = "which must not be archived; remove it from the file below the project's folder"
                    raise ServelabError(f"{name}: {place or f'line {number}'}: {what}, {fix}")
        return text

    if not (name.startswith("results/workloads/") and path.suffix == ".parquet"):
        changed_file(path, Path(os.devnull), refused)
