"""What says who measured where, or opens something, is replaced by a word that stays the same, before it is archived.

That is: credentials by their form and name (`servelab.credentials`), the values of this environment's variables that
are named like one, proxies, the names of user and host, the host's addresses, home folders, and where the project lies.
Numbers are never touched, and what is replaced once is not replaced again, so that a table made from replaced records
equals the replaced table.

A name that is also a word (`max`, `test`, `server`) would mangle what has nothing to do with it. A name of fewer than 4
characters, of digits, or that is a word of this workflow's own source, is therefore replaced only where a user or a
host stands: below `/home`, before or behind `@`, after `user=` or `host:`. What everybody is called (`root`,
`localhost`) says nothing, and stays.
"""

from __future__ import annotations

import html
import json
import os
import pwd
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import psutil

from servelab.archive.redacted_files import redact_file, texts_of
from servelab.credentials import REDACTED, has_credential, is_secret, without_credentials
from servelab.errors import ServelabError

PROXY, USER, HOST, ADDRESS = "redacted-proxy", "redacted-user", "redacted-host", "redacted-address"
HOME, PROJECT = "/redacted-home", "/redacted-project"

_STAYS = re.compile(
    r"results/(?:runs/[^/]+/spec\.json|pairs/[^/]+/(?:pair|[ab]/spec)\.json|workloads/.*|recorded/[^/]+/logs/.*"
    r"|(?:studies|recorded)/[^/]+/stages/[^/]+/(?:plan|pair)\.json)"
    r"|workflow/(?:(?!config/).*|config/recorded/[^/]+/logs/.*)",
    re.DOTALL,
)
"""Members whose content is hashed by another one's name or content, and the code: changed, they were something else."""
_SHORTEST_SECRET = 8
"""A shorter value of a variable is replaced only where it stands behind its name: it may be a word, or a figure."""
_SHORTEST_NAME = 4
_EVERYBODY = re.compile(
    r"root|user|admin|administrator|nobody|ubuntu|debian|centos|fedora|rocky|ec2-user|runner|jovyan|vagrant|docker|"
    r"servelab|default|localhost(\.localdomain)?|ip6-localhost|host|127(\.\d+){3}|0\.0\.0\.0|::1?|\[::1?\]|\*?|redacted-\w+"
)
_HOMES = re.compile(r"(?<![\w.-])(?:/home/[^/\s'\"<>:,;)\]}]+|/Users/[^/\s'\"<>:,;)\]}]+)")
_PROJECTS = re.compile(
    r"(?<![\w.-])(?:/[^/\s'\"<>:,;=()\[\]{}]+)+?(?=/(?:scripts/(?:servelab/|\w+\.py)"
    r"|results/(?:archives|datasets|envs|logs|models|pairs|recorded|runs|studies|workloads)/))"
)
"""Where a project lies, told by what is in it: what is archived may have been measured in another checkout."""
_OF_A_USER = frozenset({"user", "username", "login", "owner"})
_OF_A_HOST = frozenset({"host", "hostname", "node", "nodename"})
_PROXY_NAME = re.compile(r"\w*(?:http|https|all|ftp|no)_proxy|\w+_proxy", re.IGNORECASE)
_PROXY_GIVEN = re.compile(r"(\b\w*_proxy['\"]?\s*[:=]\s*['\"]?)(?!redacted-proxy)[^\s'\",;]{4,}", re.IGNORECASE)


