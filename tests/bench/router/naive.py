"""What one writes first with aiohttp: reads the model from the body, streams the answer. The bench's reference."""

import json
import sys

import uvloop
from aiohttp import ClientSession, ClientTimeout, TCPConnector, web

HOP = {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host", "content-length"}
PORT, ENGINE = int(sys.argv[1]), f"http://127.0.0.1:{sys.argv[2]}"
SESSION = web.AppKey("session", ClientSession)


async def forward(request: web.Request) -> web.StreamResponse:
    body = await request.read()
    if json.loads(body)["model"] != "fake-model":
        return web.json_response({"error": {"message": "no such model"}}, status=404)
    headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP}
    async with request.app[SESSION].post(ENGINE + request.path, data=body, headers=headers) as found:
        reply = web.StreamResponse(status=found.status)
        reply.headers.update({name: value for name, value in found.headers.items() if name.lower() not in HOP})
        await reply.prepare(request)
        async for piece in found.content.iter_any():
            await reply.write(piece)
        await reply.write_eof()
        return reply


async def session(app: web.Application):
    limits = {"connector": TCPConnector(limit=0), "timeout": ClientTimeout(total=600), "auto_decompress": False}
    async with ClientSession(**limits) as app[SESSION]:
        yield


uvloop.install()
application = web.Application(client_max_size=64 << 20)
application.cleanup_ctx.append(session)
application.router.add_post("/v1/chat/completions", forward)
web.run_app(application, host="127.0.0.1", port=PORT, print=None, backlog=4096, access_log=None)
