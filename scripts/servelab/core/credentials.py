"""Recognises credentials by their name and by their form, so that none gets into a log, a study or an archive."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, product
from pathlib import Path

from servelab.core.errors import ConfigError

REDACTED = "redacted-secret"

_PREFIX = re.compile(r"^(?!#)(\S+) +(\S+)", re.MULTILINE)
_LISTED = Path(__file__).with_name("credential_prefixes.txt").read_text(encoding="utf-8")
PREFIXES = {begin: rest.replace("WORD", r"(?:[\w-]|\\(?=_))") for begin, rest in _PREFIX.findall(_LISTED)}
"""The beginning of a token (a pattern) → the rest (a pattern); Markdown puts a backslash before an underscore."""

_LINE = r"(?:\\?\r?\n|(?:\\\\)?(?:\\r)?\\n)"
"""A line break, as it is or as JSON writes it; behind a backslash in a shell."""
_BREAK = rf"{_LINE}[ \t]*"
BREAK = re.compile(_BREAK)
_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
_TAB = r"(?:\t|\\t)"
_FORMS = "|".join(begin.replace("_", r"\\?_") + rest for begin, rest in PREFIXES.items())
_BEFORE = r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2})|(?<=\[\dm)|(?<=\[\d\dm))"
"""No letter or digit, unless it ends an escape: `\\n`, `%3D` or a colour of a terminal."""

TOKEN = re.compile(f"{_BEFORE}(?:{_FORMS})")
TOKEN_ANYWHERE = re.compile(_FORMS)
_UNESCAPED = r"[\w+/=.:-]"
_BACKSLASH = rf"\\(?=(?:{_BREAK})?_)"
_RUN = rf"(?:{_UNESCAPED}+|{_BACKSLASH}{_UNESCAPED}*)(?:{_BACKSLASH}{_UNESCAPED}*)*"
"""All characters that a token can have."""
BROKEN = re.compile(rf"(?:(?<![\w\\+/=.:-])|(?<=\\n)|(?<=\\)(?!n|r\\n|_)){_RUN}(?:(?:{_BREAK})+{_RUN})+")
"""A token that a line break cuts is inside of one of these. Nothing is possessive: Python before 3.11.5 errs there."""

HASH_IN_LOCK = re.compile(r"^[ \t]*--hash=sha256:[0-9a-f]{64}(?: \\)?\r?$", re.MULTILINE)
"""A line that is only the hash of a package: in an archive a third of all text, and never a credential."""

WEBHOOK = re.compile(
    r"(https://(?:hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)|(?:\w+\.)?discord(?:app)?\.com/api/"
    r"(?:v\d+/)?webhooks|[\w.-]+\.webhook\.office\.com/webhookb2)/)(?!redacted-secret)[\w/@+%.-]{10,}",
    re.IGNORECASE,
)
URL = re.compile(r"(?<![A-Za-z0-9])([a-z][a-z0-9+.-]{0,30}://)(?!redacted-secret@)[^\s/'\"<>{}$]+@", re.IGNORECASE)
_BLOCK = r"(?:[A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?|PGP MESSAGE)-{4,5}"
PRIVATE_KEY_BEGINS = re.compile(rf"-{{4,5}} ?BEGIN {_BLOCK}|PuTTY-User-Key-File-\d")
PRIVATE_KEY_ENDS = re.compile(rf"-{{4,5}} ?END {_BLOCK}|Private-(?:MAC|Hash): ?[0-9a-f]+")
PRIVATE_KEY = re.compile(rf"(?:{PRIVATE_KEY_BEGINS.pattern}).*?(?:{PRIVATE_KEY_ENDS.pattern}|\Z)", re.DOTALL)

OPENING = (
    r"(?:api|access|account|admin|app|application|auth|bearer|client|deploy|encryption|hf|hub|identity|jupyter|kaggle|master|modelscope"
    r"|private|refresh|functions|registry|secret|service|session|shared|signing|storage|subscription|webhook)[-_]?(?:key|token|secret)(?:[-_]?data)?|password|passwd|passphrase|passcode|requirepass|masterauth"
)
"""Names that hold a credential in every tool."""
_PLAIN = r"[^\s'\",;&()\[\]{}<>]"
_VARIABLE = r"(?-i:[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)"
"""The name of a variable that holds a credential is none."""
VALUE = rf"(?!(?:none|null|true|false|\d+|redacted-\w+|{_VARIABLE})(?!{_PLAIN}))(?![\w-]+:(?:\s|$)){_PLAIN}{{4,}}"
_AFTER = r"(?:_?V?\d{1,2}|_JSON|_B64|_BASE64)?"
"""The end of a name of one of several secrets, or of one that is written otherwise: `API_KEY_2`, `TOKEN_V2`."""
_GIVEN = rf"\\?['\"]?[ \t]*[:=][ \t]*(?:[|>][+-]?[ \t]*)?(?:{_LINE}[ \t]+)?\[?\\?['\"]?"
"""The signs between a name and its value: `: `, `=`, quotes, also a line break before an indented value."""

NAMED = re.compile(
    rf"((?:{OPENING})(?:{_GIVEN}|['\"],\s*(?=['\"])['\"])"
    rf"|(?:(?<![\w-])|(?<=\\[nrt]))--(?:[a-z0-9]+[-_])*(?:{OPENING}|token)(?:[\s=]|{_LINE})+(?!--)['\"]?"
    rf"|{_START}(?-i:[A-Z][A-Z0-9_]*(?:TOKEN|KEY|SECRET|PASSWORD|PASSWD){_AFTER})(?:{_GIVEN})"
    rf"|{_START}(?:[A-Za-z0-9]+_)*pwd(?:{_GIVEN})(?![/~$%.]))"
    rf"{VALUE}",
    re.IGNORECASE,
)
PERHAPS_NAMED = re.compile(
    rf"({_START}(?<!-)(?:(?:[A-Za-z0-9]+_){{0,4}}(?:secret|auth|(?:ssh)?pass|pw|creds?|credentials?|jwt|sid|sas)|(?<!_)token)"
    rf"{_GIVEN})(?!redacted-)({_PLAIN}{{8,}})",
    re.IGNORECASE,
)
"""Names that hold a credential only if the value looks like one."""
_AT_NAME = r"\bname\\?['\"]?[ \t]*:[ \t]*\\?['\"]?"
_AT_VALUE = rf"\\?['\"]?,?(?:[ \t]|{_LINE}){{0,40}}\\?['\"]?value\\?['\"]?[ \t]*:[ \t]*\\?['\"]?"
NAME_AND_VALUE = re.compile(
    rf"({_AT_NAME}[\w-]*(?:{OPENING}|secret|pass|(?-i:TOKEN|KEY|PWD)){_AT_VALUE}){VALUE}", re.IGNORECASE
)
"""A variable of a container as Kubernetes writes it: `name: X` and `value: Y`."""

QUERY = re.compile(
    rf"([?&](?:{OPENING}|token|key|sig|signature|X-Amz-(?:Credential|Signature|Security-Token)|X-Goog-Signature)=)"
    rf"{VALUE}",
    re.IGNORECASE,
)
HEADER = re.compile(
    rf"(authorization\\?['\"]?\s*[:=,]\s*\\?['\"]?(?:[a-z]+\s+)?|{_START}bearer\s+(?=\S{{16}}))"
    r"(?!redacted-secret)[\w.~+/=-]{8,}",
    re.IGNORECASE,
)
COOKIE = re.compile(
    rf"({_START}(?:set-)?cookie\\?['\"]?\s*[:=,]\s*\\?['\"]?|--cookie[\s=]+['\"]?)"
    r"(?!redacted-secret)(?=[\w.%-]+=)[^\r\n'\"\\]{4,}",
    re.IGNORECASE,
)
COOKIE_DICT = re.compile(r"(cookies['\"]?\s*[:=]\s*\{)(?!redacted-secret)[^{}]*[:=][^{}]*(?=\})", re.IGNORECASE)
COOKIE_JAR = re.compile(
    rf"((?:TRUE|FALSE){_TAB}/[^\s\\]*{_TAB}(?:TRUE|FALSE){_TAB}\d+{_TAB}[^\s\\]+{_TAB})(?!redacted-)[^\s\\]+"
)
LOGIN = re.compile(
    rf"({_START}(?:machine\s+\S+|default)(?:\s+(?:login|account)\s+\S+)*\s+password\s+|\blogin\s+\S+\s+password\s+)"
    r"(?!redacted-secret)[^\s\\]+"
)
"""Lines of a `.netrc`."""
CURL_USER = re.compile(
    rf"({_START}curl\b[^\r\n]*?\s(?:-u|--user|--proxy-user)[\s=]*['\"]?)(?!redacted-)[^\s:'\"\\]+:[^\s'\"\\]+"
)

BASE64 = re.compile(rf"(?:(?<![\\\w+/-])|(?<=\\[nrt]))[\w+/-]{{16,}}(?:{_BREAK}[\w+/-]{{4,}})*={{0,2}}(?![\w+/=-])")
"""Runs that may be base64, also over several lines."""

_SECRET_VARIABLE = re.compile(
    rf"(?:^|_)\w*(?:TOKEN|KEY|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|_PWD|_PASS|_PAT|_JWT|COOKIE){_AFTER}$",
    re.IGNORECASE,
)
_SECRET_NAME = re.compile(
    rf"-{{0,2}}(?:[\w.-]*(?:{OPENING})|secret|token|pwd|_auth|(?:set-)?cookies?|(?:proxy-)?authorization)",
    re.IGNORECASE,
)
_NO_SECRET = re.compile(
    rf"|none|null|true|false|on|off|auto|[-+\d.e]+|\*+|redacted-\w+|<[^>]*>|{_VARIABLE}", re.IGNORECASE
)
_WITH_UNIT = re.compile(r"[-+]?\d[\d.,]*[A-Za-z/%]{0,6}")
_COLOUR = re.compile(r"(?:\x1b|\\x1b|\\u001b|\\033)\[[0-9;:]*[A-Za-z]", re.IGNORECASE)
"""As a terminal reads it, and as Python, JSON and a shell write it."""
_LINES = re.compile(rf"(?:(?!{BREAK.pattern}).)+(?:{BREAK.pattern})?", re.DOTALL)
_REST = re.compile(r"[\w-]*")
_CONTINUES = re.compile(r"[\w-]+[ \t]*(?:\r?\n|\Z)|(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{4,}|[\w-]*[a-z][A-Z]")
"""The end of a broken token: alone on its line, or a word that looks random."""
_AFTER_NAME = (WEBHOOK, QUERY, HEADER, COOKIE, COOKIE_DICT, COOKIE_JAR, LOGIN, CURL_USER, NAME_AND_VALUE, NAMED)


def is_secret(name: str, value: object) -> bool:
    """Whether a variable, option or key of this name and value holds a credential; numbers and switches never do."""
    if not isinstance(value, str) or _NO_SECRET.fullmatch(value):
        return False
    if name.lower() == "auth":
        return _looks_secret(value)
    if name.lower() == "pwd" and value.startswith("/"):  # the working folder of a shell
        return False
    return bool(_SECRET_VARIABLE.search(name) if name.isupper() else _SECRET_NAME.fullmatch(name))


def holds_credential(name: str, value: object) -> bool:
    """Whether a setting of this name holds a credential, by the rules that also redact; JSON in a text is read too."""
    if not isinstance(value, str):
        return False
    text = value
    if is_secret(name, text) or any(without_credentials(each) != each for each in (text, f"{name.lstrip('-')}={text}")):
        return True
    try:
        inside = json.loads(text) if text.lstrip()[:1] in ("{", "[") else None
    except (ValueError, RecursionError):
        return False
    return any(holds_credential(key, each) for _, key, each in leaves(inside, name))


def refuse_credentials(content: object, file: str) -> None:
    """`ConfigError` that names file and key if plain data of a configuration has a credential."""
    if (place := _place_of_credential(content)) is not None:
        wrong = "a credential would get into specifications, commands and reports; remove it"
        raise ConfigError(f"{file}: {place}: {wrong} (a server on loopback needs none)")


def _place_of_credential(content: object) -> str | None:
    """The place of the first credential in plain data, such as `baseline.arguments.--api-key`; None without one."""
    texts = [(place, name, value) for place, name, value in leaves(content) if isinstance(value, str)]
    whole = "\n\n".join(f"{name}={value}" for _, name, value in texts)
    is_clean = without_credentials(whole) == whole
    for place, name, value in texts:
        if is_secret(name, value) or ((not is_clean or "{" in value) and holds_credential(name, value)):
            return place
    return None


def leaves(value: object, key: str = "", place: str = "") -> Iterator[tuple[str, str, object]]:
    """Place, key and value of everything in plain data that is neither a list nor a dictionary."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from leaves(each, str(name), f"{place}.{name}".lstrip("."))
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from leaves(each, key, f"{place}.{number}".lstrip("."))
    else:
        yield place, key, value


