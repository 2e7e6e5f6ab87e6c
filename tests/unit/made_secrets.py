"""Made secrets of every form and name, in what programs write. None of them opens anything.

A prefix is put together at run time, so that no file of the project has the form of a secret.
"""

import base64
import json
import string
from collections.abc import Callable
from random import Random
from re import _parser as parser
from typing import Any

from servelab.core.credentials import PREFIXES

ALNUM, HEX = string.ascii_letters + string.digits, string.digits + "abcdef"
AT = ":/" + "/"


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
