"""A registry on the loopback with one image, which holds nothing but the places to mount the host's programs at."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _layer() -> bytes:
    """Folders, and the links by which `/bin/sh` and the loader are found in `/usr`."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name in ("usr", "etc", "tmp", "proc", "sys", "dev", "run"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            archive.addfile(folder)
        for name in ("bin", "sbin", "lib", "lib64"):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
            archive.addfile(link)
    return written.getvalue()


def _image() -> tuple[str, dict[str, bytes]]:
    """Digest of the manifest, and all content by digest."""
    layer = _layer()
    packed = gzip.compress(layer, mtime=0)
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    about = {"architecture": architecture, "os": "linux", "config": {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"]}}
    config = json.dumps({**about, "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]}}).encode()

    def described(kind: str, content: bytes) -> dict[str, object]:
        return {"mediaType": f"application/vnd.docker.{kind}", "size": len(content), "digest": _digest(content)}

    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": described("container.image.v1+json", config),
            "layers": [described("image.rootfs.diff.tar.gzip", packed)],
        }
    ).encode()
    return _digest(manifest), {_digest(content): content for content in (packed, config, manifest)}


@contextmanager
def registry() -> Iterator[tuple[str, str]]:
    """While it runs: its address, and the image's name with its digest."""
    digest, content = _image()

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.path.rpartition("/")[2]
            found = b"{}" if self.path == "/v2/" else content.get(wanted)
            body = found or b"{}"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", _MANIFEST if "/manifests/" in self.path else "application/octet-stream")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Docker-Content-Digest", wanted)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        address = f"localhost:{server.server_address[1]}"
        yield address, f"{address}/servelab/test@{digest}"
        server.shutdown()
        thread.join()
