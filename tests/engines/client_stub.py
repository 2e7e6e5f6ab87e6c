"""The stub server as an engine looks like to clients that ask for more than the API's necessary parts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from stub_server import StubServer


class CompletionsStub(StubServer):
    """Answers completions with typed events, and says that it closes the connection, as it does."""

    def _tokens(self, body) -> list[bytes]:
        text = {"object": "text_completion", "choices": [{"index": 0, "text": "a", "finish_reason": None}]}
        return [b"data: " + json.dumps(text).encode() + b"\n\n"] * body["max_tokens"]

    def _closing(self, body) -> list[bytes]:
        usage = {"prompt_tokens": 7, "completion_tokens": body["max_tokens"]}
        last = {"object": "text_completion", "choices": [], "usage": usage}
        return [b"data: " + json.dumps(last).encode() + b"\n\n", b"data: [DONE]\n\n"]

    @staticmethod
    async def _head(writer) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        await writer.drain()
