"""A second set of made secrets, by formats that services and public scanners document, in carriers of its own.

What the rules missed of it at first was added to them. Prefixes are put together at run time, so that no file of the
project has the form of a secret. None of them opens anything.
"""

import base64
import json
import string
from random import Random
from typing import NamedTuple

ALNUM, HEX, DIGITS = string.ascii_letters + string.digits, string.digits + "abcdef", string.digits
UPPER, LOWER = string.ascii_uppercase + string.digits, string.ascii_lowercase + string.digits
BASE32 = "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"
PREFIXED: dict[str, tuple[tuple[str, str], str, int]] = {
    # service: the two halves of its prefix, the letters that follow, and how many
    "Anthropic": (("sk-an", "t-api03-"), ALNUM + "-_", 93),
    "OpenAI service account": (("sk-svc", "acct-"), ALNUM + "-_", 120),
    "OpenRouter": (("sk-o", "r-v1-"), HEX, 64),
    "Hugging Face organisation": (("api_", "org_"), ALNUM, 34),
    "NVIDIA": (("nva", "pi-"), ALNUM + "-_", 64),
    "Perplexity": (("ppl", "x-"), ALNUM, 48),
    "GitHub fine-grained": (("github_", "pat_11"), ALNUM, 80),
    "GitHub server": (("gh", "s_"), ALNUM, 36),
    "GitLab": (("glp", "at-"), ALNUM + "-_", 20),
    "GitLab trigger": (("glp", "tt-"), HEX, 40),
    "GitLab runner": (("GR13", "48941"), ALNUM + "-_", 20),
    "Bitbucket": (("ATB", "B"), ALNUM, 32),
    "Atlassian": (("ATAT", "T3xFfGF0"), ALNUM + "-_", 180),
    "PyPI": (("pypi-AgEI", "cHlwaS5vcmc"), ALNUM + "-_", 100),
    "Docker Hub": (("dckr_", "pat_"), ALNUM + "-_", 27),
    "AWS temporary": (("AS", "IA"), UPPER, 16),
    "Bedrock": (("ABS", "K"), ALNUM, 128),
    "Google key": (("AI", "za"), ALNUM + "-_", 35),
    "Google client": (("GOC", "SPX-"), ALNUM + "-_", 28),
    "DigitalOcean": (("dop_", "v1_"), HEX, 64),
    "Heroku": (("HRKU-", "AA"), ALNUM + "-_", 58),
    "Fly": (("fo1_", ""), ALNUM + "-_", 43),
    "Fly v2": (("FlyV1 fm", "2_"), ALNUM + "+/", 200),
    "Cloudflare origin": (("v1.0-", ""), HEX, 160),
    "Terraform": (("", ""), "", 0),
    "Pulumi": (("pu", "l-"), HEX, 40),
    "Doppler": (("dp.", "pt."), ALNUM, 43),
    "1Password": (("ops_", "eyJ"), ALNUM + "+/", 260),
    "Infracost": (("ic", "o-"), ALNUM, 32),
    "Prefect": (("pn", "u_"), LOWER, 36),
    "PlanetScale": (("pscale_", "tkn_"), ALNUM + "-_", 43),
    "Supabase": (("sb", "p_"), HEX, 40),
    "Neon": (("na", "pi_"), LOWER, 64),
    "Notion": (("ntn_", ""), ALNUM, 46),
    "Linear": (("lin_", "api_"), ALNUM, 40),
    "Airtable": (("", ""), "", 0),
    "Postman": (("PM", "AK-"), HEX, 59),
    "Figma": (("fig", "d_"), ALNUM + "-_", 40),
    "Shopify": (("shp", "at_"), HEX, 32),
    "Stripe restricted": (("rk_", "live_"), ALNUM, 60),
    "Square": (("sq0", "atp-"), ALNUM + "-_", 22),
    "Mailgun": (("ke", "y-"), HEX, 32),
    "Mailchimp": (("", ""), "", 0),
    "Twilio": (("S", "K"), HEX, 32),
    "Sendinblue": (("xkey", "sib-"), HEX, 64),
    "Slack user": (("xo", "xp-"), DIGITS + "-", 72),
    "Slack app": (("xap", "p-1-A"), UPPER + "-", 80),
    "Discord": (("", ""), "", 0),
    "Telegram": (("", ""), "", 0),
    "New Relic": (("NR", "AK-"), UPPER, 27),
    "Grafana": (("gl", "c_eyJ"), ALNUM + "+/", 80),
    "Grafana service": (("", ""), "", 0),
    "Sentry organisation": (("sntr", "ys_eyJ"), ALNUM + "+/", 120),
    "Dynatrace": (("", ""), "", 0),
    "LaunchDarkly": (("", ""), "", 0),
    "Weights and Biases": (("wandb_", "v1_"), ALNUM + "_", 60),
    "LangSmith": (("", ""), "", 0),
    "Artifactory": (("AK", "Cp"), ALNUM, 69),
    "Artifactory reference": (("cmVm", "dGtu"), ALNUM, 56),
    "Clojars": (("CLOJ", "ARS_"), LOWER, 60),
    "crates.io": (("ci", "o"), ALNUM, 32),
    "RubyGems": (("ruby", "gems_"), HEX, 48),
    "age": (("AGE-SECRET-", "KEY-1"), BASE32, 58),
    "Tailscale": (("tskey-", "auth-k"), ALNUM, 40),
    "Typeform": (("tf", "p_"), ALNUM + "-_.", 59),
    "Vault batch": (("hv", "b."), ALNUM + "-_", 140),
    "Vault old": (("s", "."), ALNUM, 24),
    "Alibaba": (("LT", "AI"), ALNUM, 20),
    "Volcengine": (("AK", "LT"), ALNUM, 43),
    "ReadMe": (("rd", "me_"), LOWER, 70),
    "EasyPost": (("EZ", "AK"), ALNUM, 54),
    "Contentful": (("CF", "PAT-"), ALNUM + "-_", 43),
    "Duffel": (("duffel_", "live_"), ALNUM + "-_", 43),
    "Frame.io": (("fi", "o-u-"), ALNUM + "-_", 64),
    "Scalingo": (("tk-", "us-"), ALNUM + "-_", 48),
    "Harness": (("", ""), "", 0),
    "Sourcegraph": (("sg", "p_"), HEX, 40),
    "Buildkite": (("bku", "a_"), LOWER, 40),
    "SonarQube": (("sq", "u_"), HEX, 40),
    "Cohere": (("", ""), "", 0),
}
AT = ":/" + "/"