class Redactor:
    """Takes what must not be archived out of texts and files; the same for the same environment, whenever it runs."""

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
        """`project` is the folder that `results/` lies in; `hosts` are all that a measured run names, this one too."""
        exact = {value: REDACTED for name, value in environment.items() if _is_long_secret(name, value)}
        named_hosts = {label for host in hosts for label in _labels(host)}
        for name, value in environment.items():
            if _PROXY_NAME.fullmatch(name):
                proxies, proxy_hosts = _proxies(value)
                exact |= dict.fromkeys(proxies, PROXY)
                named_hosts |= proxy_hosts
        folders = dict.fromkeys(_spellings(project), PROJECT)
        folders |= {folder: HOME for home in homes for folder in _spellings(Path(home)) if folder not in folders}
        self._exact = _replacing({variant: word for value, word in exact.items() for variant in _variants(value)})
        self._folders = _replacing(folders, before=r"(?<![\w.-])", after=r"(?![\w-]|\.\w)")
        self._addresses = _replacing(dict.fromkeys(addresses, ADDRESS), before=r"(?<![\w.])", after=r"(?!\w|\.\w)")
        names = dict.fromkeys(users, USER) | dict.fromkeys(named_hosts, HOST)
        names = {name: word for name, word in names.items() if not _EVERYBODY.fullmatch(name.lower())}
        telling = {name: word for name, word in names.items() if _is_telling(name)}
        self._telling = _replacing(telling, before=r"(?<![A-Za-z0-9])", after=r"(?![A-Za-z0-9])")
        self._placed = [_placed(name, word) for name, word in names.items() if name not in telling]

    @classmethod
    def of_this_machine(cls, project: Path, *, hosts: Iterable[str] = ()) -> Redactor:
        """What is known here: environment, user, host, addresses; `hosts` are those that the runs' manifests name."""
        variables = os.environ
        account, account_home = _account()
        users = {account, *(variables.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER"))}
        named = {os.uname().nodename, variables.get("HOSTNAME", ""), variables.get("SLURMD_NODENAME", ""), *hosts}
        homes = {account_home, variables.get("HOME", "")}
        return cls(
            project=project,
            environment=variables,
            # `/root` is everybody's; it stands in source, and in reports for what lies in a container
            homes=sorted(home for home in homes if home.startswith("/") and home not in ("/", "/root")),
            users=sorted(filter(None, users)),
            hosts=sorted(filter(None, named)),
            addresses=sorted(_addresses()),
        )

    def text(self, text: str) -> str:
        """A text without what must not be archived."""
        text = self._certain(text)
        text = _PROXY_GIVEN.sub(rf"\1{PROXY}", without_credentials(text))
        text = _HOMES.sub(HOME, _PROJECTS.sub(PROJECT, text))
        for placed in self._placed:
            text = placed(text)
        return self._telling(self._addresses(text))

    def json(self, value: Any, key: str = "") -> Any:
        """Plain data without it: in values and, but for their kind, in keys; `key` is what a value stands under."""
        if isinstance(value, dict):
            return {self.text(name): self.json(inner, name) for name, inner in value.items()}
        if isinstance(value, list):
            names = [key, *(item if isinstance(item, str) and item.startswith("-") else key for item in value)]
            return [self.json(item, name) for name, item in zip(names, value, strict=False)]
        if not isinstance(value, str):
            return value
        if is_secret(key, value):
            return REDACTED
        if key.lower() in _OF_A_USER | _OF_A_HOST and not _EVERYBODY.fullmatch(value.lower()):
            return USER if key.lower() in _OF_A_USER else HOST
        return self.text(value)

    def member(self, name: str, source: Path, scratch: Path) -> Path:
        """The file to archive under a name: `source` if nothing in it is to be replaced; else `scratch`, made from it.

        JSON and Parquet are changed by their values, text by lines. `ServelabError` where something would have to be
        replaced in a file that cannot be changed, or that must stay as it is.
        """
        if _STAYS.fullmatch(name):
            self.refuse(source)
            return source
        return redact_file(source, scratch, text=self.text, json=self.json, refuse=self.refuse)

    def refuse(self, source: Path) -> None:
        """For a file that must stay as it is: `ServelabError` naming file and place if a secret is in it.

        A user's or host's bare name is no reason: `alice/model` is a repository's public name. Of prompts, which are
        others' texts, only what is this environment's own counts.
        """
        for place, key, text in texts_of(source):
            own = self._certain(text) != text
            form = not source.name.endswith(".parquet") and (has_credential(text) or is_secret(key, text))
            if own or form:
                what = "holds a credential" if form else "holds a credential, a proxy or a folder of this machine"
                fix = "it is part of what was measured and cannot be taken out; take it out of its origin"
                raise ServelabError(f"{source}: {place}: {what}, which must not be archived; {fix}")

    def _certain(self, text: str) -> str:
        return self._folders(self._exact(text))


def _is_long_secret(name: str, value: str) -> bool:
    return len(value) >= _SHORTEST_SECRET and is_secret(name.upper(), value) and not value.startswith("/")


def _is_telling(name: str) -> bool:
    return len(name) >= _SHORTEST_NAME and not name.isdigit() and name.lower() not in _vocabulary()


@cache
def _vocabulary() -> frozenset[str]:
    """Words of this workflow's own source, the same on every machine."""
    words: set[str] = set()
    for file in sorted(Path(__file__).parents[1].rglob("*.py")):
        words.update(re.findall(r"[a-z0-9]+", file.read_text(encoding="utf-8").lower()))
    return frozenset(words)


def _labels(host: str) -> set[str]:
    """A host's name in full, its first part, and its domain where that is one."""
    first, _, domain = host.partition(".")
    if re.fullmatch(r"[\d.:]+", host):
        return {host}
    return {host, first, *([domain] if "." in domain else [])} - {""}


def _proxies(value: str) -> tuple[set[str], set[str]]:
    """What of a proxy's variable is replaced wherever it stands, and the names of hosts in it."""
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


def _account() -> tuple[str, str]:
    """Name and home folder of this process's user; empty where the system knows none."""
    try:
        account = pwd.getpwuid(os.getuid())
    except KeyError:
        return "", ""
    return account.pw_name, account.pw_dir


def _addresses() -> set[str]:
    """This machine's addresses, but for those that every machine has."""
    found = {address.address.partition("%")[0] for card in psutil.net_if_addrs().values() for address in card}
    return {
        address for address in found if re.search(r"[.:]", address) and not re.match(r"127\.|::1$|00:00:00", address)
    }


def _spellings(folder: Path) -> list[str]:
    """A folder as it is named, and as it is once links are followed."""
    return sorted({str(folder.absolute()), str(folder.resolve())} - {"/"}, key=len, reverse=True)


def _variants(value: str) -> set[str]:
    """A value as it stands, and as JSON, HTML and URLs write it; of several lines, each."""
    lines = {line for line in value.splitlines() if len(line) >= 2 * _SHORTEST_SECRET}
    forms = {value} | (lines if "\n" in value else set())
    for form in list(forms):
        forms |= {
            json.dumps(form)[1:-1],
            json.dumps(form, ensure_ascii=False)[1:-1],
            html.escape(form),
            quote(form, ""),
        }
    return forms


def _replacing(words: Mapping[str, str], before: str = "", after: str = "") -> Callable[[str], str]:
    """Replaces each of the keys by its word, the longest that fits."""
    if not words:
        return lambda text: text
    longest_first = sorted(words, key=lambda literal: (-len(literal), literal))
    pattern = re.compile(before + "(?:" + "|".join(map(_as_in_markdown, longest_first)) + ")" + after)
    plain = {literal.replace("\\", ""): word for literal, word in words.items()}
    return lambda text: pattern.sub(lambda match: plain[match[0].replace("\\", "")], text)


def _as_in_markdown(literal: str) -> str:
    """A pattern of a text, also where Markdown has put backslashes before what means something to it."""
    return "".join(c if c.isalnum() else r"\\?" + re.escape(c) for c in literal)


def _placed(name: str, word: str) -> Callable[[str], str]:
    """Replaces a name that is also a word, or short, where a user or a host stands."""
    keys = "|".join(sorted(_OF_A_USER if word == USER else _OF_A_HOST))
    places = rf"(?<=@)|(?<=://)|\b(?:{keys})['\"]?\s*[:=]\s*['\"]?"
    if word == USER:
        places += r"|(?<![\w.-])/(?:home|Users|users|scratch|data|work|var/spool)/"
    behind = rf"(?<![\w.-]){re.escape(name)}(?=@)"
    pattern = re.compile(rf"({places}){re.escape(name)}(?![\w-]|\.\w)|{behind}", re.IGNORECASE)
    return lambda text: pattern.sub(lambda match: (match[1] or "") + word, text)
