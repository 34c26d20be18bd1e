"""The router's decisions, without a router: names, choices, limits, bodies, framing, events."""

import json
import random
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.base import UsageError
from llmgw.serving import choose
from llmgw.serving.body import Ask, prompt_key, read_ask, repeated_model, with_model, with_usage
from llmgw.serving.catalog import Service, catalog_of, model_listing, static_service
from llmgw.serving.ejection import EjectionRules, Standing, after_failure, after_probe, after_success, calmed
from llmgw.serving.endpoints import Endpoint, EndpointsFile, ServedModel
from llmgw.serving.events import Usage, body_usage, event_end, is_complete, says_usage, sift, told
from llmgw.serving.failover import RetryBudget, Trouble, may_try_again, says_not_started
from llmgw.serving.faults import Fault, fault_event, unknown_model
from llmgw.serving.framing import Dechunker, FramingError, chunk, is_one_chunk, whole_chunks
from llmgw.serving.limits import WINDOW_S, add, fresh_window, has_room, roll, settle, wait_for_room
from llmgw.serving.load import EngineLoad, parse_load
from llmgw.serving.multipart import FormModel, form_model, with_form_model
from llmgw.serving.queue import FairQueue
from llmgw.serving.reload import decide_reload
from llmgw.serving.reply import ReplyError, read_reply
from llmgw.serving.routes import Dialect

settings.register_profile("llmgw", deadline=None)
settings.load_profile("llmgw")
NOW = datetime(2026, 12, 1, tzinfo=UTC)


def endpoint(name: str, *, model: str = "qwen", profile: str = "tp8", state: str = "ready") -> Endpoint:
    url = f"http://10.0.0.1:{8000 + abs(hash(name)) % 1000}"
    return Endpoint.model_validate(
        {"id": name, "model": model, "profile": profile, "url": url, "state": state, "node": "n", "spec": "s"}
    )


FILE = EndpointsFile(
    generation=4,
    written=NOW,
    models=(
        ServedModel(name="qwen", aliases=("gpt-4",), state="ready", default_profile="tp8"),
        ServedModel(name="cold", state="stopped", default_profile="p"),
    ),
    endpoints=(endpoint("qwen/0"), endpoint("qwen:tp4/0", profile="tp4"), endpoint("qwen/1", state="draining")),
)


def test_names_mean_the_default_profile_unless_they_name_another() -> None:
    targets = catalog_of(FILE).targets
    by_id = {e.id: e.url for e in FILE.endpoints}
    assert targets["qwen"].urls == targets["gpt-4"].urls == targets["qwen:tp8"].urls == (by_id["qwen/0"],)
    assert targets["qwen:tp4"].urls == (by_id["qwen:tp4/0"],)
    assert targets["gpt-4"].model == "qwen"
    assert (targets["cold"].state, targets["cold"].urls) == ("stopped", ())
    assert "qwen:nope" not in targets


def test_models_are_listed_with_aliases_and_states_as_far_as_a_key_may_see_them() -> None:
    listed = {entry["id"]: entry["state"] for entry in model_listing(catalog_of(FILE), None)}
    assert listed == {"qwen": "ready", "gpt-4": "ready", "cold": "stopped"}
    assert [entry["id"] for entry in model_listing(catalog_of(FILE), {"cold"})] == ["cold"]


def test_a_static_endpoint_serves_several_models() -> None:
    service = static_service("box=http://10.0.0.5:8000=a,b")
    targets = catalog_of(EndpointsFile(generation=0, written=NOW), (service,)).targets
    assert targets["a"].urls == targets["b"].urls == ("http://10.0.0.5:8000",)
    for wrong in ("box", "box=ftp://x=m", "=http://x=m", "box=http://x="):
        with pytest.raises(UsageError):
            static_service(wrong)


def test_a_file_that_is_older_or_wrong_is_kept_out_with_a_reason() -> None:
    text = FILE.text().encode()
    assert decide_reload(text, "e.json", 4).file == FILE
    assert "older than 5" in decide_reload(text, "e.json", 5).problem
    assert "e.json" in decide_reload(b"{", "e.json", -1).problem
    twice = replace_text(text, '"qwen:tp4/0"', '"qwen/0"')
    assert "stands twice" in decide_reload(twice, "e.json", -1).problem


