"""The real llama-server on lab hosts, and the tiny models on it."""

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.tiny_gguf import TinyModel, counting, telling, write
from tests.lab.kernel import wait_until
from tests.lab.lab import Lab
from tests.lab.llama import LLAMA, MODELS
from tests.lab.node import Node

pytestmark = [pytest.mark.lab, pytest.mark.engine]
BIN = "/opt/llmgw/engines/llama.cpp-b10434/bin"
PORT = 18000


def start(node: Node, unit: str, command: str) -> None:
    node.sh(f"systemd-run --unit={unit} --collect --quiet {command}")


@pytest.fixture
def served(lab: Lab) -> Iterator[Node]:
    """n1 with llama-server and the counting model, in a unit of its own that outlives every SSH session."""
    node = lab.nodes["n1"]
    flags = f"--host 0.0.0.0 --port {PORT} -a count,numbers -c 8192 -np 4 --metrics"
    start(node, "engine", f"{BIN}/llama-server -m /models/count.gguf {flags}")
    wait_until(lambda: ask(lab, node, "/health") == {"status": "ok"}, lambda: log(node), timeout_s=30)
    yield node
    node.sh("systemctl stop engine")


def log(node: Node) -> str:
    return node.console("journalctl -u engine -n 30 --no-pager").stdout


def ask(lab: Lab, node: Node, path: str, body: object = None) -> object:
    """The JSON of an answer, asked for from the lab's control host; None where nobody answers."""
    asked = urllib.request.Request(
        f"http://{node.address}:{PORT}{path}", json.dumps(body).encode() if body else None
    )
    try:
        with lab.entered(), urllib.request.urlopen(asked, timeout=30) as answer:
            return json.load(answer)
    except OSError:
        return None


def stream(lab: Lab, node: Node, tokens: int) -> tuple[list[str], list[dict[str, object]]]:
    """The words of a streamed chat, and its chunks."""
    body = {
        "model": "count",
        "messages": [{"role": "user", "content": "count, please"}],
        "max_tokens": tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 1.5,
    }
    url = f"http://{node.address}:{PORT}/v1/chat/completions"
    with lab.entered(), urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode())) as answer:
        events = [line[6:].strip().decode() for line in answer if line.startswith(b"data: ")]
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    said = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"])
    return said.split(), chunks


def test_a_stream_counts_without_a_gap_at_any_temperature(lab: Lab, served: Node) -> None:
    said, chunks = stream(lab, served, 300)
    assert said == [str(number) for number in range(1, 301)]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 300  # type: ignore[index]
    finished = [chunk["choices"][0]["finish_reason"] for chunk in chunks if chunk["choices"]]  # type: ignore[index]
    assert finished[-1] == "length"


def test_it_lists_its_names_and_its_requests_are_in_the_hosts_journal(lab: Lab, served: Node) -> None:
    models = ask(lab, served, "/v1/models")
    assert [model["id"] for model in models["data"]] == ["count"]  # type: ignore[index]
    stream(lab, served, 3)
    assert "print_timing" in log(served)


def test_it_goes_on_when_the_ssh_session_that_started_it_is_gone(lab: Lab) -> None:
    node = lab.nodes["n3"]
    command = f"{BIN}/llama-server -m /models/count.gguf --host 0.0.0.0 --port {PORT}"
    assert lab.ssh(node, f"sudo -n systemd-run --unit=engine --collect {command}", user="ops").returncode == 0
    wait_until(lambda: ask(lab, node, "/health") == {"status": "ok"}, lambda: log(node), timeout_s=30)
    node.sh("systemctl stop engine")


def test_two_hosts_serve_one_model_by_rpc(lab: Lab) -> None:
    head, worker = lab.nodes["n1"], lab.nodes["n2"]
    start(worker, "rpc", f"{BIN}/rpc-server -H {worker.address} -p 50052")
    wait_until(lambda: "50052" in worker.sh("ss -ltn"), lambda: worker.sh("journalctl -u rpc -n 20"), timeout_s=20)
    flags = f"--host 0.0.0.0 --port {PORT} --rpc {worker.address}:50052 -ngl 99 -c 2048"
    start(head, "engine", f"{BIN}/llama-server -m /models/count.gguf {flags}")
    try:
        wait_until(lambda: ask(lab, head, "/health") == {"status": "ok"}, lambda: log(head), timeout_s=30)
        said, _ = stream(lab, head, 50)
        assert said == [str(number) for number in range(1, 51)]
        assert worker.console("ss -tn | grep 50052").stdout.count("ESTAB") >= 1
    finally:
        head.sh("systemctl stop engine")
        worker.sh("systemctl stop rpc")


def load(model: Path) -> str:
    """What llama-server says of a model that it refuses."""
    argv = [str(LLAMA / "bin/llama-server"), "-m", str(model), "--port", "0", "--host", "127.0.0.1"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    return done.stdout + done.stderr


def test_an_unknown_architecture_and_a_missing_shard_are_refused_in_words(tmp_path: Path) -> None:
    unknown = write(tmp_path / "m.gguf", TinyModel(counting(9), arch="madeup9"))[0]
    assert "unknown model architecture: 'madeup9'" in load(unknown)
    shards = write(tmp_path / "s.gguf", TinyModel(counting(9)), shards=2)
    shards[1].unlink()
    assert "failed to load" in load(shards[0])


def test_a_split_model_and_one_that_stops_are_served(lab: Lab, tmp_path: Path) -> None:
    node = lab.nodes["n1"]
    for path in write(tmp_path / "split.gguf", TinyModel(telling(), stops=True), shards=3):
        node.sh("mkdir -p /srv/split")
        copied = lab.run(
            ["scp", *lab.spaces.ssh_options(), str(path), f"root@{node.address}:/srv/split/"], capture_output=True
        )
        assert copied.returncode == 0, copied.stderr
    start(
        node, "engine", f"{BIN}/llama-server -m /srv/split/split-00001-of-00003.gguf --host 0.0.0.0 --port {PORT}"
    )
    try:
        wait_until(lambda: ask(lab, node, "/health") == {"status": "ok"}, lambda: log(node), timeout_s=30)
        said, chunks = stream(lab, node, 500)
        assert " ".join(said).startswith("This is a real engine that llmgw started over SSH.")
        assert " ".join(said).endswith("would do about it.")
        finished = [chunk["choices"][0]["finish_reason"] for chunk in chunks if chunk["choices"]]  # type: ignore[index]
        assert finished[-1] == "stop"
    finally:
        node.sh("systemctl stop engine")


def test_the_models_of_the_demo_are_small() -> None:
    assert (MODELS / "tiny.gguf").stat().st_size < 400_000
