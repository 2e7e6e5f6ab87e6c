"""Made secrets of every kind, as tools print them; each seed gives others. None of them opens anything.

Prefixes are put together at run time, so that no file of the project has the form of a secret.
"""

import base64
import json
import string
from collections.abc import Callable
from random import Random
from typing import NamedTuple

ALNUM, HEX, LOWER = string.ascii_letters + string.digits, string.digits + "abcdef", string.ascii_lowercase
URL_SAFE = ALNUM + "-_"


class Secret(NamedTuple):
    """A secret, the text around it, and the parts that must not be left of it."""

    kind: str
    text: str
    parts: tuple[str, ...]


def some(random: Random, letters: str, length: int) -> str:
    return "".join(random.choice(letters) for _ in range(length))


def base64_of(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def prefixed(begin: str, letters: str, length: int) -> Callable[[Random], tuple[str, str]]:
    def make(random: Random) -> tuple[str, str]:
        secret = begin + some(random, letters, length)
        around = random.choice(
            ["using {}", "key {}, next", "env: X={}", '{{"k": "{}"}}', "<b>{}</b>", "?a={}&b=1", "'{}'"]
        )
        return secret, around.format(secret)

    return make


def password(random: Random) -> str:
    return some(random, ALNUM, random.randint(9, 24)) + str(random.randint(0, 9))


def named(*texts: str, value: Callable[[Random], str] = password) -> Callable[[Random], tuple[str, str]]:
    def make(random: Random) -> tuple[str, str]:
        secret = value(random)
        return secret, random.choice(texts).replace("@@", secret)

    return make


def basic(random: Random) -> str:
    return base64_of(f"user{random.randint(0, 99)}:{password(random)}")


def key_body(random: Random) -> str:
    return "\n".join(some(random, ALNUM + "+/", 64) for _ in range(random.randint(4, 60)))


def block(name: str) -> Callable[[Random], tuple[str, str]]:
    def make(random: Random) -> tuple[str, str]:
        body = key_body(random)
        return body.split("\n")[1], f"-----BEGIN {name}-----\n\n{body}\n-----END {name}-----"

    return make


def putty(random: Random) -> tuple[str, str]:
    body = key_body(random)
    head = "PuTTY-User-Key-" + f"File-3: ssh-ed25519\nEncryption: none\nPublic-Lines: 2\n{body}\nPrivate-Lines: 1"
    secret = some(random, ALNUM, 40)
    return secret, f"{head}\n{secret}\nPrivate-MAC: {some(random, HEX, 64)}"


def in_base64(random: Random) -> tuple[str, str]:
    inner = random.choice([HUB(random)[0], f"password={password(random)}", f"https://u:{password(random)}@h.org/x"])
    secret = base64_of(random.choice(["", "a=1\n"]) + inner)
    return secret, f"data: {{value: {secret}}}"


def wrapped_base64(random: Random) -> tuple[str, str]:
    whole = base64_of(block("RSA PRIVATE" + " KEY")(random)[1])
    lines = [whole[start : start + 76] for start in range(0, len(whole), 76)]
    return lines[2], "\n".join(lines)


def split(random: Random) -> tuple[str, str]:
    secret = random.choice([HUB, GROQ, NPM])(random)[0]
    at = random.randint(2, len(secret) - 4)
    brk = random.choice(["\n", "\\\n", "\n    ", "\r\n"])
    return max(secret[:at], secret[at:], key=len), f"got {secret[:at]}{brk}{secret[at:]} from the hub"


HUB, GROQ, NPM = prefixed("hf" + "_", ALNUM, 34), prefixed("gsk" + "_", ALNUM, 52), prefixed("npm" + "_", ALNUM, 36)
SLACK = "https://hooks.slack" + ".com/services/"
AT = ":/" + "/"
KINDS: dict[str, Callable[[Random], tuple[str, str]]] = {
    "Hugging Face": HUB,
    "Groq": GROQ,
    "npm": NPM,
    "Slack webhook": lambda r: (s := f"T{some(r, ALNUM, 8)}/B{some(r, ALNUM, 8)}/{some(r, ALNUM, 24)}", SLACK + s),
    "cookie": named(
        "Cookie: session=@@; theme=dark",
        "< set-cookie: sid=@@; Path=/; HttpOnly",
        "{'cookie': 'csrftoken=@@'}",
        "curl --cookie 'a=@@' http://h",
        "cookies={'session': '@@'}",
        ".h.org\tTRUE\t/\tTRUE\t1893456000\tsid\t@@",
    ),
    "netrc": named(
        "machine h.org login bob password @@",
        "machine h.org\n  login bob\n  password @@",
        "default login a password @@",
    ),
    "docker auth": named(
        '{"auths": {"https://index.docker.io/v1/": {"auth": "@@"}}}', '"auth": "@@"', "//r.org/:_auth=@@", value=basic
    ),
    "kubeconfig key": named(
        "client-key-data: @@", '"client-key-data": "@@"', value=lambda r: base64_of(block("EC PRIVATE" + " KEY")(r)[1])
    ),
    "PGP block": block("PGP PRIVATE" + " KEY BLOCK"),
    "private key": block("OPENSSH PRIVATE" + " KEY"),
    "PuTTY key": putty,
    "token:": named("token: @@", "token = '@@'", '"token": "@@"', "users:\n- user:\n    token: @@"),
    "pwd=": named("pwd=@@", "DB_PWD=@@", "Server=h;Uid=sa;Pwd=@@;", "password:\n  @@", "passwd: '@@'"),
    "base64": in_base64,
    "wrapped base64": wrapped_base64,
    "split lines": split,
    "URL": named(f"postgres{AT}bob:@@@db.org:5432/x", f"redis{AT}:@@@h:1", f"git+https{AT}o:@@@h.org/a.git"),
    "header": named("Authorization: Bearer @@", "authorization=Basic @@", "-H 'X-Api-Key: @@'", "Bearer @@aaaabbbb"),
    "option": named("serve --api-key @@ --port 1", "--hf-token=@@", "--token \\\n  @@", "curl -u bob:@@ http://h"),
    "variable": named("export WANDB_API_KEY=@@", "HF_TOKEN='@@' python", '"MY_SECRET": "@@"', "AccountKey=@@;b=1"),
}


def secrets(seed: int, count: int) -> list[Secret]:
    """That many secrets, all kinds alike."""
    random = Random(seed)
    names = list(KINDS) * (count // len(KINDS) + 1)
    made = []
    for kind in names[:count]:
        secret, text = KINDS[kind](random)
        made.append(Secret(kind, text, (secret,)))
    return made


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
