"""Answers on loopback in zenodo.org's place, as a proxy that ends the encryption itself: one deposit without files."""

import json
import ssl
import subprocess
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DEPOSIT = "1234567"


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_CONNECT(self):
        self.send_response(200)
        self.end_headers()
        self.server.asked.append(f"CONNECT {self.path}")
        self.connection = self.server.encryption.wrap_socket(self.connection, server_side=True)
        self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb", 0)
        self.close_connection = False

    def do_GET(self):
        self.server.asked.append(f"GET {self.path}")
        self.server.tokens.add(self.headers.get("Authorization"))
        found = self.path == f"/api/deposit/depositions/{DEPOSIT}/files"
        content = json.dumps([] if found else {"message": "not found"}).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_PUT(self):
        self.server.asked.append(f"{self.command} {self.path}")
        self.send_error(405)

    do_POST = do_DELETE = do_PUT  # noqa: N815

    def log_message(self, *_):
        pass


@contextmanager
def zenodo(folder):
    """The stand-in while it runs: `asked` of it, `tokens` it was shown, and `variables` that lead to it."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=zenodo.org"]
    names = ["-addext", "subjectAltName=DNS:zenodo.org", "-keyout", key, "-out", certificate]
    subprocess.run([*make, *names], check=True, capture_output=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    server.encryption = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.encryption.load_cert_chain(certificate, key)
    server.asked, server.tokens = [], set()
    address = f"http://127.0.0.1:{server.server_port}"
    server.variables = {"HTTPS_PROXY": address, "https_proxy": address, "REQUESTS_CA_BUNDLE": str(certificate)}
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
