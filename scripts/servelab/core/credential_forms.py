"""Forms of credentials: prefixes that services give their tokens, and names before a value."""

from __future__ import annotations

import re
from pathlib import Path

_PREFIX = re.compile(r"^(?!#)(\S+) +(\S+)", re.MULTILINE)
_LISTED = Path(__file__).with_name("credential_prefixes.txt").read_text(encoding="utf-8")
PREFIXES = {begin: rest.replace("WORD", r"(?:[\w-]|\\(?=_))") for begin, rest in _PREFIX.findall(_LISTED)}
"""What a token begins with (a pattern) → what follows (a pattern); Markdown puts a backslash before an underscore."""

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
    r"|private|refresh"
    r"|registry|secret|service|session|shared|signing|storage|webhook)[-_]?(?:key|token|secret)(?:[-_]?data)?|password|passwd"
    r"|passphrase|passcode|requirepass|masterauth"
)
"""Names that hold a credential in every tool."""
_PLAIN = r"[^\s'\",;&()\[\]{}<>]"
VALUE = rf"(?!(?:none|null|true|false|\d+|redacted-\w+)(?!{_PLAIN}))(?![\w-]+:(?:\s|$)){_PLAIN}{{4,}}"
_GIVEN = rf"\\?['\"]?[ \t]*[:=][ \t]*(?:[|>][+-]?[ \t]*)?(?:{_LINE}[ \t]+)?\[?\\?['\"]?"
"""What is between a name and its value: `: `, `=`, quotes, also a line break before an indented value."""

NAMED = re.compile(
    rf"((?:{OPENING})(?:{_GIVEN}|['\"],\s*(?=['\"])['\"])"
    rf"|(?:(?<![\w-])|(?<=\\[nrt]))--(?:[a-z0-9]+[-_])*(?:{OPENING}|token)(?:[\s=]|{_LINE})+(?!--)['\"]?"
    rf"|{_START}(?-i:[A-Z][A-Z0-9_]*(?:TOKEN|KEY|SECRET|PASSWORD|PASSWD))(?:{_GIVEN})"
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
