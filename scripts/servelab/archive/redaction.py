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

import html
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from detect_secrets.plugins.base import BasePlugin

from servelab.core.credentials import (
    BREAK,
    HASH_IN_LOCK,
    REDACTED,
    has_credential,
    is_secret,
    without_colours,
    without_credentials,
    without_encoded,
)
from servelab.core.errors import ServelabError
from servelab.metrics.tables.io import read_arrow

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
_SHORTEST_SECRET = 8
"""A shorter value of a variable is replaced only behind the variable's name, since it may be a word or a number."""
_SHORTEST_NAME = 4
_EVERYBODY = re.compile(
    r"root|user|admin|administrator|nobody|ubuntu|debian|centos|fedora|rocky|ec2-user|runner|jovyan|vagrant|docker|"
    r"servelab|default|localhost(\.localdomain)?|ip6-localhost|host|127(\.\d+){3}|0\.0\.0\.0|::1?|\[::1?\]|00(:00)+|\*?|redacted-\w+"
)
_HOMES = re.compile(r"(?<![\w.-])(?:/home/[^/\s'\"<>:,;)\]}]+|/Users/[^/\s'\"<>:,;)\]}]+)")
_PROJECTS = re.compile(
    r"(?<![\w.-])(?:/[^/\s'\"<>:,;=()\[\]{}]+)+?(?=/(?:scripts/(?:servelab/|\w+\.py)"
    r"|results/(?:archives|datasets|envs|logs|models|recorded|runs|studies|workloads)/))"
)
"""A project's folder, recognised by what is in it, because the runs may have been measured in another checkout."""
_OF_A_USER = frozenset({"user", "username", "login", "owner"})
_OF_A_HOST = frozenset({"host", "hostname", "node", "nodename"})
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
        proxies = [value for name, value in environment.items() if name.lower().endswith("_proxy")]
        for part in ",".join(proxies).split(","):
            address = part.strip().lstrip("*.")
            split = urlsplit(address if "://" in address else f"//{address}")
            place = split.netloc.rpartition("@")[2]
            if split.hostname and not _EVERYBODY.fullmatch(split.hostname):
                named_hosts.add(split.hostname)
                exact |= {place: PROXY} if ":" in place and len(place) >= _SHORTEST_SECRET else {}
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
        account, given = psutil.Process().username(), os.environ.get
        cards = (each.address.partition("%")[0] for card in psutil.net_if_addrs().values() for each in card)
        homes = {os.path.expanduser(f"~{account}"), given("HOME", "")}  # noqa: PTH111 (the other raises without one)
        return cls(
            project=project,
            environment=os.environ,
            # `/root` identifies nobody, and occurs in source and in paths of containers
            homes=sorted(home for home in homes if home.startswith("/") and home not in ("/", "/root")),
            users=sorted(filter(None, {account, *map(given, ("USER", "LOGNAME", "SUDO_USER"))})),
            hosts=sorted(filter(None, {os.uname().nodename, *map(given, ("HOSTNAME", "SLURMD_NODENAME")), *hosts})),
            addresses=sorted(each for each in cards if re.search("[.:]", each) and not _EVERYBODY.fullmatch(each)),
        )

    def text(self, text: str) -> str:
        """A redacted text; one in which something is replaced loses its colours."""
        plain = without_colours(text)
        made = _PROXY_GIVEN.sub(rf"\1{PROXY}", without_credentials(self._certain(plain)))
        made = _HOMES.sub(HOME, _PROJECTS.sub(PROJECT, made))
        for placed in self._placed:
            made = placed(made)
        made = self._telling(self._addresses(made))
        return text if made == plain else made

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
        is_code = name.startswith("workflow/") and not name.startswith("workflow/config/")

        def fault(key: str, text: str) -> str | None:
            # the bare name of a user or a host is allowed: `alice/model` is the public name of a repository
            has_any = self._certain(text) != text
            if source.suffix != ".parquet":  # prompts are other people's texts
                # code has names like `password=` without a secret behind them
                held = has_credential if is_code else lambda text: without_credentials(text) != text
                has_any = has_any or held(text) or is_secret(key, text)
            what = "has a credential, or a proxy or a folder of this machine, which must not be archived"
            fix = "it is part of what was measured and cannot be redacted; remove it where it comes from"
            return f"{what}; {fix}" if has_any else None

        _refuse(str(source), source, fault)
        return source

    def _certain(self, text: str) -> str:
        """The text without this environment's own secrets, proxies and folders."""
        opened = without_encoded(text, lambda inside: inside is not None and self._exact(inside) != inside)
        return self._folders(self._exact(opened))


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


def _spellings(folder: Path) -> list[str]:
    """A folder's path as given, and with links resolved."""
    return sorted({str(folder.absolute()), str(folder.resolve())} - {"/"}, key=len, reverse=True)


def _variants(value: str) -> set[str]:
    """A value as it is, and as JSON, HTML and URLs write it; also each line of a value with several."""
    forms = {value} | {line for line in value.splitlines() if len(line) >= 2 * _SHORTEST_SECRET}
    writes = (lambda form: json.dumps(form, ensure_ascii=False)[1:-1], html.escape, lambda form: quote(form, ""))
    return forms | {json.dumps(form)[1:-1] for form in forms} | {write(form) for form in forms for write in writes}