class Foreign(NamedTuple):
    """A secret by its service, and the part that must not be left."""

    kind: str
    secret: str
    named: tuple[str, ...]
    """What names it in a file; empty if its own form is enough."""


def some(random: Random, letters: str, length: int) -> str:
    return "".join(random.choice(letters) for _ in range(length))


def shaped(random: Random) -> dict[str, str]:
    """Formats that are more than a prefix."""
    a = lambda letters, length: some(random, letters, length)  # noqa: E731
    return {
        "Terraform": f"{a(ALNUM, 14)}.atlas" + f"v1.{a(ALNUM, 64)}",
        "Airtable": "pa" + f"t{a(ALNUM, 14)}.{a(HEX, 64)}",
        "Harness": "pa" + f"t.{a(ALNUM, 22)}.{a(HEX, 24)}.{a(ALNUM, 20)}",
        "Mailchimp": a(HEX, 32) + "-us" + "12",
        "Discord": "M" + f"{a(ALNUM, 23)}.{a(ALNUM, 6)}.{a(ALNUM, 27)}",
        "Telegram": f"{a('123456789', 9)}:" + f"AA{a(ALNUM, 33)}",
        "Grafana service": "gl" + f"sa_{a(ALNUM, 32)}_{a(HEX, 8)}",
        "Dynatrace": "dt0" + f"c01.{a(UPPER, 24)}.{a(UPPER, 64)}",
        "LaunchDarkly": "sd" + f"k-{a(HEX, 8)}-{a(HEX, 4)}-{a(HEX, 4)}-{a(HEX, 4)}-{a(HEX, 12)}",
        "LangSmith": "lsv2" + f"_pt_{a(HEX, 32)}_{a(HEX, 10)}",
    }


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
    forms = shaped(random)
    made = [
        Foreign(kind, forms.get(kind) or "".join(begin) + some(random, letters, length), ())
        for kind, (begin, letters, length) in PREFIXED.items()
        if kind in forms or length
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
