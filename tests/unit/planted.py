"""What is planted where it must not be archived, in every form that it may have, and what only looks like it."""

import json

# put together here, so that no file of the project holds anything of such a form
HUB = "hf_" + "AbCdEfGh" * 4
GIT = "ghp_" + "a1B2c3D4" * 5
OPENAI = "sk-" + "proj-Zz9" * 5
AWS = "AKIA" + "Q1W2E3R4T5Y6U7I8"
WEB = "eyJ" + "hbGciOiJIUzI1NiJ9" + ".eyJ" + "zdWIiOiIxMjM" + ".c2lnbmF0dXJl"
PASSWORD, ODD = "correct-horse-battery", 'p"<w>&/%ö staple'
KEY = "-----BEGIN RSA PRIVATE " + "KEY-----\nMIIEowIBAAKCAQEA\nq83vEjRWeJA=\n-----END RSA PRIVATE " + "KEY-----"
USER, HOST, DOMAIN = "aliceliddell", "gpu07", "cluster.wonder.example"
HOME, PROJECT = f"/home/{USER}", f"/home/{USER}/lab/serving"
PROXY_HOST = "proxy.wonder.example"
ENVIRONMENT = {
    "HF_TOKEN": HUB,
    "MY_API_KEY": PASSWORD,
    "DB_PASSWORD": ODD,
    "SERVICE_SECRET": "first line of a secret\nsecond line of a secret",
    "https_proxy": f"http://{USER}:{PASSWORD}@{PROXY_HOST}:3128",
    "NO_PROXY": "localhost,127.0.0.1,.wonder.example,10.0.0.0/8",
    "TOKENIZERS_PARALLELISM": "false",
    "KEYBOARD": "english",
    "CACHE_KEY": "12345678901",
    "SHORT_TOKEN": "token",
    "SSH_KEY": f"{HOME}/.ssh/id_ed25519",
    "HOME": HOME,
    "USER": USER,
}


TEXTS = {
    "a token as it is": (f"token {HUB}.", "token redacted-secret."),
    "a token of the environment in JSON": (json.dumps({"a": ODD}), '{"a": "redacted-secret"}'),
    "a token of the environment in HTML": ("<b>p&quot;&lt;w&gt;&amp;/%ö staple</b>", "<b>redacted-secret</b>"),
    "a token of the environment in a URL": ("?p=p%22%3Cw%3E%26%2F%25%C3%B6%20staple", "?p=redacted-secret"),
    "a line of a secret": ("x second line of a secret y", "x redacted-secret y"),
    "a token in Markdown": (f"| {HUB} |".replace("_", r"\_"), "| redacted-secret |"),
    "a URL with a password": ("https://bob:" + "s3cr3t@host.org/x", "https://redacted-secret@host.org/x"),
    "a signed URL": ("GET /a?X-Amz-Signature=0a1b2c3d4e&x=1", "GET /a?X-Amz-Signature=redacted-secret&x=1"),
    "a proxy": (f"via http://{PROXY_HOST}:3128 now", "via http://redacted-proxy now"),
    "a proxy's variable": ("HTTPS_PROXY=http://p.org:3128 x", "HTTPS_PROXY=redacted-proxy x"),
    "a proxy's host": (f"{PROXY_HOST} refused", "redacted-host refused"),
    "a domain without proxy": ("db.wonder.example", "db.redacted-host"),
    "the project": (f"{PROJECT}/results/runs", "/redacted-project/results/runs"),
    "the project as URL": (f"file://{PROJECT}/report.html", "file:///redacted-project/report.html"),
    "another checkout": (
        "/data/x/y/results/envs/a/bin/python '/z/scripts/servelab/a.py'",
        "/redacted-project/results/envs/a/bin/python '/redacted-project/scripts/servelab/a.py'",
    ),
    "home": (f"{HOME}/.cache/x", "/redacted-home/.cache/x"),
    "home alone": (f"HOME={HOME}", "HOME=/redacted-home"),
    "another's home": ("/home/hatter/x /Users/hare/y /root/z", "/redacted-home/x /redacted-home/y /root/z"),
    "a user": (f"owned by {USER}, {USER}'s group", "owned by redacted-user, redacted-user's group"),
    "a user in a path": (f"/scratch/{USER}/job_{USER}_1", "/scratch/redacted-user/job_redacted-user_1"),
    "a host in full": (f"node {HOST}.{DOMAIN}:80", "node redacted-host:80"),
    "a host": (f"[{HOST}] started", "[redacted-host] started"),
    "another host's first part": (f"{HOST}1", f"{HOST}1"),
    "another node of the runs": ("srun: nid004711", "srun: redacted-host"),
    "an address": ("tcp://10.1.2.3:5000, 10.1.2.34", "tcp://redacted-address:5000, 10.1.2.34"),
    "an address of six": ("[fe80::1:2ff:fe03:405]:1", "[redacted-address]:1"),
}
ORDINARY = [
    "---------------Inter-token Latency----------------",
    "-----Time per Output Token (excl. 1st token)------ token: 1.25ms, PWD=/usr/bin, pwd: ~, pass: forward",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
    "cookie-cutter, cookies: none; auth: disabled, login as user, the password of a user",
    "dapi0 data sk-learn sk_metrics hvs.x SG.1.2 npm_config_cache r8_x gsk ya29",
    "bos_token='<|begin|>', eos_token_id=2, pad_token: '</s>', tokens=128, max_tokens: 4096",
    "EOS token = 2 '<|im_end|>', image_token=<image>, token 17, per-token latency, tokenizer=auto",
    "no API key is set and CORS allows all origins",
    "{'api_key': None, 'hf_token': None, 'ssl_keyfile': None, 'password': None}",
    "--max-num-seqs 8 --key-value-cache fp8 --kv-cache-dtype auto; cache key: 12",
    "sha256:0b1d3a5c7e9f0b1d3a5c7e9f0b1d3a5c7e9f0b1d3a5c7e9f0b1d3a5c7e9f0b1d",
    "listening on http://127.0.0.1:8000, host='0.0.0.0', server: localhost, host: localhost",
    "user, user=root, the user's host, hosted; {'role': 'user'}; useradd; as root",
    "version 12.8.4.1, driver 580.95.05, 3.11.7, 10.0.0, ::, 12:34:56",
    "git@github.com:owner/name.git, mail to a@b.example, https://huggingface.co/owner/name@main",
    "/usr/lib/python3/site-packages/x.py, ~/.cache, /rooted/x, /homepage/x, a/home/b, ./root/x",
    "Authorization, bearer of news, basic authorization was refused; secret, passwords, a secretary",
    "false english token 12345678901",
    "results/runs/a, ../../results/runs/a, a/b/results/models/x, ./results/envs/y, /opt/results, my-results/runs/",
]