ACTS = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u2069\\ufeff]"
)
"""Control characters except tab and line feed, other line breaks, and what changes the direction of text."""


def shown(text: str) -> str:
    """The text with each character that a terminal or a page acts on written out, as JSON writes it."""
    return ACTS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def without_colours(text: str) -> str:
    """The text without what colours it on a terminal: its last letter would hide where the next word begins."""
    return _COLOUR.sub("", text) if "[" in text else text


def has_credential(text: str) -> bool:
    """Whether a text holds a credential, judged by form alone.

    Such as a token, a private key, a webhook, a URL with a password, and these in base64 or broken over two lines.
    """
    text = HASH_IN_LOCK.sub("", without_colours(text))
    found = any(pattern.search(text) for pattern in (TOKEN, URL, PRIVATE_KEY, WEBHOOK))
    return found or without_encoded(text, _opens) != text or _without_broken(text) != text


def without_credentials(text: str) -> str:
    """The text with each credential replaced by `REDACTED`: those known by their form or by the name before them.

    A text in which something is replaced loses its colours.
    """
    plain = without_colours(text)
    made = _without_credentials(plain)
    return text if made == plain else made


def _without_credentials(text: str) -> str:
    text = _without_broken(PRIVATE_KEY.sub(REDACTED, text))
    text = TOKEN.sub(REDACTED, text)
    text = URL.sub(rf"\1{REDACTED}@", text)
    for pattern in _AFTER_NAME:
        text = pattern.sub(rf"\1{REDACTED}", text)
    text = PERHAPS_NAMED.sub(lambda match: match[1] + REDACTED if _looks_secret(match[2]) else match[0], text)
    return without_encoded(text, _opens)


