"""Made secrets of every form and name that services give, as programs write them. None of them opens anything."""

import base64
import json
import string
from random import Random
from re import _parser as parser
from typing import Any, NamedTuple

from servelab.core.credential_forms import PREFIXES

ALNUM, HEX = string.ascii_letters + string.digits, string.digits + "abcdef"
AT = ":/" + "/"


class Foreign(NamedTuple):
    """A secret by its service, and the part that must not be left."""

    kind: str
    secret: str
    named: tuple[str, ...]
    """What names it in a file; empty if its own form is enough."""


def some(random: Random, letters: str, length: int) -> str:
    return "".join(random.choice(letters) for _ in range(length))


def made_of(pattern: Any, random: Random) -> str:
    """A text that matches a pattern; what it asserts of its surroundings is left to the test."""
    text = ""
    for kind, value in pattern:
        if kind is parser.LITERAL:
            text += chr(value)
        elif kind is parser.IN:
            text += random.choice([letter for part in value for letter in letters_of(*part)])
        elif kind is parser.MAX_REPEAT:
            least, _, inner = value
            text += "".join(made_of(inner, random) for _ in range(least))
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


NAMED = {
    # what has no form of its own: the names that tools give it
    "AWS secret key": (ALNUM + "+/", 40, ("aws_secret_access_key", "AWS_SECRET_ACCESS_KEY", "SecretAccessKey")),
    "AWS session": (ALNUM + "+/", 200, ("aws_session_token", "AWS_SESSION_TOKEN", "SessionToken")),
    "Azure client": (ALNUM + "~._-", 40, ("AZURE_CLIENT_SECRET", "clientSecret", "client_secret")),
    "Azure storage": (ALNUM + "+/", 86, ("AccountKey", "AZURE_STORAGE_KEY")),
    "Cohere": (ALNUM, 40, ("COHERE_API_KEY", "co_api_key", "api-key")),
    "Datadog": (HEX, 32, ("DD_API_KEY", "dd_api_key", "DD_APP_KEY", "DD-API-KEY")),
    "W&B": (HEX, 40, ("WANDB_API_KEY", "wandb_api_key")),
    "Kaggle": (HEX, 32, ("KAGGLE_KEY",)),
    "ModelScope": (ALNUM + "-", 36, ("MODELSCOPE_API_TOKEN", "modelscope_token")),
    "MySQL": (ALNUM, 16, ("MYSQL_PWD", "MYSQL_ROOT_PASSWORD", "db_password")),
    "Redis": (ALNUM, 20, ("requirepass", "REDIS_PASSWORD")),
    "MinIO": (ALNUM, 40, ("MINIO_SECRET_KEY", "MINIO_ROOT_PASSWORD", "s3_secret_key")),
    "Django": (ALNUM + "!@#%^*", 50, ("SECRET_KEY",)),
    "Flask": (HEX, 64, ("session_secret", "cookie_secret")),
    "Jupyter": (HEX, 48, ("JUPYTER_TOKEN",)),
    "Comet": (ALNUM, 25, ("COMET_API_KEY", "comet_api_key")),
    "Ray": (ALNUM, 32, ("RAY_AUTH_TOKEN",)),
    "SSH": (ALNUM, 20, ("SSHPASS", "ssh_passphrase")),
    "Ansible": (ALNUM, 18, ("ansible_ssh_pass", "ansible_become_password")),
}


def foreign_secrets(seed: int) -> list[Foreign]:
    """One of each kind."""
    random = Random(seed)
    made = [
        Foreign(begin, made_of(parser.parse(begin + rest.replace(r"|\\(?=_)", "")), random), ())
        for begin, rest in PREFIXES.items()
    ]
    # a value ends in a letter and a digit, so that no punctuation is cut off at its end
    named = [
        Foreign(kind, some(random, letters, length - 2) + "a7", names)
        for kind, (letters, length, names) in NAMED.items()
    ]
    return made + named


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def in_url(secret: str) -> str:
    """A password without what ends it in a URL."""
    return secret.replace("/", "_").replace("#", "_")


def left_of(foreign: Foreign, carrier: str, text: str) -> str:
    """What must not be left of a secret: its second half, as the carrier has it."""
    if carrier == "base64":
        return text[-24:-4]
    half = (in_url(foreign.secret) if carrier == "URL" else foreign.secret)[len(foreign.secret) // 2 :]
    return json.dumps(half)[1:-1] if carrier.startswith("JSON") else half


def carried(foreign: Foreign, random: Random) -> dict[str, str]:
    """A secret in what programs write: settings, logs, commands, wrapped, with other line ends."""
    secret = foreign.secret
    name = random.choice(foreign.named or ("SERVICE_TOKEN", "service_api_key"))
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
        "YAML quoted": f"settings:\n  {name}: '{secret}'\n  other: 1\n",
        "repr": repr({name: secret, "model": "m"}),
        "keyword": f"Client({name.lower()}='{secret}', timeout=3)",
        "TOML": f'[service]\n{name} = "{secret}"\n',
        "Dockerfile": f"ENV {name}={secret}",
        "docker run": f"docker run -e {name}={secret} --rm image",
        "URL": f"postgresql{AT}svc:{in_url(secret)}@db.example.org:5432/x",
        "base64": f"data: {in_base64(f'{name}={secret}')}",
        "traceback": f"    raise AuthError({name}={secret!r})\nAuthError: 401",
        "Kubernetes": f"- name: {name}\n  value: {secret}\n",
    }
    return own | ({} if foreign.named else bare)
