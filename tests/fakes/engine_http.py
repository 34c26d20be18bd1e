"""The HTTP of the fake engine: vLLM's routes, the shape of its answers. engine.py, beside it, starts it."""

import json
import os
import select
import socket
import sys
import time
import uuid
from http.server import BaseHTTPRequestHandler

VERSION = "0.33.0"


def say(text):
    """A line as vLLM logs it."""
    sys.stderr.write(f"INFO {time.strftime('%m-%d %H:%M:%S')} [fake] {text}\n")
    sys.stderr.flush()


class Handler(BaseHTTPRequestHandler):
    """One request a time on each connection."""

    protocol_version = "HTTP/1.1"
    engine = None

    def log_message(self, pattern, *values):
        say(pattern % values)

    def send(self, status, body=b"", kind="application/json"):
        data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def fail(self, status, message, kind):
        error = {"message": message, "type": kind, "param": None, "code": status}
        self.send(status, {"error": error})

    def allowed(self):
        """Whether the path is open to this client: only /v1 is guarded."""
        key = self.engine.args.api_key or os.environ.get("VLLM_API_KEY")
        if key and self.path.startswith("/v1") and self.headers.get("Authorization") != "Bearer " + key:
            self.send(401, {"error": "Unauthorized"})
            return False
        return True

    def do_GET(self):
        if not self.allowed():
            return
        engine, path = self.engine, self.path.partition("?")[0]
        if path in ("/health", "/ping"):
            self.send(engine.now("health") or (503 if engine.broken and engine.args.nnodes == 1 else 200))
        elif path == "/v1/models":
            self.send(200, {"object": "list", "data": [self.card(name) for name in engine.args.names]})
        elif path == "/version":
            self.send(200, {"version": VERSION})
        elif path == "/load":
            self.send(200, {"server_load": engine.running})
        elif path == "/metrics":
            self.send(200, metrics(engine).encode(), "text/plain; version=0.0.4; charset=utf-8")
        elif path == "/is_sleeping" and sleeps(engine):
            self.send(200, {"is_sleeping": engine.asleep})
        else:
            self.send(404, {"detail": "Not Found"})

    def card(self, name):
        root = self.engine.args.model_tag
        return {
            "id": name,
            "object": "model",
            "created": 1,
            "owned_by": "vllm",
            "root": root,
            "max_model_len": 4096,
        }

    def do_POST(self):
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        if not self.allowed():
            return
        if path in ("/sleep", "/wake_up") and sleeps(self.engine):
            self.engine.asleep = path == "/sleep"
            self.send(200)
        elif path in ("/v1/chat/completions", "/v1/completions"):
            self.complete(path, text)
        else:
            self.send(404, {"detail": "Not Found"})

    def complete(self, path, text):
        engine = self.engine
        try:
            asked = json.loads(text)
        except ValueError:
            self.fail(400, "the body is no JSON", "Bad Request")
            return
        if asked.get("model") not in engine.args.names:
            self.fail(404, "The model `{}` does not exist.".format(asked.get("model")), "NotFoundError")
        elif engine.now("refuse"):
            self.fail(engine.now("refuse"), "refused, as it was told to", "ServiceUnavailableError")
        elif engine.stopping:
            self.fail(503, "shutting down", "ServiceUnavailableError")
        elif engine.broken:
            self.send(500)
            say("EngineDeadError, shutting down")
            engine.leave(0)
        else:
            self.answer(path, asked)

    def answer(self, path, asked):
        engine = self.engine
        with engine.lock:
            engine.running += 1
            engine.requests += 1
            engine.streams.add(self.connection)
        try:
            stream_answer(self, path, asked) if asked.get("stream") else whole_answer(self, path, asked)
        except OSError:
            self.close_connection = True
        finally:
            with engine.lock:
                engine.running -= 1
                engine.streams.discard(self.connection)

    def gone(self):
        """Whether the client has left."""
        ready = select.select([self.connection], [], [], 0)[0]
        return bool(ready) and not self.connection.recv(1, socket.MSG_PEEK)


