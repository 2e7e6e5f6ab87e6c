"""Forms of credentials: prefixes that services give their tokens, and names before a value.

Sources: each service's own documentation, the rules of gitleaks (MIT) and of detect-secrets (Apache-2.0).
"""

from __future__ import annotations

import re

_WORD = r"(?:[\w-]|\\(?=_))"
"""A character of a token in base64url; Markdown puts a backslash before an underscore."""

PREFIXES = {
    # hubs and services of models
    "hf_": "[A-Za-z0-9]{16,}",
    "api_org_": "[A-Za-z0-9]{30,}",
    "sk-": f"{_WORD}{{20,}}",  # OpenAI, Anthropic, DeepSeek, OpenRouter, LiteLLM
    "gsk_": "[A-Za-z0-9]{20,}",  # Groq
    "xai-": "[A-Za-z0-9]{20,}",
    "r8_": "[A-Za-z0-9]{20,}",  # Replicate
    "nvapi-": f"{_WORD}{{20,}}",
    "pplx-": "[A-Za-z0-9]{20,}",
    "csk-": "[a-z0-9]{32,}",  # Cerebras
    "tgp_v1_": f"{_WORD}{{20,}}",
    "fw_": "[A-Za-z0-9]{20,}",
    "jina_": f"{_WORD}{{32,}}",
    "lsv2_(?:pt|sk)_": "[a-f0-9]{32}_[a-f0-9]{8,}",
    "wandb_v1_": f"{_WORD}{{20,}}",
    "pnu_": "[a-z0-9]{36}",  # Prefect
    # code, packages, images
    "gh[opsur]_": "[A-Za-z0-9]{20,}",
    "github_pat_": f"{_WORD}{{20,}}",
    "GR1348941": r"[\w-]{20,}",  # runners of GitLab
    "ATBB": "[A-Za-z0-9]{32}(?![A-Za-z0-9])",  # Bitbucket
    "ATATT3xFfGF0": f"{_WORD}{{40,}}",  # Atlassian
    "cio": "[A-Za-z0-9]{32}(?![A-Za-z0-9])",  # crates.io
    "CLOJARS_": "[a-z0-9]{60}",
    "AKCp": "[A-Za-z0-9]{50,}",  # Artifactory
    "cmVmdGtu": "[A-Za-z0-9]{50,}",
    "bkua_": "[a-z0-9]{40}",  # Buildkite
    "sgp_": "(?:[a-f0-9]{16}_|local_)?[a-f0-9]{40}",  # Sourcegraph
    "sq[apu]_": "[a-f0-9]{40}",  # SonarQube
    r"(?:pat|sat)\.": r"[\w-]{22}\.[a-f0-9]{24}\.[A-Za-z0-9]{20}",  # Harness
    "gl(?:pat|dt|rt|ptt|cbt|soat|agent|ft|imt|ffct)-": r"[\w.-]{16,}",
    "npm_": "[A-Za-z0-9]{30,}",
    "pypi-": f"{_WORD}{{50,}}",
    "rubygems_": "[a-f0-9]{40,}",
    "dckr_(?:pat|oat)_": f"{_WORD}{{20,}}",
    # clouds and stores
    "A[KS]IA": "[A-Z0-9]{16}(?![A-Za-z0-9])",
    "ABSK": "[A-Za-z0-9+/]{100,}={0,2}",  # Bedrock
    "AKLT": "[A-Za-z0-9]{40,}",  # Volcengine
    "HRKU-AA": r"[\w-]{50,}",  # Heroku
    "fo1_": r"[\w-]{43}",  # Fly
    "fm[12][ar]?_": r"[\w+/-]{100,}={0,3}",
    r"v1\.0-": "[a-f0-9]{100,}",  # Cloudflare
    r"atlasv1\.": r"[\w=-]{40,}",  # Terraform
    r"dp\.(?:audit|ct|pt|sa|scim|st)\.": r"[\w.-]{40,}",  # Doppler
    "ops_eyJ": r"[\w+/-]{100,}={0,3}",  # 1Password
    "ico-": "[A-Za-z0-9]{32}(?![A-Za-z0-9])",  # Infracost
    "pscale_(?:tkn|pw|oauth)_": r"[\w=.-]{32,}",
    "sbp_": "[a-f0-9]{40}",  # Supabase
    "napi_": "[a-z0-9]{60,}",  # Neon
    "tk-us-": r"[\w-]{48}",  # Scalingo
    "LTAI": "[A-Za-z0-9]{16,24}(?![A-Za-z0-9])",  # Alibaba Cloud
    "AKID": "[A-Za-z0-9]{32}(?![A-Za-z0-9])",  # Tencent Cloud
    "AIza": r"[\w-]{30,}",
    r"ya29\.": r"[\w.-]{20,}",
    "GOCSPX-": r"[\w-]{20,}",
    "do[opr]_v1_": "[a-f0-9]{40,}",
    "dapi": "[a-f0-9]{32}(?:-[0-9])?(?![A-Za-z0-9])",  # Databricks
    r"hv[bsr]\.": f"{_WORD}{{20,}}",  # HashiCorp Vault
    r"(?<!\.)s\.": "(?=[A-Za-z]*[0-9])(?=[a-z0-9]*[A-Z])[A-Za-z0-9]{24}(?![A-Za-z0-9])",  # its former tokens
    "tskey-[a-z]+-": f"{_WORD}{{16,}}",
    "pul-": "[a-f0-9]{40}",
    # messages, mail, payment
    "xox[abeoprs]-": f"{_WORD}{{10,}}",
    r"xapp-\d-": f"{_WORD}{{10,}}",
    r"SG\.": r"[\w-]{16,}\.[\w-]{16,}",
    "(?:sk|rk|pk)_(?:live|test|prod)_": "[A-Za-z0-9]{10,}",
    "whsec_": "[A-Za-z0-9+/=]{20,}",
    "SK": "[0-9a-f]{32}(?![A-Za-z0-9])",  # Twilio
    "(?<!-)key-": "[0-9a-f]{32}(?![A-Za-z0-9])",  # Mailgun
    "[0-9a-f]{32}-us": r"\d{1,2}(?!\w)",  # Mailchimp
    "xkeysib-": "[a-f0-9]{64}(?:-[A-Za-z0-9]+)?",
    r"[MNO][A-Za-z0-9]{23,25}\.": r"[\w-]{6}\.[\w-]{27,}",  # bots of Discord
    "EZ[AT]K": "[A-Za-z0-9]{54}",  # EasyPost
    "duffel_(?:live|test)_": r"[\w=-]{43}",
    "fio-u-": r"[\w=-]{64}",  # Frame.io
    "ntn_": "[A-Za-z0-9]{40,}",  # Notion
    r"pat[A-Za-z0-9]{14}\.": "[a-f0-9]{64}",  # Airtable
    "PMAK-": "[a-f0-9-]{50,}",  # Postman
    "figd_": r"[\w-]{38,}",
    "tfp_": r"[\w.-]{50,}",  # Typeform
    "CFPAT-": r"[\w-]{43}",  # Contentful
    "rdme_": "[a-z0-9]{70}",
    "shp(?:at|ca|pa|ss)_": "[a-fA-F0-9]{32}",
    "sq0(?:atp|csp|idp)-": r"[\w-]{20,}",
    "lin_(?:api|oauth)_": "[A-Za-z0-9]{32,}",
    # monitoring
    "glsa_": r"[A-Za-z0-9]{32}\\?_[A-Fa-f0-9]{8}",
    "glc_": "[A-Za-z0-9+/]{32,}={0,2}",
    "sntry[su]_": "[A-Za-z0-9+/=_-]{30,}",
    r"dt0[a-z]\d{2}\.": r"[A-Z0-9]{24}\.[A-Z0-9]{64}",  # Dynatrace
    "(?<!-)sdk-": "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",  # LaunchDarkly
    "NRAK-": "[A-Z0-9]{27}",
    # keys and signed tokens
    "AGE-SECRET-KEY-1": "[A-Z0-9]{58}",
    "eyJ": r"[\w-]{10,}\.[\w-]{10,}\.[\w-]*",
    r"\d{8,10}:AA": r"[\w-]{32,35}(?![\w-])",  # Telegram
}
"""What a token begins with (a pattern) → what follows (a pattern)."""

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
