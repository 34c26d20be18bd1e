"""The router in front of a real llama-server, asked by OpenAI's and Anthropic's own Python clients."""

import asyncio
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from llmgw.serving.keys import digest_of
from tests.fakes.router_process import ROOT, RouterProcess, free_port, get, router_process
from tests.fakes.router_world import key_file, publish

SERVER = Path(os.environ.get("LLMGW_LLAMA_SERVER", ROOT / "build/engines/llama.cpp-b10434/bin/llama-server"))
MODEL = Path(os.environ.get("LLMGW_TINY_GGUF", ROOT / "build/models/tiny.gguf"))
pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.skipif(not SERVER.exists(), reason=f"no llama-server at {SERVER} (LLMGW_LLAMA_SERVER)"),
    pytest.mark.skipif(not MODEL.exists(), reason=f"no model at {MODEL} (LLMGW_TINY_GGUF)"),
]
KEY = "sk-client"


@dataclass
class Llama:
    """A llama-server that this test started."""

    port: int
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def metric(self, name: str) -> float:
        request = urllib.request.Request(f"{self.url}/metrics", headers={"Authorization": "Bearer engine-key"})
        page = urllib.request.urlopen(request, timeout=10).read().decode()
        return next(float(line.split()[-1]) for line in page.splitlines() if line.startswith(name + " "))


def start_llama(folder: Path, *options: str) -> Llama:
    port = free_port()
    log = (folder / f"llama-{port}.log").open("wb")
    words = [
        str(SERVER),
        "-m",
        str(MODEL),
        "--port",
        str(port),
        "-np",
        "2",
        "-c",
        "4096",
        "--metrics",
        "-a",
        "tiny",
    ]
    env = {**os.environ, "LLAMA_API_KEY": "engine-key"}
    llama = Llama(port, subprocess.Popen([*words, *options], stdout=log, stderr=log, env=env))
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert llama.process.poll() is None, (folder / f"llama-{port}.log").read_text()[-2000:]
        try:
            if urllib.request.urlopen(f"{llama.url}/health", timeout=2).status == 200:
                return llama
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise AssertionError("llama-server did not become ready")


@dataclass
class Site:
    """A router with two real engines behind it."""

    router: RouterProcess
    engines: list[Llama]
    folder: Path
    metrics: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.router.port}"

    def page(self) -> str:
        return get(f"http://127.0.0.1:{self.metrics}/metrics")[1].decode()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    engines = [start_llama(folder) for _ in range(2)]
    keys = {f"m/{n}": "engine-key" for n in range(2)}
    (folder / "engine-keys.json").write_text(
        f'{{"format":"llmgw-engine-keys/1","keys":{str(keys).replace(chr(39), chr(34))}}}'
    )
    key_file(folder, {"id": "k", "digest": digest_of(KEY), "tenant": "t"})
    publish_tiny(folder, 1, engines)
    metrics = free_port()
    options = ("--published", str(folder), "--metrics-listen", f"127.0.0.1:{metrics}", "--check", "1")
    try:
        with router_process(folder, *options) as router:
            yield Site(router, engines, folder, metrics)
    finally:
        for engine in engines:
            engine.process.kill()
            engine.process.wait()


def publish_tiny(folder: Path, generation: int, engines: list[Llama]) -> None:
    publish(folder, generation, [(f"m/{n}", one.url) for n, one in enumerate(engines)], engine="llama.cpp")
    path = folder / "endpoints.json"
    path.write_text(path.read_text().replace('"m"', '"tiny"'))


@pytest.fixture(scope="module")
def client(site: Site) -> Any:
    openai = pytest.importorskip("openai", reason="OpenAI's client is not installed")
    return openai.OpenAI(base_url=f"{site.url}/v1", api_key=KEY, max_retries=0, timeout=60)


MESSAGES = [{"role": "user", "content": "Say something about foxes."}]


def test_chat_with_and_without_stream_and_by_an_alias(client: Any, site: Site) -> None:
    whole = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=12)
    assert whole.choices[0].message.content
    assert whole.usage.completion_tokens == 12
    alias = client.chat.completions.create(model="alias", messages=MESSAGES, max_tokens=3)
    assert (alias.model, alias.choices[0].finish_reason) == ("tiny", "length")
    chunks = list(client.chat.completions.create(model="alias", messages=MESSAGES, max_tokens=12, stream=True))
    assert chunks[-1].choices[0].finish_reason == "length"
    assert all(chunk.usage is None for chunk in chunks), "usage that was not asked for is not passed on"
    asked = list(
        client.chat.completions.create(
            model="tiny", messages=MESSAGES, max_tokens=12, stream=True, stream_options={"include_usage": True}
        )
    )
    assert asked[-1].usage.completion_tokens == 12
    assert asked[-1].choices == []
    page = site.page()
    line = next(
        line for line in page.splitlines() if line.startswith("llmgw_tokens_total") and "completion" in line
    )
    assert float(line.split()[-1]) == 12 + 3 + 12 + 12


