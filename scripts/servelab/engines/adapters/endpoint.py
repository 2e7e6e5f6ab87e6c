"""A server that already runs, reached by its address: nothing is started, and nothing is ended."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from servelab.core.errors import ConfigError
from servelab.core.registry import nearest
from servelab.core.run_spec import ArgumentValue
from servelab.engines.adapters import ENGINES, Engine
from servelab.engines.endpoint import NOT_KNOWN, Address, api_url, check_key, checked_url
from servelab.engines.options import Owned, Parallel
from servelab.engines.server_to_start import Options, Serve

_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_ARGUMENTS = ("url", "model", "api-key-env", "header-env", "key-over-http", "insecure", "state", "request-fields")


class Endpoint(Engine):
    """Any server with OpenAI's API. Its arguments say where it is; its options and variables are its own."""

    name = "endpoint"
    port_flag = None
    packages = ()
    model_formats = ("safetensors", "gguf")
    option_flags: ClassVar = {}
    already_runs = True
    checks_arguments = True
    owned = (Owned("the server already runs, and its variables are its own", variables=("*",)),)
    answer_settings = ("url", "model", "state", "request-fields")
    log_prefix: ClassVar = re.compile(r"")

    def command(self, serve: Serve) -> list[str]:
        """Where it is and what it is asked for; nothing starts this. `ConfigError` for wrong arguments."""
        self.flags(serve.options, serve.arguments)
        address = self.address(serve.arguments)
        named = {**serve.arguments, "url": address.url, "request-fields": json.dumps(self.body(serve.arguments))}
        return [self.name, *(f"{name}={value}" for name, value in sorted(named.items()) if value is not False)]

    def address(self, arguments: Mapping[str, ArgumentValue]) -> Address:
        if unknown := next((name for name in arguments if name not in _ARGUMENTS), None):
            raise ConfigError(f"engine {self.name} has no argument `{unknown}`{nearest(unknown, list(_ARGUMENTS))}")
        given = {name: str(value) for name, value in arguments.items() if value not in (None, False, "")}
        if "url" not in given:
            raise ConfigError(f"engine {self.name} needs the argument `url`: `{{url: http://host:port}}`")
        variable = given.get("api-key-env")
        headers = self._object("header-env", given.get("header-env"))
        for name in (variable, *headers.values()):
            if name is not None and not _VARIABLE.fullmatch(str(name)):
                raise ConfigError(
                    f"engine {self.name}: `api-key-env` and `header-env` take names of variables, never the key itself"
                )
        url = checked_url(given["url"])
        for name in (variable, *headers.values()):
            check_key(url, name, arguments.get("key-over-http") is True, "`key-over-http: true`")
        return Address(url, given.get("model"), variable, headers, insecure=arguments.get("insecure") is True)

    def _object(self, name: str, text: ArgumentValue) -> dict[str, Any]:
        try:
            fields = json.loads(str(text or "{}"))
        except ValueError:
            fields = None
        if not isinstance(fields, dict):
            raise ConfigError(
                f"engine {self.name}: `{name}` takes a JSON object as text, as in '{{\"cache_prompt\": false}}'"
            )
        return fields

    def body(self, arguments: Mapping[str, ArgumentValue]) -> dict[str, Any]:
        """See `Engine.body`; `request-fields` adds fields, and removes those that it sets to null."""
        fields = self._object("request-fields", arguments.get("request-fields"))
        return {name: value for name, value in {**self.request_body, **fields}.items() if value is not None}

    def parallel(self, options: Options, arguments: Mapping[str, ArgumentValue], count: int) -> Parallel:
        """See `Engine.parallel`; how it uses them is not known, and it uses all that the study says."""
        return Parallel(data=count)

    def version_command(self, python: Path) -> list[str]:
        """See `Engine.version_command`; what a server says of itself is in each run's manifest."""
        return [str(python), "-c", f"print('{NOT_KNOWN}')"]

    def display_command(
        self,
        model_id: str,
        options: Options,
        arguments: Mapping[str, ArgumentValue],
        environment_variables: Mapping[str, str],
        **more: Any,
    ) -> str:
        """A command that asks it for its models: there is none that starts it."""
        address = self.address(arguments)
        key = f' --header "Authorization: Bearer ${address.key_variable}"' if address.key_variable else ""
        key += "".join(f' --header "{name}: ${variable}"' for name, variable in address.header_variables.items())
        return f"curl{key}{' --insecure' * address.insecure} {shlex.quote(api_url(address.url, 'models'))}"


ENGINES.register("endpoint", Endpoint())
