"""Made secrets of every form and name, in what programs write. None of them opens anything.

A prefix is put together at run time, so that no file of the project has the form of a secret.
"""

import base64
import json
import string
from collections.abc import Callable
from random import Random
from re import _parser as parser
from typing import Any, NamedTuple

from servelab.core.credential_forms import PREFIXES

ALNUM, HEX = string.ascii_letters + string.digits, string.digits + "abcdef"
AT = ":/" + "/"


class Secret(NamedTuple):
    """A secret, and what names it in a file; nothing where its own form is enough."""

    kind: str
    secret: str
    named: tuple[str, ...]


def some(random: Random, letters: str, length: int) -> str:
    return "".join(random.choice(letters) for _ in range(length))


def base64_of(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def made_of(pattern: Any, random: Random) -> str:
    """A text that matches a pattern; what it asserts of its surroundings is left to the test."""
    text = ""
    for kind, value in pattern:
        if kind is parser.LITERAL:
            text += chr(value)
        elif kind is parser.IN:
            text += random.choice([letter for part in value for letter in letters_of(*part)])
        elif kind is parser.MAX_REPEAT:
            text += "".join(made_of(value[2], random) for _ in range(value[0]))
        elif kind is parser.SUBPATTERN:
            text += made_of(value[-1], random)
        elif kind is parser.BRANCH:
            text += made_of(random.choice(value[1]), random)
    return text


def letters_of(kind: Any, value: Any) -> str:
    if kind is parser.LITERAL:
        return chr(value)
    if kind is parser.RANGE:
        return "".join(map(chr, range(value[0], value[1] + 1)))
    return string.digits if value is parser.CATEGORY_DIGIT else ALNUM + "_"


def token(begin: str, random: Random) -> str:
    return made_of(parser.parse(begin + PREFIXES[begin].replace(r"|\\(?=_)", "")), random)


NAMED = {
    # what has no form of its own: the names that tools give it
    "AWS": (
        ALNUM + "+/",
        40,
        ("aws_secret_access_key", "AWS_SECRET_ACCESS_KEY", "SecretAccessKey", "AWS_SESSION_TOKEN"),
    ),
    "Azure": (ALNUM + "~._-", 40, ("AZURE_CLIENT_SECRET", "clientSecret", "client_secret", "AccountKey")),
    "Cohere": (ALNUM, 40, ("COHERE_API_KEY", "co_api_key", "api-key")),
    "Datadog": (HEX, 32, ("DD_API_KEY", "dd_api_key", "DD_APP_KEY", "DD-API-KEY")),
    "W&B": (HEX, 40, ("WANDB_API_KEY", "wandb_api_key")),
    "ModelScope": (ALNUM + "-", 36, ("MODELSCOPE_API_TOKEN", "modelscope_token", "KAGGLE_KEY")),
    "databases": (ALNUM, 18, ("MYSQL_PWD", "MYSQL_ROOT_PASSWORD", "db_password", "requirepass", "REDIS_PASSWORD")),
    "MinIO": (ALNUM, 40, ("MINIO_SECRET_KEY", "MINIO_ROOT_PASSWORD", "s3_secret_key")),
    "Django": (ALNUM + "!@#%^*", 50, ("SECRET_KEY",)),
    "sessions": (HEX, 48, ("session_secret", "cookie_secret", "JUPYTER_TOKEN", "RAY_AUTH_TOKEN")),
    "SSH": (ALNUM, 18, ("SSHPASS", "ssh_passphrase", "ansible_ssh_pass", "ansible_become_password")),
}


def secrets(seed: int) -> list[Secret]:
    """One of each kind."""
    random = Random(seed)
    # a value ends in a letter and a digit, so that no punctuation is cut off at its end
    named = [Secret(kind, some(random, *of[:2]) + "a7", of[2]) for kind, of in NAMED.items()]
    return [Secret(begin, token(begin, random), ()) for begin in PREFIXES] + named


def in_url(secret: str) -> str:
    """A password without what ends it in a URL."""
    return secret.replace("/", "_").replace("#", "_")


def left_of(secret: Secret, carrier: str, text: str) -> str:
    """What must not be left of a secret: its second half, as the carrier has it."""
    if carrier == "base64":
        return text[-24:-4]
    half = (in_url(secret.secret) if carrier == "URL" else secret.secret)[len(secret.secret) // 2 :]
    return json.dumps(half)[1:-1] if carrier.startswith("JSON") else half


def carried(made: Secret, random: Random) -> dict[str, str]:
    """A secret in what programs write: settings, logs, commands, wrapped, with other line ends."""
    secret = made.secret
    name = random.choice(made.named or ("SERVICE_TOKEN", "service_api_key"))
    bare = {
        "prefix of a logger": f"2026-11-24T10:00:00.123Z ERROR [worker-3] auth.py:88 - rejected {secret} (401)",
        "sentence": f"The server answered 401 for '{secret}'.",
        "path of a URL": f"GET https://api.example.org/v1/{secret}/models HTTP/1.1",
        "list in Python": f"argv = ['serve', '{secret}', '--port', '8000']",
        "header": f"> Authorization: Bearer {secret}",
        "option": f"curl -H 'Authorization: Token {secret}' https://h",
        "colours": f"\x1b[33mWARN\x1b[0m using \x1b[1m{secret}\x1b[0m",
    }
    own = {
        "environment": f"PATH=/usr/bin\n{name}={secret}\nHOME=/root",
        "export": f'export {name}="{secret}"; serve --port 8000',
        "Windows lines": f"[default]\r\n{name} = {secret}\r\nregion = eu\r\n",
        "JSON": json.dumps({"settings": {name: secret, "port": 8000}}),
        "JSON in JSON": json.dumps({"body": json.dumps({name: secret})}),
        "YAML": f"env:\n  - name: X\n    value: y\n{name}: {secret}\n",
        "repr": repr({name: secret, "model": "m"}),
        "keyword": f"Client({name.lower()}='{secret}', timeout=3)",
        "TOML": f'[service]\n{name} = "{secret}"\n',
        "docker run": f"docker run -e {name}={secret} --rm image",
        "URL": f"postgresql{AT}svc:{in_url(secret)}@db.example.org:5432/x",
        "base64": f"data: {base64_of(f'{name}={secret}')}",
        "traceback": f"    raise AuthError({name}={secret!r})\nAuthError: 401",
        "Kubernetes": f"- name: {name}\n  value: {secret}\n",
    }
    return own | ({} if made.named else bare)


def password(random: Random) -> str:
    return some(random, ALNUM, random.randint(9, 24)) + str(random.randint(0, 9))


def basic(random: Random) -> str:
    return base64_of(f"user{random.randint(0, 99)}:{password(random)}")


def block(name: str, random: Random) -> tuple[str, str]:
    body = "\n".join(some(random, ALNUM + "+/", 64) for _ in range(random.randint(4, 60)))
    return body.split("\n")[1], f"-----BEGIN {name}-----\n\n{body}\n-----END {name}-----"


def wrapped_base64(random: Random) -> tuple[str, str]:
    whole = base64_of(block("RSA PRIVATE" + " KEY", random)[1])
    lines = [whole[start : start + 76] for start in range(0, len(whole), 76)]
    return lines[2], "\n".join(lines)


def split(random: Random) -> tuple[str, str]:
    secret = token(random.choice(["hf_", "gsk_", "npm_"]), random)
    at = random.randint(2, len(secret) - 4)
    brk = random.choice(["\n", "\\\n", "\n    ", "\r\n"])
    return max(secret[:at], secret[at:], key=len), f"got {secret[:at]}{brk}{secret[at:]} from the hub"


def named(*texts: str, value: Callable[[Random], str] = password) -> Callable[[Random], tuple[str, str]]:
    def make(random: Random) -> tuple[str, str]:
        secret = value(random)
        return secret, random.choice(texts).replace("@@", secret)

    return make


KINDS: dict[str, Callable[[Random], tuple[str, str]]] = {
    "token": lambda random: (made := token(random.choice(list(PREFIXES)), random), f"key {made}, next"),
    "cookie": named(
        "Cookie: session=@@; theme=dark",
        "< set-cookie: sid=@@; Path=/; HttpOnly",
        "curl --cookie 'a=@@' http://h",
        "cookies={'session': '@@'}",
        ".h.org\tTRUE\t/\tTRUE\t1893456000\tsid\t@@",
    ),
    "netrc": named("machine h.org login bob password @@", "machine h.org\n  login bob\n  password @@"),
    "docker auth": named('{"auths": {"r.io": {"auth": "@@"}}}', '"auth": "@@"', "//r.org/:_auth=@@", value=basic),
    "PGP block": lambda random: block("PGP PRIVATE" + " KEY BLOCK", random),
    "private key": lambda random: block("OPENSSH PRIVATE" + " KEY", random),
    "token:": named("token: @@", "token = '@@'", '"token": "@@"', "users:\n- user:\n    token: @@"),
    "pwd=": named("pwd=@@", "DB_PWD=@@", "Server=h;Uid=sa;Pwd=@@;", "password:\n  @@", "passwd: '@@'"),
    "wrapped base64": wrapped_base64,
    "split lines": split,
    "URL": named(f"postgres{AT}bob:@@@db.org:5432/x", f"redis{AT}:@@@h:1", f"git+https{AT}o:@@@h.org/a.git"),
    "header": named("Authorization: Bearer @@", "authorization=Basic @@", "-H 'X-Api-Key: @@'", "Bearer @@aaaabbbb"),
    "option": named("serve --api-key @@ --port 1", "--hf-token=@@", "--token \\\n  @@", "curl -u bob:@@ http://h"),
    "variable": named("export WANDB_API_KEY=@@", "HF_TOKEN='@@' python", '"MY_SECRET": "@@"', "AccountKey=@@;b=1"),
}
"""Kind → a secret, or a part that must not be left of it, and the text around it."""


def carriers(text: str) -> dict[str, str]:
    """The text as the files of an archive may have it, by name."""
    lines = "INFO 12:00:01 started on port 8000\n{}\nINFO 12:00:02 ready\n"
    return {
        "server.log": lines.format(text),
        "indented.log": lines.format("\n".join(f"    {line}" for line in text.split("\n"))),
        "manifest.json": json.dumps({"command": ["a", text], "n": 1.5}, indent=2),
        "escaped.log": lines.format(json.dumps({"message": f"x\n{text}\ny"})),
        "report.md": f"| a | b |\n\n{text}\n",
    }
