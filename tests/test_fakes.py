"""The fake vLLM keeps to what vLLM does, and the tiny GGUF is what it says: the ground other tests stand on."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.fakes.tiny_gguf import TinyModel, counting, write

ENGINE = Path(__file__).parent / "fakes" / "engine.py"
Start = Callable[..., "Running"]


class Running:
    """A fake engine that was started, and how to ask it."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int, behaviour: Path) -> None:
        self.process = process
        self.port = port
        self.behaviour = behaviour

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, bytes]:
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        link.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = link.getresponse()
        got = answer.status, answer.read()
        link.close()
        return got

    def chat(self, tokens: int, **more: object) -> tuple[int, bytes]:
        message = {"role": "user", "content": "count"}
        asked = {"model": "m", "messages": [message], "max_tokens": tokens, **more}
        return self.ask("POST", "/v1/chat/completions", asked)

    def open_stream(self, tokens: int) -> http.client.HTTPResponse:
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        asked = {"model": "m", "messages": [], "max_tokens": tokens, "stream": True}
        link.request("POST", "/v1/chat/completions", json.dumps(asked))
        return link.getresponse()

    def behave(self, **behaviour: object) -> None:
        partial = self.behaviour.with_suffix(".new")
        partial.write_text(json.dumps(behaviour))
        partial.rename(self.behaviour)

    def listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def ready(self) -> "Running":
        deadline = time.monotonic() + 20
        while not self.listens():
            assert time.monotonic() < deadline
            assert self.process.poll() is None
            time.sleep(0.02)
        return self


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start fake engines on loopback; those that are left are ended with all their children."""
    started: list[Running] = []

    def start_one(*flags: str, behaviour: dict[str, object] | None = None, **env: str) -> Running:
        port = free_port()
        file = tmp_path / f"{len(started)}.json"
        file.write_text(json.dumps({"load_s": 0, "token_s": 0.002, **(behaviour or {})}))
        argv = [
            sys.executable,
            str(ENGINE),
            "serve",
            "/models/m",
            "--served-model-name",
            "m",
            "--host",
            "127.0.0.1",
        ]
        process = subprocess.Popen(
            [*argv, "--port", str(port), *flags],
            env=os.environ | {"FAKE_ENGINE": str(file)} | env,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(Running(process, port, file))
        return started[-1]

    yield start_one
    for running in started:
        with suppress(ProcessLookupError):
            os.killpg(running.process.pid, signal.SIGKILL)
        running.process.communicate()


def words(stream: bytes) -> list[str]:
    """The text of a stream's chunks, and its last word of protocol."""
    events = [line.removeprefix("data: ") for line in stream.decode().split("\n\n") if line]
    chunks = [json.loads(event) for event in events if event != "[DONE]"]
    said = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks if chunk["choices"]]
    return [*filter(None, said), *(event for event in events if event == "[DONE]")]


def test_a_stream_counts_and_ends_with_usage_and_done(start: Start) -> None:
    engine = start().ready()
    status, text = engine.chat(5, stream=True, stream_options={"include_usage": True})
    assert status == 200
    assert words(text) == [" 1", " 2", " 3", " 4", " 5", "[DONE]"]
    assert b'"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}' in text
    assert b'"finish_reason": "length"' in text


def test_an_answer_that_is_no_stream_has_the_same_words(start: Start) -> None:
    status, text = start().ready().chat(3)
    assert status == 200
    assert json.loads(text)["choices"][0]["message"]["content"] == " 1 2 3"


def test_the_key_guards_v1_only(start: Start) -> None:
    engine = start(VLLM_API_KEY="k").ready()
    assert [engine.ask("GET", path)[0] for path in ("/health", "/metrics", "/v1/models")] == [200, 200, 401]
    status, models = engine.ask("GET", "/v1/models", Authorization="Bearer k")
    assert status == 200
    assert [model["id"] for model in json.loads(models)["data"]] == ["m"]


def test_metrics_have_vllms_names(start: Start) -> None:
    engine = start().ready()
    stream = engine.open_stream(400)
    text = engine.ask("GET", "/metrics")[1].decode()
    assert 'vllm:num_requests_running{engine="0",model_name="m"} 1.0' in text
    assert 'vllm:num_requests_waiting{engine="0",model_name="m"} 0.0' in text
    assert 'vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="awake"} 1.0' in text
    stream.close()


def test_an_unknown_flag_and_a_world_that_does_not_divide_are_refused(start: Start) -> None:
    for flags in (["--no-such-flag"], ["-tp", "3", "--nnodes", "2"]):
        assert start(*flags).process.wait(10) == 2


def test_nothing_listens_before_the_model_is_loaded(start: Start) -> None:
    engine = start(behaviour={"load_s": 1})
    time.sleep(0.4)
    assert not engine.listens()
    assert engine.ready().ask("GET", "/health")[0] == 200


def two_ranks(start: Start) -> tuple[Running, Running]:
    master = str(free_port())
    shared = ("-tp", "2", "--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", master)
    worker = start(*shared, "--node-rank", "1", "--headless")
    return start(*shared, "--node-rank", "0"), worker


def test_the_head_waits_for_its_worker_which_has_no_port(start: Start) -> None:
    head, worker = two_ranks(start)
    assert head.ready().chat(2)[0] == 200
    assert not worker.listens()