def test_completions_models_and_tokenize(client: Any, site: Site) -> None:
    made = client.completions.create(model="tiny", prompt="foxes", max_tokens=5)
    assert made.choices[0].text
    assert {model.id for model in client.models.list()} >= {"tiny", "alias", "cold"}
    assert client.models.retrieve("cold").state == "stopped"
    body = b'{"model":"alias","content":"a fox"}'
    status, answer = get(f"{site.url}/v1/tokenize", body, {"Authorization": f"Bearer {KEY}"})
    assert status == 200
    assert b"tokens" in answer


def test_tools_are_passed_on(client: Any) -> None:
    function = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}
    tools = [{"type": "function", "function": function}]
    made = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=8, tools=tools)
    assert made.choices[0].finish_reason in ("length", "stop", "tool_calls")


def test_errors_are_what_the_client_expects(client: Any) -> None:
    import openai

    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.chat.completions.create(model="nope", messages=MESSAGES)
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="wrong").chat.completions.create(model="tiny", messages=MESSAGES)
    with pytest.raises(openai.InternalServerError, match="stopped"):
        client.chat.completions.create(model="cold", messages=MESSAGES)
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="tiny", messages="no list")
    with pytest.raises(openai.APIStatusError):  # this llama-server was started without --embeddings
        client.embeddings.create(model="tiny", input="a fox")


def test_a_client_that_stops_reading_frees_the_engine(client: Any, site: Site) -> None:
    stream = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=1900, stream=True)
    next(iter(stream))
    stream.close()
    end = time.monotonic() + 5
    while any(engine.metric("llamacpp:requests_processing") for engine in site.engines):
        assert time.monotonic() < end, "the engine still works for a client that has left"
        time.sleep(0.05)


def test_anthropics_client_gets_messages(site: Site) -> None:
    anthropic = pytest.importorskip("anthropic", reason="Anthropic's client is not installed")
    made = anthropic.Anthropic(base_url=site.url, api_key=KEY, max_retries=0, timeout=60)
    whole = made.messages.create(model="alias", max_tokens=9, messages=MESSAGES)
    assert whole.content[0].text
    assert whole.usage.output_tokens == 9
    with made.messages.stream(model="tiny", max_tokens=9, messages=MESSAGES) as stream:
        assert "".join(stream.text_stream)
        assert stream.get_final_message().usage.output_tokens == 9
    with pytest.raises(anthropic.NotFoundError):
        made.messages.create(model="nope", max_tokens=9, messages=MESSAGES)
    with pytest.raises(anthropic.AuthenticationError):
        anthropic.Anthropic(base_url=site.url, api_key="x", max_retries=0).messages.create(
            model="tiny", max_tokens=9, messages=MESSAGES
        )


def test_responses_stream_to_their_end(client: Any) -> None:
    made = client.responses.create(model="alias", input="foxes", max_output_tokens=8)
    assert made.usage.output_tokens == 8
    kinds = [
        event.type for event in client.responses.create(model="tiny", input="x", max_output_tokens=8, stream=True)
    ]
    assert kinds[-1] in ("response.completed", "response.incomplete")


def test_an_engine_that_is_killed_ends_its_stream_with_an_error_and_the_other_takes_over(
    client: Any, site: Site
) -> None:
    import openai

    stream = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=1900, stream=True)
    chunks = iter(stream)
    next(chunks)
    busy = next(engine for engine in site.engines if engine.metric("llamacpp:requests_processing"))
    busy.process.kill()
    with pytest.raises(openai.APIError, match="engine stopped"):
        list(chunks)
    for _ in range(20):
        assert client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=2).choices
    replaced = start_llama(site.folder)
    site.engines[site.engines.index(busy)] = replaced
    publish_tiny(site.folder, 2, site.engines)
    end = time.monotonic() + 10
    while replaced.metric("llamacpp:prompt_tokens_total") == 0:
        client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=2)
        assert time.monotonic() < end, "the new endpoint gets requests"


def test_an_engine_stopped_by_sigterm_in_a_stream_is_told_as_an_error(client: Any, site: Site) -> None:
    """llama-server then ends its stream without finish_reason and [DONE], and with no error of its own."""
    import openai

    engine = start_llama(site.folder, "--sse-ping-interval", "1")
    publish_tiny(site.folder, 3, [engine])
    time.sleep(1.5)
    stream = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=1900, stream=True)
    chunks = iter(stream)
    next(chunks)
    engine.process.terminate()
    with pytest.raises(openai.APIError):
        list(chunks)
    engine.process.wait(20)


def test_clients_with_retries_see_no_failure_while_an_engine_loads(site: Site) -> None:
    openai = pytest.importorskip("openai")
    publish_tiny(site.folder, 4, site.engines)
    time.sleep(1.5)

    async def work() -> None:
        made = openai.AsyncOpenAI(base_url=f"{site.url}/v1", api_key=KEY, timeout=60)
        got = await asyncio.gather(
            *(made.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=4) for _ in range(24))
        )
        assert all(one.usage.completion_tokens == 4 for one in got)

    asyncio.run(work())
