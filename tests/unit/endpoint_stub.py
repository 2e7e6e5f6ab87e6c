"""The stub server as an endpoint: it lists a model, may want a key, and takes prompts of any text."""

import asyncio
import json

from stub_server import StubServer

MODEL = "stub/model"
TEMPLATE_TOKENS = 3


class EndpointStub(StubServer):
    """Counts a token a word, and three for a template."""

    def __init__(self, key=None, *, longest=None, version=None, ends_early=False, refuses=(), slower=1, **more):
        super().__init__(**more)
        self.key, self.longest, self.version = key, longest, version
        self.ends_early, self.refuses, self.slower = ends_early, refuses, slower
        self.heads = []

    async def _serve(self, reader, writer):
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            if self.key is not None and f"\r\nauthorization: bearer {self.key}\r\n".lower() not in head.lower():
                said = json.dumps({"error": {"message": f"wrong key, not {self.key}"}})
                return await self._status(writer, 401, said)
            path = head.split()[1]
            if path == "/v1/models":
                entry = {"id": MODEL} | ({"max_model_len": self.longest} if self.longest else {})
                return await self._status(writer, 200, json.dumps({"data": [entry, {"id": "other"}]}))
            if path == "/version":
                known = self.version is not None
                return await self._status(writer, 200 if known else 404, json.dumps({"version": self.version}))
            length = next(int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("Content-Length"))
            body = json.loads(await reader.readexactly(length))
            self.bodies.append(body)
            if refused := [name for name in self.refuses if name in body]:
                return await self._status(writer, 400, json.dumps({"error": {"message": f"unknown {refused[0]}"}}))
            if self.ends_early and not body.get("ignore_eos"):
                body["max_tokens"] //= 2
            await self._stream(writer, [*self._opening(body), *self._tokens(body), *self._closing(body)], self.pause)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    @property
    def pause(self):
        return 0.002 * self.slower

    def _closing(self, body):
        prompt = body["messages"][0]["content"] if "messages" in body else body["prompt"]
        usage = {
            "prompt_tokens": len(prompt.split()) + TEMPLATE_TOKENS,
            "completion_tokens": body["max_tokens"],
            "prompt_tokens_details": {"cached_tokens": 0},
        }
        return [
            self._event(finish_reason="length", content=""),
            b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n",
            b"data: [DONE]\n\n",
        ]