def decoded(run: str) -> str | None:
    """The text of a run in base64: ASCII with line breaks and tabs; None for anything else."""
    plain = BREAK.sub("", run).rstrip("=").replace("-", "+").replace("_", "/")
    try:
        found = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        return None
    return found if re.fullmatch(r"[\t\r\n -~]+", found) else None


def _looks_secret(value: str) -> bool:
    """Whether a value looks random: letters with digits, or both cases; or `user:password` in base64."""
    if value.startswith(("/", "~", "$", "%", ".")) or _WITH_UNIT.fullmatch(value) or _NO_SECRET.fullmatch(value):
        return False
    if len(value) >= 10 and re.search("[A-Za-z]", value) and re.search(r"\d", value):
        return True
    if len(value) >= 16 and re.search("[a-z][A-Z]|[A-Z]{2}", value) and re.search("[a-z]", value):
        return True
    return ":" in (decoded(value) or "")


def without_encoded(text: str, opens: Callable[[str | None], bool]) -> str:
    """The text without runs in base64 that hold something which `opens`; it gets None where nothing can be decoded."""

    def replace(match: re.Match[str]) -> str:
        lines = _LINES.findall(match[0])
        # words before and behind the encoded lines may look like a part of them
        for first, last in product(range(min(2, len(lines))), reversed(range(max(0, len(lines) - 2), len(lines)))):
            if opens(decoded("".join(lines[first : last + 1]))):
                return "".join([*lines[:first], REDACTED, "\n" if lines[last + 1 :] else "", *lines[last + 1 :]])
        return "".join(REDACTED + line[len(BREAK.sub("", line)) :] if opens(decoded(line)) else line for line in lines)

    return BASE64.sub(replace, text)