def replace_text(text: bytes, old: str, new: str) -> bytes:
    assert old.encode() in text
    return text.replace(old.encode(), new.encode())


# -- choices


@dataclass
class At:
    """An endpoint as a choice sees it."""

    name: str
    in_flight: int = 0
    cap: int = choose.UNBOUNDED
    share: float = 1.0
    elsewhere: int = 0

    @property
    def seed(self) -> int:
        return choose.hashed(self.name.encode())


worlds = st.lists(
    st.builds(
        At,
        st.uuids().map(str),
        st.integers(0, 50),
        st.sampled_from([1, 4, 30, choose.UNBOUNDED]),
        st.sampled_from([0.1, 1.0, 2.0, 10.0]),
    ),
    min_size=1,
    max_size=12,
)


@given(worlds, st.integers(0, 10**9), st.floats(0, 0.999), st.floats(0, 0.999))
def test_no_choice_ever_takes_a_full_endpoint_or_leaves_a_free_one_unused(
    world: list[At], number: int, one: float, two: float
) -> None:
    free = [at for at in world if at.in_flight < at.cap]
    chosen = (
        choose.least_in_flight(world, number),
        choose.power_of_two(world, one, two),
        choose.by_affinity(world, number, 1.25),
    )
    for found in chosen:
        assert (found in free) if free else (found is None)
    if free and chosen[0] is not None:
        assert chosen[0].in_flight / chosen[0].share == min(at.in_flight / at.share for at in free)


def test_idle_endpoints_take_turns_by_their_weight() -> None:
    world = [At("a", share=1.0), At("b", share=3.0)]
    taken = Counter(found.name for turn in range(4000) if (found := choose.least_in_flight(world, turn)))
    assert 970 < taken["a"] < 1030