def sleeps(engine):
    return engine.args.enable_sleep_mode and os.environ.get("VLLM_SERVER_DEV_MODE") == "1"


def tokens(handler, asked):
    """ " 1", " 2", … at their pace. Stands still when it is told to, or when it was stopped without a timeout."""
    engine = handler.engine
    for number in range(1, int(asked.get("max_completion_tokens") or asked.get("max_tokens") or 16) + 1):
        time.sleep(engine.now("token_s"))
        while engine.now("stall") or (engine.stopping and not engine.args.shutdown_timeout):
            time.sleep(0.05)
            if handler.gone():
                raise ConnectionResetError
        with engine.lock:
            engine.tokens += 1
        yield f" {number}"
        if engine.now("die_on_request") is not None:
            handler.wfile.flush()
            engine.leave(engine.now("die_on_request"))


def piece(path, ident, asked, text, finish):
    """One chunk of a stream, or a whole answer's choice."""
    chat = path.endswith("chat/completions")
    content = {"delta": {"content": text} if text is not None else {}} if chat else {"text": text or ""}
    choice = dict(content, index=0, logprobs=None, finish_reason=finish)
    kind = "chat.completion.chunk" if chat else "text_completion"
    return {"id": ident, "object": kind, "created": int(time.time()), "model": asked["model"], "choices": [choice]}


def usage(count):
    return {"prompt_tokens": 7, "completion_tokens": count, "total_tokens": 7 + count}


def stream_answer(handler, path, asked):
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    ident, count = "chatcmpl-" + uuid.uuid4().hex, 0

    def event(data):
        line = f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

    if path.endswith("chat/completions"):
        first = piece(path, ident, asked, "", None)
        first["choices"][0]["delta"]["role"] = "assistant"
        event(first)
    for word in tokens(handler, asked):
        count += 1
        event(piece(path, ident, asked, word, None))
    event(piece(path, ident, asked, None, "length"))
    if (asked.get("stream_options") or {}).get("include_usage"):
        event(dict(piece(path, ident, asked, None, None), choices=[], usage=usage(count)))
    event("[DONE]")
    handler.wfile.write(b"0\r\n\r\n")


def whole_answer(handler, path, asked):
    words = list(tokens(handler, asked))
    answer = piece(path, "chatcmpl-" + uuid.uuid4().hex, asked, "".join(words), "length")
    if path.endswith("chat/completions"):
        answer["object"] = "chat.completion"
        del answer["choices"][0]["delta"]
        answer["choices"][0]["message"] = {"role": "assistant", "content": "".join(words)}
    handler.send(200, dict(answer, usage=usage(len(words))))


def metrics(engine):
    """The names that vLLM 0.33 has, those that somebody asks for."""
    values = {
        "vllm:num_requests_running gauge": engine.running,
        "vllm:num_requests_waiting gauge": 0,
        "vllm:kv_cache_usage_perc gauge": min(1.0, engine.running / 16),
        "vllm:num_preemptions_total counter": 0,
        "vllm:prompt_tokens_total counter": 7 * engine.requests,
        "vllm:generation_tokens_total counter": engine.tokens,
    }
    label = f'{{engine="0",model_name="{engine.args.names[0]}"}}'
    lines = []
    for word, value in values.items():
        name, kind = word.split()
        lines += [f"# TYPE {name} {kind}", f"{name}{label} {float(value)}"]
    states = {"awake": not engine.asleep, "weights_offloaded": engine.asleep, "discard_all": False}
    lines.append("# TYPE vllm:engine_sleep_state gauge")
    for state, is_so in states.items():
        word = label.replace("}", f',sleep_state="{state}"}}')
        lines.append(f"vllm:engine_sleep_state{word} {float(is_so)}")
    return "\n".join(lines) + "\n"