def _opens(text: str | None) -> bool:
    """Whether a decoded text holds a credential, known by its form or by the name before it."""
    if text is None:
        return False
    patterns = (TOKEN, URL, PRIVATE_KEY, *_AFTER_NAME)
    named = (match[2] for match in PERHAPS_NAMED.finditer(text))
    return any(pattern.search(text) for pattern in patterns) or any(map(_looks_secret, named))


def _without_broken(text: str) -> str:
    """The text without tokens that a line break cuts: the parts on both lines are replaced."""
    return BROKEN.sub(_without_parts, text)


def _without_parts(run: re.Match[str]) -> str:
    text, joined = run[0], BREAK.sub("", run[0])
    if not TOKEN_ANYWHERE.search(joined):
        return text
    breaks = [match.span() for match in BREAK.finditer(text)]
    left_out = [0, *accumulate(end - start for start, end in breaks)]
    cuts = [start - before for (start, _), before in zip(breaks, left_out, strict=False)]
    # positions in `joined` at which a break was; `left_out[n]` characters are missing behind the first n of them
    made, done, position = [], 0, 0
    while match := TOKEN_ANYWHERE.search(joined, position):
        start, end = match.span()
        first = bisect_right(cuts, start)
        cut = cuts[first] if first < len(cuts) else len(joined)
        is_start = start == 0 or cuts[first - 1 : first] == [start] or not re.match(r"\w", joined[start - 1])
        if not is_start:
            position = start + 1
        elif end <= cut:
            position = end
        elif TOKEN_ANYWHERE.fullmatch(joined, start, cut) and not _CONTINUES.match(
            run.string, run.start() + breaks[first][1]
        ):
            position = cut
        else:
            ends = end + left_out[bisect_right(cuts, end - 1)]
            ends += sum(rest.end() - rest.start() for rest in [_REST.match(text, ends)] if rest)
            made += [text[done : start + left_out[first]], REDACTED]
            done, position = ends, end
    return "".join([*made, text[done:]])