def test_a_killed_worker_is_noticed_by_the_next_request_only_and_the_head_exits_0(start: Start) -> None:
    head, worker = two_ranks(start)
    head.ready()
    os.killpg(worker.process.pid, signal.SIGKILL)
    worker.process.wait(10)
    time.sleep(0.3)
    assert head.ask("GET", "/health")[0] == 200
    assert head.chat(2)[0] == 500
    assert head.process.wait(10) == 0


def test_a_worker_stays_when_its_head_stops(start: Start) -> None:
    head, worker = two_ranks(start)
    head.ready().process.terminate()
    assert head.process.wait(10) == 0
    time.sleep(0.5)
    assert worker.process.poll() is None
    worker.process.terminate()
    assert worker.process.wait(10) == 0


def test_sigterm_with_a_timeout_finishes_the_stream_and_takes_no_other(start: Start) -> None:
    engine = start("--shutdown-timeout", "20", behaviour={"token_s": 0.02}).ready()
    stream = engine.open_stream(50)
    engine.process.terminate()
    time.sleep(0.2)
    assert engine.ask("GET", "/health")[0] == 200
    assert engine.chat(1)[0] == 503
    assert words(stream.read()) == [*(f" {number}" for number in range(1, 51)), "[DONE]"]
    assert engine.process.wait(10) == 0


def test_sigterm_without_a_timeout_lets_the_stream_stand_still_until_its_client_leaves(start: Start) -> None:
    engine = start(behaviour={"token_s": 0.02}).ready()
    stream = engine.open_stream(1000)
    stream.readline()
    engine.process.terminate()
    time.sleep(1)
    assert not engine.listens()
    assert engine.process.poll() is None
    stream.close()
    assert engine.process.wait(10) == 0


def test_an_idle_engine_ends_on_sigterm_and_one_that_ignores_it_does_not(start: Start) -> None:
    idle = start().ready()
    idle.process.terminate()
    assert idle.process.wait(10) == 0
    deaf = start(behaviour={"ignore_sigterm": True}).ready()
    deaf.process.terminate()
    time.sleep(0.8)
    assert deaf.chat(1)[0] == 200


def test_behaviour_is_changed_while_it_runs(start: Start) -> None:
    engine = start().ready()
    engine.behave(refuse=503)
    assert engine.chat(1)[0] == 503
    engine.behave(health=500, token_s=0)
    assert (engine.ask("GET", "/health")[0], engine.chat(1)[0]) == (500, 200)
    engine.behave(stall=True)
    stream = engine.open_stream(3)
    engine.behave(token_s=0)
    assert words(stream.read())[-1] == "[DONE]"
    engine.behave(die_on_request=7)
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        engine.chat(5)
    assert engine.process.wait(10) == 7


def test_a_start_that_fails_prints_what_it_was_told_to(start: Start) -> None:
    failing = start(behaviour={"fail": {"stderr": "CUDA error: out of memory\n", "exit": 1}})
    assert failing.process.communicate(timeout=10)[1] == b"CUDA error: out of memory\n"
    assert failing.process.returncode == 1


@pytest.mark.parametrize("orphan", [False, True])
def test_the_worker_process_ends_with_the_engine_unless_it_is_an_orphan(start: Start, orphan: bool) -> None:
    engine = start(behaviour={"orphan": orphan}).ready()
    child = int(Path(f"/proc/{engine.process.pid}/task/{engine.process.pid}/children").read_text())
    engine.process.kill()
    engine.process.wait(10)
    time.sleep(0.6)
    lives = Path(f"/proc/{child}/stat").exists() and " Z " not in Path(f"/proc/{child}/stat").read_text()
    assert lives is orphan


def test_a_dead_worker_process_is_known_to_health(start: Start) -> None:
    engine = start().ready()
    os.kill(
        int(Path(f"/proc/{engine.process.pid}/task/{engine.process.pid}/children").read_text()), signal.SIGKILL
    )
    time.sleep(0.3)
    assert engine.ask("GET", "/health")[0] == 503
    assert engine.chat(1)[0] == 500


def test_the_same_arguments_give_the_same_gguf_and_another_seed_another(tmp_path: Path) -> None:
    model = TinyModel(counting(20))
    files = [write(tmp_path / name, model)[0].read_bytes() for name in ("a.gguf", "b.gguf")]
    other = write(tmp_path / "c.gguf", TinyModel(counting(20), seed=1))[0].read_bytes()
    assert files[0] == files[1] != other
    assert files[0].startswith(b"GGUF\x03\0\0\0")


def test_split_files_have_all_tensors_between_them_and_the_keys_in_the_first(tmp_path: Path) -> None:
    whole = write(tmp_path / "m.gguf", TinyModel(counting(20)))[0].read_bytes()
    parts = [path.read_bytes() for path in write(tmp_path / "m.gguf", TinyModel(counting(20)), shards=3)]
    count = [int.from_bytes(data[8:16], "little") for data in (whole, *parts)]
    assert count[0] == sum(count[1:]) == 3 + 2 * 9
    assert [b"general.architecture" in part for part in parts] == [True, False, False]
    assert all(b"split.count" in part for part in parts)


def test_words_that_cannot_be_told_apart_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="stands twice"):
        write(tmp_path / "m.gguf", TinyModel(("same", "same")))
    with pytest.raises(ValueError, match="do not fit into embeddings of 16"):
        write(tmp_path / "m.gguf", TinyModel(counting(400), embd=16))
