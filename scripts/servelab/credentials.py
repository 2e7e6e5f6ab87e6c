"""Credentials: told by the name they stand under and by their form, so that they get into no log, study or archive."""

from __future__ import annotations

import re

REDACTED = "redacted-secret"

_SECRET_VARIABLE = re.compile(r"(?:^|_)\w*(?:TOKEN|KEY|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
_OPENING = (
    r"(?:api|access|account|admin|auth|bearer|client|encryption|hf|hub|private|refresh|secret|session|signing)"
    r"[-_]?(?:key|token|secret)|password|passwd|passphrase"
)
_SECRET_NAME = re.compile(rf"-{{0,2}}(?:(?:\w*[-_.])?(?:{_OPENING})|secret|token)", re.IGNORECASE)
_NO_SECRET = re.compile(r"|none|null|true|false|on|off|auto|[-+\d.e]+|\*+|redacted-\w+|<[^>]*>", re.IGNORECASE)

_VALUE = r"(?!(?:none|null|true|false|\d+|redacted-\w+)(?![^\s'\",;&()\[\]{}<>]))[^\s'\",;&()\[\]{}<>]{4,}"
_TOKENS = re.compile(
    r"(?<![A-Za-z0-9_])(?:hf\\?_[A-Za-z0-9]{16,}|gh[opsur]\\?_[A-Za-z0-9]{20,}|github\\?_pat\\?_[\w\\]{20,}|glpat-[\w-]{16,}"
    r"|sk-[\w-]{20,}|nvapi-[\w-]{20,}|pypi-[\w-]{50,}|xox[abprs]-[\w-]{10,}|A[KS]IA[A-Z0-9]{16}(?![A-Za-z0-9])"
    r"|AIza[\w-]{30,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*)"
)
_URL = re.compile(r"(?<![A-Za-z0-9])([a-z][a-z0-9+.-]*://)(?!redacted-secret@)[^\s/@'\"<>{}$]+@", re.IGNORECASE)
_QUERY = re.compile(
    rf"([?&](?:{_OPENING}|token|key|sig|signature|X-Amz-(?:Credential|Signature|Security-Token))=){_VALUE}",
    re.IGNORECASE,
)
_HEADER = re.compile(
    r"(authorization['\"]?\s*[:=,]\s*['\"]?(?:[a-z]+\s+)?|\bbearer\s+(?=\S{16}))(?!redacted-secret)[\w.~+/=-]{8,}",
    re.IGNORECASE,
)
_NAMED = re.compile(
    rf"((?<![A-Za-z0-9])(?:[A-Za-z0-9]+[-_])*(?:{_OPENING})['\"]?(?:\s*[:=]\s*|,\s*(?=['\"]))\[?['\"]?"
    rf"|--(?:[a-z0-9]+[-_])*(?:{_OPENING}|token)[\s=]+['\"]?"
    r"|(?<![A-Za-z0-9])(?-i:[A-Z][A-Z0-9_]*(?:TOKEN|KEY|SECRET|PASSWORD|PASSWD))['\"]?\s*[:=]\s*['\"]?)"
    rf"{_VALUE}",
    re.IGNORECASE,
)
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)


def is_secret(name: str, value: object) -> bool:
    """Whether a variable, option or key of this name and value holds a credential; numbers and switches never do."""
    if not isinstance(value, str) or _NO_SECRET.fullmatch(value):
        return False
    return bool(_SECRET_VARIABLE.search(name) if name.isupper() else _SECRET_NAME.fullmatch(name))


def has_credential(text: str) -> bool:
    """Whether a credential is in a text, told by its form alone: a token, a private key, a URL with a password."""
    return bool(_TOKENS.search(text) or _URL.search(text) or _PRIVATE_KEY.search(text))


def without_credentials(text: str) -> str:
    """A text with every credential in it replaced that can be told by its form, or by the name before it."""
    for pattern in (_PRIVATE_KEY, _TOKENS):
        text = pattern.sub(REDACTED, text)
    text = _URL.sub(rf"\1{REDACTED}@", text)
    for pattern in (_QUERY, _HEADER, _NAMED):
        text = pattern.sub(rf"\1{REDACTED}", text)
    return text