def key_of(variable: str | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """The key in the environment variable; None without a variable, `ConfigError` if it has no key to send."""
    if variable is None:
        return None
    if not (key := environment.get(variable, "").strip()):
        named = variable if variable.isupper() else "(its name, never the key)"
        raise ConfigError(f"the environment variable {named} is to hold the server's key, and is not set")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(f"the value of the environment variable {variable} cannot be sent in a header")
    return key


def without_keys(text: str, values: Iterable[str]) -> str:
    """A text of the server without the values of headers that it was sent, which it may repeat."""
    for key in (value.removeprefix("Bearer ") for value in values):
        text = text.replace(key, "*" * len(key))
    return text


PASS_VARIABLES = "SERVELAB_PASS_VARIABLES"  # noqa: S105 (names of variables)
"""The variable with the names to pass, separated by commas; the workflow sets it to those of the site."""

_NEEDED = re.compile(r"PATH|HOME|USER|LOGNAME|LANG|LC_\w+|TZ|TMPDIR|XDG_CACHE_HOME|CUDA_CACHE_PATH|HF_HOME")
"""Where programs, caches and temporary files are, and the language of messages."""

_CHANGES_A_PROGRAM = re.compile(
    r"(LD|PYTHON|MALLOC|GLIBC|TCMALLOC|JEMALLOC|OMP|GOMP|KMP|MKL|OPENBLAS|BLIS|CUDA|CUBLAS|CUDNN|NVIDIA|NCCL|NVSHMEM|UCX"
    r"|GLOO|ASCEND|ACL|HCCL|ATB|NPU|HIP|ROCR|TORCH|PYTORCH|TORCHINDUCTOR|TRITON|XLA|RAY|HF|HUGGINGFACE|TRANSFORMERS"
    r"|TOKENIZERS|SAFETENSORS|FLASHINFER)_?[A-Z_0-9]*"
)
"""Families of variables by which users change loaders, libraries, drivers and frameworks."""


@dataclass(frozen=True)
class ShellVariables:
    """The shell's variables, as far as they concern a server."""

    needed: dict[str, str]
    """Those that any program needs."""
    passed: dict[str, str]
    """Those passed by name."""
    kept_out: list[str]
    """Names of those that could change a server, and do not reach it; sorted."""


def shell_variables(prefixes: Iterable[str] = (), shell: Mapping[str, str] | None = None) -> ShellVariables:
    """The variables of this process. `prefixes` begin the names of variables that the server reads itself.

    `ConfigError` if one that is to be passed is not set, or holds a credential.
    """
    shell = os.environ if shell is None else shell
    named = [name.strip() for name in shell.get(PASS_VARIABLES, "").split(",")]
    passed = {name: _passed(name, shell) for name in named if name}
    needed = {name: value for name, value in shell.items() if name not in passed and _NEEDED.fullmatch(name)}
    kept_out = sorted(
        name
        for name in shell.keys() - needed.keys() - passed.keys()
        if _CHANGES_A_PROGRAM.fullmatch(name) or name.startswith(tuple(prefixes))
    )
    return ShellVariables(needed, passed, kept_out)


def _passed(name: str, shell: Mapping[str, str]) -> str:
    if name not in shell:
        raise ConfigError(
            f"{PASS_VARIABLES}: {name} is not set here; set it, or take it out of the site's pass_variables"
        )
    if is_secret(name, shell[name]) or has_credential(shell[name]):
        raise ConfigError(f"{PASS_VARIABLES}: {name} holds a credential that each run's manifest would show; remove it")
    return shell[name]