@given(st.integers(3, 12), st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_one_more_endpoint_moves_about_its_part_of_the_sessions(count: int, salt: int) -> None:
    before = [At(f"{salt}-{n}") for n in range(count)]
    after = [*before, At(f"{salt}-new")]
    keys = [choose.hashed(f"session {n}".encode()) for n in range(600)]
    moved = 0
    for key in keys:
        old, new = choose.by_affinity(before, key, 1e9), choose.by_affinity(after, key, 1e9)
        assert old is not None
        assert new is not None
        if new is not old:
            assert new.name == f"{salt}-new", "no session moves between endpoints that stay"
            moved += 1
    assert moved / 600 < 2.2 / (count + 1)


@given(st.integers(1, 10), st.floats(1.0, 2.0), st.integers(0, 5))
@settings(max_examples=30, deadline=None)
def test_affinity_keeps_every_endpoint_under_the_bound(count: int, bound: float, salt: int) -> None:
    world = [At(f"{salt}/{n}") for n in range(count)]
    rnd = random.Random(salt)
    for sent in range(1, 200):
        found = choose.by_affinity(world, rnd.getrandbits(64) if rnd.random() < 0.5 else 7, bound)
        assert found is not None
        found.in_flight += 1
        assert found.in_flight <= -(-bound * sent // count) + 1


def test_warmth_rises_from_a_tenth_to_one() -> None:
    assert [choose.warmth(age, 30) for age in (0, 3, 15, 30, 99)] == [0.1, 0.1, 0.5, 1.0, 1.0]


# -- ejection and failover


def test_an_endpoint_is_out_after_five_failures_and_each_time_for_longer() -> None:
    rules = EjectionRules()
    standing = Standing()
    for _ in range(4):
        standing = after_failure(standing, rules, now=100, out=0, total=4)
    assert not standing.is_out(100)
    standing = after_failure(standing, rules, now=100, out=0, total=4)
    assert (standing.out_until, standing.ejections) == (130, 1)
    standing = after_probe(standing, rules, now=130, healthy=False)
    assert standing.out_until == 190
    standing = after_probe(standing, rules, now=190, healthy=True)
    assert not standing.is_out(190)
    assert calmed(standing, rules, now=1000).ejections == standing.ejections - 1
    assert after_success(replace(standing, failures=3)).failures == 0


@given(st.integers(1, 20), st.lists(st.integers(0, 19), max_size=300))
def test_never_more_than_half_of_a_models_endpoints_are_out(total: int, failing: list[int]) -> None:
    standings = [Standing() for _ in range(total)]
    for index in failing:
        out = sum(one.is_out(1) for one in standings)
        at = index % total
        standings[at] = after_failure(standings[at], EjectionRules(), now=1, out=out, total=total)
        assert sum(one.is_out(1) for one in standings) <= total / 2


def test_only_what_no_engine_can_have_begun_is_tried_again() -> None:
    budget = RetryBudget()
    assert may_try_again(Trouble.UNREACHABLE, 1, budget)
    assert may_try_again(Trouble.NOT_TAKEN, 2, budget)
    assert not may_try_again(Trouble.UNREACHABLE, 3, budget)
    assert not may_try_again(Trouble.LOST, 1, budget)
    allowed = sum(may_try_again(Trouble.DECLINED, 1, budget) for _ in range(100))
    assert allowed == budget.least
    assert says_not_started(503, b'{"error":{"message":"Loading model","type":"unavailable_error"}}')
    assert not says_not_started(503, b'{"error":"overloaded"}')
    assert not says_not_started(500, b'{"error":{"message":"Loading model"}}')


# -- limits


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 60), st.integers(0, 60)), max_size=60),
    st.integers(1, 20),
    st.integers(20, 200),
)
def test_in_any_sixty_seconds_a_key_gets_what_it_may_and_no_more(
    steps: list[tuple[int, int, int]], requests: int, tokens: int
) -> None:
    """Requests at steps of some seconds, each wanting and then using some tokens."""
    cells, second, taken = fresh_window(), 1000, []
    for wait, wanted, used in steps:
        second += wait
        roll(cells, second)
        if has_room(cells, requests, tokens, wanted):
            add(cells, 1, wanted)
            settle(cells, second, reserved=wanted, used=min(used, wanted))
            taken.append((second, min(used, wanted)))
        else:
            later = second + wait_for_room(cells, requests=requests, tokens=tokens, wanted=wanted)
            again = list(cells)
            roll(again, later)
            assert has_room(again, requests, tokens, wanted), "Retry-After is long enough"
            roll(again := list(cells), later - 1)
            assert later == second + 1 or not has_room(again, requests, tokens, wanted), "and no longer"
        window = [t for at, t in taken if second - at < WINDOW_S]
        assert len(window) <= requests
        assert sum(window) <= max(tokens, 60)
        assert (cells[1], cells[2]) == (len(window), sum(window))


def test_five_parallel_requests_cannot_spend_one_allowance_twice() -> None:
    cells = fresh_window()
    roll(cells, 50)
    admitted = 0
    for _ in range(5):
        if has_room(cells, None, 100, 60):
            add(cells, 1, 60)
            admitted += 1
    assert admitted == 1
    settle(cells, 50, reserved=60, used=30)
    assert has_room(cells, None, 100, 60)


def test_what_is_settled_after_its_second_left_the_window_counts_now() -> None:
    cells = fresh_window()
    roll(cells, 10)
    add(cells, 1, 5)
    roll(cells, 100)
    settle(cells, 10, reserved=5, used=50)
    assert cells[2] == 45
    settle(cells, 10, reserved=5, used=1)
    assert cells[2] == 45


def test_keys_take_turns_in_the_queue_and_the_longest_line_makes_room() -> None:
    queue: FairQueue[str] = FairQueue(4)
    assert [queue.put("loud", f"l{n}") for n in range(6)] == [None, None, None, None, "l4", "l5"]
    assert queue.put("calm", "c0") == "l3"
    assert [queue.pop() for _ in range(5)] == ["l0", "c0", "l1", "l2", None]
    queue.put("a", "x")
    queue.remove("a", "x")
    assert (len(queue), queue.pop()) == (0, None)


# -- bodies

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
bodies = st.dictionaries(
    st.sampled_from(
        ["messages", "stream", "stream_options", "max_tokens", "n", "user", "temperature", "modelx", "é"]
    ),
    json_values,
    max_size=6,
)


