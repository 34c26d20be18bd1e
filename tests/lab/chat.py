"""A streamed chat on the terminal, word by word as it comes; nothing but the standard library.

    python -m tests.lab.chat URL MODEL TEXT [MAX_TOKENS]

Exit status 1 where the answer is no whole stream: no finish_reason, no usage, or no [DONE].
"""

import json
import sys
import time
import urllib.request
from collections.abc import Iterator
from typing import Any


def events(url: str, body: dict[str, Any]) -> Iterator[str]:
    """The data of each event of a streamed chat completion."""
    asked = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(asked, timeout=60) as answer:
        for line in answer:
            if line.startswith(b"data: "):
                yield line.removeprefix(b"data: ").strip().decode()


def main(url: str, model: str, text: str, max_tokens: str = "64") -> int:
    """Ask, print, and say how it went."""
    message = {"role": "user", "content": text}
    body = {"model": model, "messages": [message], "max_tokens": int(max_tokens), "stream": True}
    body["stream_options"] = {"include_usage": True}
    began, last, finish, ident = time.monotonic(), "", "", ""
    usage: dict[str, int] = {}
    for last in events(url, body):
        chunk = json.loads(last) if last != "[DONE]" else {"choices": []}
        ident, usage = chunk.get("id", ident), chunk.get("usage") or usage
        for choice in chunk["choices"]:
            finish = choice["finish_reason"] or finish
            sys.stdout.write(choice["delta"].get("content") or "")
            sys.stdout.flush()
    took = time.monotonic() - began
    print(f"\n[{ident}: {usage.get('completion_tokens')} tokens in {took:.2f} s, finish_reason {finish}, {last}]")
    return 0 if finish and usage and last == "[DONE]" else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
