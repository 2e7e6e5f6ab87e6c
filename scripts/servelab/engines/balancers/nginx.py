"""nginx, from the PATH."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from servelab.engines.balancers import BALANCERS, Balancer

_CONFIGURATION = """\
daemon off;
pid nginx.pid;
error_log stderr;
worker_processes auto;
worker_rlimit_nofile 65536;
events {{ worker_connections 16384; }}
http {{
  access_log off;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  upstream servers {{
    zone servers 256k;
    least_conn;
{servers}
  }}
  server {{
    listen 127.0.0.1:{port} backlog=16384;
    client_max_body_size 0;
    client_body_buffer_size 16m;
    location / {{
      proxy_pass http://servers;
      proxy_http_version 1.1;
      proxy_buffering off;
      proxy_next_upstream off;
      proxy_read_timeout 1d;
    }}
  }}
}}
"""
"""Tokens are passed on as they come, and a failed request is not sent again: its failure is the configuration's."""


class Nginx(Balancer):
    """The server with the fewest connections."""

    name = "nginx"
    is_process = True
    image = "docker.io/library/nginx:1.28"

    def command(self, ports: tuple[int, int], servers: Sequence[int], folder: Path) -> list[str]:
        return ["nginx", "-p", str(folder), "-e", "stderr", "-c", "nginx.conf"]

    def files(self, ports: tuple[int, int], servers: Sequence[int], folder: Path) -> dict[str, str]:
        lines = "\n".join(f"    server 127.0.0.1:{each} max_fails=0;" for each in servers)
        return {"nginx.conf": _CONFIGURATION.format(servers=lines, port=ports[0])}

    def version_command(self) -> list[str]:
        return ["nginx", "-v"]


BALANCERS.register(Nginx.name, Nginx())