@given(bodies, st.text(min_size=1, max_size=12), st.booleans(), st.booleans(), st.booleans())
def test_a_bodys_model_is_read_and_replaced_and_all_else_stays(
    rest: dict[str, object], model: str, first: bool, escaped: bool, spaced: bool
) -> None:
    value = {"model": model, **rest} if first else {**rest, "model": model}
    separators = (" ,\n", " : ") if spaced else (",", ":")
    body = json.dumps(value, ensure_ascii=escaped, separators=separators).encode("utf-8", "surrogatepass")
    ask = read_ask(body)
    if isinstance(ask, Fault):
        assert any("\ud800" <= char <= "\udfff" for char in repr(value) + model) or "\\ud" in body.decode(
            "latin-1"
        )
        return
    assert (ask.model, ask.streams) == (model, rest.get("stream") is True)
    changed = with_model(body, "other-model")
    assert json.loads(changed) == {**value, "model": "other-model"}
    if rest.get("stream") is True:
        wanted = json.loads(with_usage(changed))
        options = rest.get("stream_options")
        kept = options if isinstance(options, dict) else {}
        assert wanted == {**value, "model": "other-model", "stream_options": {**kept, "include_usage": True}}


def test_only_the_models_bytes_change_where_it_stands_first() -> None:
    body = b'{ "model" : "fast",  "messages": [ {"content":"\\"model\\": x"} ] }'
    assert with_model(body, "slow") == b'{ "model" : "slow",  "messages": [ {"content":"\\"model\\": x"} ] }'


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"m"',
        b'{"model":1}',
        b'{"model":""}',
        b"{}",
        b'{"model":"m"} x',
        b"\xff",
        b"[" * 9000,
    ],
)
def test_what_has_no_model_is_refused(body: bytes) -> None:
    ask = read_ask(body)
    assert isinstance(ask, Fault)
    assert ask.status == 400


def test_a_body_with_two_models_is_seen() -> None:
    assert repeated_model(b'{"model":"a","x":{"model":"c"},"model":"b"}', "b")
    assert repeated_model(b'{"\\u006dodel":"a","model":"b"}', "b")
    assert not repeated_model(b'{"model":"b","x":{"model":"a"}}', "b")
    assert not repeated_model(b'{"x":{"model":"a"},"model":"b"}', "b")


def test_most_tokens_sessions_and_prompts() -> None:
    assert Ask("m", max_tokens=10, n=3).most_tokens == 30
    assert Ask("m", max_tokens="x").most_tokens is None
    assert Ask("m", prompt_cache_key="k", user="u").session == "k"
    one = prompt_key(b'{"model":"m","messages":[{"role":"system","content":"be brief"}],"temperature":1}')
    two = prompt_key(b'{"temperature":0,"messages":[{"role":"system","content":"be brief"}],"model":"m"}')
    assert one == two == b'[{"role":"system","content":"be brief"}]'


# -- forms


def form(*parts: tuple[str, bytes], boundary: str = "XX") -> bytes:
    made = b"".join(b"--%b\r\n%b\r\n\r\n%b\r\n" % (boundary.encode(), head.encode(), data) for head, data in parts)
    return made + f"--{boundary}--\r\n".encode()


FIELD = 'Content-Disposition: form-data; name="model"'
UPLOAD = 'Content-Disposition: form-data; name="file"; filename="a.wav"\r\nContent-Type: audio/wav'


@given(st.binary(max_size=300), st.booleans())
def test_a_forms_model_is_found_and_replaced_around_any_file(data: bytes, last: bool) -> None:
    if b"--XX" in data:
        return
    parts = [(FIELD, b"whisper"), (UPLOAD, data)]
    body = form(*(parts[::-1] if last else parts))
    found = form_model(b'multipart/form-data; boundary="XX"', body)
    assert isinstance(found, FormModel)
    assert found.model == "whisper"
    assert with_form_model(body, found, "other") == form(
        *([(FIELD, b"other"), (UPLOAD, data)][:: -1 if last else 1])
    )


def test_forms_that_name_no_model_or_two_are_refused() -> None:
    kind = b"multipart/form-data; boundary=XX"
    for body in (
        form((UPLOAD, b"x")),
        form((FIELD, b"a"), (FIELD, b"b")),
        b"--XX\r\n",
        b"",
        form((FIELD, b"\xff")),
    ):
        assert isinstance(form_model(kind, body), Fault)
    assert isinstance(form_model(b"multipart/form-data", form((FIELD, b"a"))), Fault)