def _replacing(words: Mapping[str, str], before: str = "", after: str = "", between: str = "") -> Callable[[str], str]:
    """Replaces each of the keys by its word, longest match first; `between` is what may be after each character."""
    if not words:
        return lambda text: text
    longest_first = sorted(words, key=lambda literal: (-len(literal), literal))
    forms = (between.join(map(re.escape, literal)) for literal in longest_first)
    pattern = re.compile(f"{before}(?:{'|'.join(forms)}){after}")
    plain = {BREAK.sub("", literal): word for literal, word in words.items()}
    return lambda text: pattern.sub(lambda match: plain[BREAK.sub("", match[0])], text)


def _placed(name: str, word: str) -> Callable[[str], str]:
    """Replaces a name that is also a word, or short, in the place of a user or a host."""
    keys = "|".join(sorted(_OF_A_USER if word == USER else _OF_A_HOST))
    places = rf"(?<=@)|(?<=://)|\b(?:{keys})['\"]?\s*[:=]\s*['\"]?"
    if word == USER:
        places += r"|(?<![\w.-])/(?:home|Users|users|scratch|data|work|var/spool)/"
    behind = rf"(?<![\w.-]){re.escape(name)}(?=@)"
    pattern = re.compile(rf"({places}){re.escape(name)}(?![\w-]|\.\w)|{behind}", re.IGNORECASE)
    return lambda text: pattern.sub(lambda match: (match[1] or "") + word, text)


_LEFT_OUT = {"Base64 High Entropy String", "Hex High Entropy String", "Secret Keyword", "Public IP (ipv4)"}
_LEFT_OUT |= {"Basic Auth Credentials"}
"""Rules that find hashes, tokens of text, versions and what was just replaced."""


@cache
def rules() -> tuple[BasePlugin, ...]:
    """The rules of detect-secrets that are used, without their checks over a network."""
    kinds: Mapping[str, type[BasePlugin]] = get_mapping_from_secret_type_to_class()
    return tuple(kinds[name]() for name in sorted(kinds.keys() - _LEFT_OUT))


def refuse_secrets(name: str, path: Path) -> None:
    """`ServelabError` with place and rule if a redacted member has a secret. Prompts of a workload are not read."""

    def fault(key: str, text: str) -> str | None:
        for line in text.split("\n"):
            for rule in rules() if not HASH_IN_LOCK.fullmatch(line) else ():
                if any(rule.analyze_string(f'"{key}": "{line}"' if key else line)):
                    what = f"looks like a secret ({rule.secret_type}, a rule of detect-secrets)"
                    return f"{what}, which must not be archived; remove it from the file below the project's folder"
        return None

    if not (name.startswith("results/workloads/") and path.suffix == ".parquet"):
        _refuse(name, path, fault)


def _refuse(name: str, path: Path, fault: Callable[[str, str], str | None]) -> None:
    """`ServelabError` with the place of a text in a file that has a `fault`, judged by its key and itself."""

    def checked(place: str, key: str, text: str) -> str:
        if why := fault(key, text):
            lines = (f"line {number}" for number, line in enumerate(text.split("\n"), 1) if fault(key, f"{line}\n"))
            raise ServelabError(f"{name}: {place or next(lines, 'several lines')}: {why}")
        return text

    changed_file(path, Path(os.devnull), checked)


Change = Callable[[str, str, str], str]
"""From the place of a text (of a text file none), its key (in JSON) and the text to the text that takes its place."""


def changed_file(source: Path, scratch: Path, change: Change) -> Path:
    """`source` if nothing changes, else `scratch` with the changed content."""
    if source.suffix == ".parquet":
        return _changed_parquet(source, scratch, change)
    if source.suffix != ".json":
        text = source.read_bytes().decode(errors="surrogateescape")
        if (made := change("", "", text)) != text:
            scratch.write_bytes(made.encode(errors="surrogateescape"))
        return source if made == text else scratch
    try:
        value = json.loads(source.read_bytes())
    except ValueError as error:
        raise ServelabError(f"{source}: not valid JSON: {error}") from None
    if (changed := changed_json(value, change)) != value:
        scratch.write_text(json.dumps(changed, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return source if changed == value else scratch


def changed_json(value: Any, change: Change, place: str = "", key: str = "") -> Any:
    """Plain data with each text and each key changed. A text behind an option has the option as its key."""
    if isinstance(value, dict):
        named = {name: changed_json(item, change, f"{place}.{name}".lstrip("."), name) for name, item in value.items()}
        return {change(place or "its keys", "", name): item for name, item in named.items()}
    if isinstance(value, list):
        keys = [key, *(item if isinstance(item, str) and item.startswith("-") else key for item in value)]
        pairs = enumerate(zip(keys, value, strict=False))
        return [changed_json(item, change, f"{place}.{number}".lstrip("."), name) for number, (name, item) in pairs]
    return change(place, key, value) if isinstance(value, str) else value


def _changed_parquet(source: Path, scratch: Path, change: Change) -> Path:
    table = made = read_arrow(source)
    for number, field in enumerate(table.schema):
        if "string" in str(field.type):
            values = table[field.name].to_pylist()
            once = cache(partial(change, f"column {field.name}"))  # each text once, wherever it is in a column
            changed = changed_json(values, lambda place, key, text, once=once: once("", text))  # type: ignore[misc]
            made = made if changed == values else made.set_column(number, field, pa.array(changed, field.type))
    metadata = table.schema.metadata or {}
    described = {key: change("its metadata", "", value.decode()).encode() for key, value in metadata.items()}
    if made is table and described == metadata:
        return source
    pq.write_table(made.replace_schema_metadata(described or None), scratch, compression="zstd")
    return scratch