# -- framing and events


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.lists(st.integers(0, 400), max_size=8))
def test_chunks_come_apart_the_same_however_they_are_cut(payloads: list[bytes], cuts: list[int]) -> None:
    data = b"".join(map(chunk, payloads)) + b"0\r\n\r\n"
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    frames, got = Dechunker(), b""
    for start, end in pairwise(edges):
        got += frames.feed(data[start:end])
    assert got == b"".join(payloads)
    assert frames.done
    assert whole_chunks(data) == 2
    assert all(is_one_chunk(chunk(payload)) and whole_chunks(chunk(payload)) == 1 for payload in payloads)
    with pytest.raises(FramingError):
        frames.feed(b"x")


@given(st.binary(max_size=80))
def test_what_counts_as_whole_chunks_comes_apart_without_complaint(data: bytes) -> None:
    for made in (data, chunk(data), b"5\r\n" + data):
        kind = whole_chunks(made)
        assert not is_one_chunk(made) or kind == 1
        if kind:
            frames = Dechunker()
            frames.feed(made)
            assert frames.done == (kind == 2)
            assert frames.clean == (kind == 1)


@pytest.mark.parametrize(
    "data", [b"x\r\n", b"-1\r\n", b"+1\r\na\r\n", b"1_0\r\n", b"0x1\r\na\r\n", b"1\r\nab\r\n", b"5\na"]
)
def test_what_is_not_chunked_is_refused(data: bytes) -> None:
    with pytest.raises(FramingError):
        Dechunker().feed(data)
    assert not whole_chunks(data)
    assert not is_one_chunk(data)


def sse(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


COUNTS = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


def test_the_usage_event_is_taken_out_and_nothing_else() -> None:
    token = sse({"choices": [{"delta": {"content": 'the "usage" of words'}}]})
    word = sse({"choices": [{"delta": {"content": "usage"}}]})
    null = sse({"choices": [{"delta": {}}], "usage": None})
    both = sse({"choices": [{"delta": {}}], "usage": COUNTS})
    only = sse({"choices": [], "usage": COUNTS})
    done = b"data: [DONE]\n\n"
    usage, kept = sift(token + word + null + both + only + done)
    assert usage == Usage(7, 3)
    assert kept == token + word + null + both + done
    assert not says_usage(null)
    assert says_usage(only)
    assert sift(b": ping\n\n" + only)[1] == b": ping\n\n"
    assert sift(only.replace(b"\n\n", b"\r\n\r\n") + token)[1] == token


def test_usage_is_read_in_every_dialect() -> None:
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 25, "output_tokens": 1}}}
    delta = {"type": "message_delta", "usage": {"output_tokens": 15}}
    assert told(b"event: message_start\n" + sse(start) + b"event: message_delta\n" + sse(delta)) == Usage(25, 15)
    response = {
        "response": {
            "usage": {"input_tokens": 4, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 2}}
        }
    }
    assert told(sse({"type": "response.completed", **response})) == Usage(4, 5, 2)
    assert body_usage(json.dumps({"usage": COUNTS, "x": "y"}).encode()) == Usage(7, 3)
    assert body_usage(b'..., "usage"}], "usage": ' + json.dumps(COUNTS).encode() + b', "a": 1}') == Usage(7, 3)
    assert body_usage(b'{"usage": "none"}') is None
    assert body_usage(b"[1,2]") is None


def test_a_stream_is_complete_only_with_its_dialects_own_mark() -> None:
    assert is_complete(sse({}) + b"data: [DONE]\n\n", Dialect.OPENAI)
    assert not is_complete(sse({"choices": [{"delta": {"content": "data: [DONE]"}}]}), Dialect.OPENAI)
    assert is_complete(b"event: message_stop\n" + sse({}), Dialect.ANTHROPIC)
    assert is_complete(b"event: response.completed\n" + sse({}), Dialect.RESPONSES)
    assert not is_complete(b"", Dialect.OPENAI)


@given(st.lists(st.sampled_from([b"data: a", b"\n", b"\r\n", b"\n\n", b"\r\n\r\n", b"x"]), max_size=10))
def test_whole_events_end_with_an_empty_line(parts: list[bytes]) -> None:
    data = b"".join(parts)
    end = event_end(data)
    assert end == 0 or data[:end].endswith((b"\n\n", b"\n\r\n"))
    assert b"\n\n" not in data[end:]


# -- answers


def test_an_answers_head_is_read_strictly() -> None:
    kind = b"Content-Type: text/event-stream; charset=utf-8"
    head = b"HTTP/1.1 200 OK\r\nServer: x\r\n" + kind + b"\r\nTransfer-Encoding: chunked"
    reply = read_reply(head)
    assert (reply.status, reply.chunked, reply.event_stream, reply.keeps) == (200, True, True, True)
    assert reply.passed == b"Content-Type: text/event-stream; charset=utf-8\r\n"
    kept = read_reply(b"HTTP/1.1 503 X\r\nContent-Length: 3\r\nKeep-Alive: timeout=5, max=100\r\nRetry-After: 4")
    assert (kept.length, kept.kept_s, kept.passed) == (3, 5.0, b"Retry-After: 4\r\n")
    assert not read_reply(b"HTTP/1.0 200 OK").keeps
    assert not read_reply(b"HTTP/1.1 200 OK\r\nConnection: close").keeps


@pytest.mark.parametrize(
    "head",
    [
        b"", b"HTTP/2 200 OK", b"HTTP/1.1 2000 OK", b"HTTP/1.1 200 OK\r\nno colon", b"HTTP/1.1 200 OK\r\nA : b",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1", b"HTTP/1.1 200 OK\r\nContent-Length: -1",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked",
        b"HTTP/1.1 200 OK\r\nX: a\nContent-Length: 5",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip", b"HTTP/1.1 200 OK\r\nContent-Type: a\rb",
        b"HTTP/1.1 200 OK\r\n folded",
    ],
)  # fmt: skip
def test_an_answer_that_can_be_read_in_two_ways_is_none(head: bytes) -> None:
    with pytest.raises(ReplyError):
        read_reply(head)


@given(st.binary(max_size=200))
def test_no_bytes_of_an_engines_raise_anything_but_a_reply_error(data: bytes) -> None:
    for head in (data, b"HTTP/1.1 200 OK\r\n" + data):
        try:
            reply = read_reply(head)
        except ReplyError:
            continue
        assert b"\n" not in reply.passed.replace(b"\r\n", b"")
        assert b"\r" not in reply.passed.replace(b"\r\n", b"")


@given(st.binary(max_size=300))
def test_no_bytes_make_the_readers_of_usage_fail(data: bytes) -> None:
    for text in (data, b'{"usage":' + data, b'data: {"usage":' + data + b"\n\n"):
        sift(text)
        told(text)
        body_usage(text)


def test_errors_show_what_a_client_sent_without_letting_it_steer_a_terminal() -> None:
    fault = unknown_model("\x1b]0;pwned\x07" + "x" * 500)
    assert "\x1b" not in fault.message
    assert len(fault.message) < 400
    assert b"\n\n" not in fault_event(fault, Dialect.OPENAI, "r")[:-2]


def test_load_is_read_from_each_engines_metrics() -> None:
    page = '# HELP x\nvllm:num_requests_running{engine="0"} 3.0\nvllm:num_requests_waiting{engine="0"} 2.0\n'
    assert parse_load("vllm", page + "vllm:kv_cache_usage_perc 0.5\n") == EngineLoad(3, 2, 0.5)
    assert parse_load("llama.cpp", "llamacpp:requests_processing 1\nllamacpp:requests_deferred 4\n") == EngineLoad(
        1, 4
    )
    assert parse_load("vllm", "nothing 1") is None
    assert parse_load("other", page) is None
    assert parse_load("vllm", "vllm:num_requests_running NaN\nvllm:num_requests_waiting 1e300") is None


def test_static_and_published_endpoints_with_one_url_are_one() -> None:
    same = Service(id="s", url=FILE.endpoints[0].url, models=("qwen",), profile="tp8")
    assert len(catalog_of(FILE, (same,)).services) == len(FILE.endpoints)
    assert msgspec.json.encode(read_ask(b'{"model":"m"}'))
