"""Write a tiny GGUF model that a real llama-server serves and that says what it was told to, token by token.

    python -m tests.fakes.tiny_gguf OUT.gguf [--says count|text] [--layers 2] [--embd 64] …

Pure Python, the same bytes for the same arguments. The model is a chain: every token has a vector of plus and
minus ones for an embedding, the output matrix holds each token's predecessor, and whatever the layers compute
is multiplied by zero before it is added. So the next token is certain at any temperature, while attention and
feed-forward cost what they cost in a model of that size: more layers make a slower stream, not another text.
"count" says 1 2 3 …, which shows a lost or doubled token at once.

Names of keys and tensors: llama.cpp, src/llama-arch.cpp.
"""

import argparse
import random
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fakes.gguf_file import (
    ALIGNMENT,
    BOOL,
    F32,
    I32,
    STRING,
    TENSOR_F16,
    TENSOR_F32,
    U16,
    U32,
    Tensor,
    array,
    key,
    write_file,
)

NORMAL, UNKNOWN, CONTROL, UNUSED, BYTE = 1, 2, 3, 5, 6
TEXT = """
This|is|a|real|engine|that|llmgw|started|over|SSH.|The|map|of|fabrics|came|from|ibnetdiscover,|the|plan|chose|nodes|by
their|leaf|switches,|and|each|word|you|read|was|streamed|through|its|router|without|change.|Nothing|stays|behind|on|GPU
hosts|but|sshd|and what|it|runs.|Ask|again,|pull|one|cable,|cordon|any|node,|then|see|what|`llmgw
plan`|would|do|about|it.
"""
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
NOISE = 65521  # a prime, so that rows of no length repeat each other


@dataclass(frozen=True, slots=True)
class TinyModel:
    """What the model says, and how large it is. With `stops` it ends after the last word, else it begins again."""

    says: tuple[str, ...]
    stops: bool = False
    layers: int = 2
    embd: int = 64
    heads: int = 4
    kv_heads: int = 2
    feed_forward: int = 128
    context: int = 4096
    arch: str = "llama"
    name: str = "tiny"
    seed: int = 0

    @property
    def head(self) -> int:
        return self.embd // self.heads


def counting(last: int = 400) -> tuple[str, ...]:
    """The numbers from 1 on, as words."""
    return tuple(str(number) for number in range(1, last + 1))


def telling() -> tuple[str, ...]:
    """What the demo's model says, with the end of the line as a part of the last word."""
    *words, last = TEXT.strip().replace("\n", "|").split("|")
    return (*words, f"{last}\n")


def vocabulary(model: TinyModel) -> tuple[list[tuple[str, int]], int]:
    """Every token and its kind, and where the words of the text begin."""
    tokens = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]
    tokens += [(f"<0x{byte:02X}>", BYTE) for byte in range(256)]
    tokens += [(chr(code), NORMAL) for code in (*range(33, 127), 0x2581)]
    first = len(tokens)
    tokens += [("\u2581" + word.replace(" ", "\u2581"), NORMAL) for word in model.says]
    if len({text for text, _ in tokens}) < len(tokens):
        raise ValueError("a word of the text stands twice, or is a single character")
    tokens += [(f"<spare{number}>", UNUSED) for number in range(-len(tokens) % ALIGNMENT)]
    return tokens, first


def _halves(values: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(values)}e", *values)


def _apart(model: TinyModel, count: int) -> list[list[float]]:
    """Vectors of plus and minus ones, no two of which agree in more than 73 of 100 places."""
    chance, chosen = random.Random(model.seed), list[int]()
    while len(chosen) < count:
        for _ in range(100):
            bits = chance.getrandbits(model.embd)
            if all((bits ^ other).bit_count() >= 0.27 * model.embd for other in chosen):
                break
        else:
            raise ValueError(f"{len(model.says)} words do not fit into embeddings of {model.embd}")
        chosen.append(bits)
    return [[1.0 if bits >> place & 1 else -1.0 for place in range(model.embd)] for bits in chosen]


def embeddings(model: TinyModel) -> tuple[bytes, bytes]:
    """The input and the output matrix of the chain.

    A token's logit is its row of the output matrix times the vector of the token before: 80 for the right one,
    and at most 0.46 of that for any other, so that another word has a chance of e^-43. All tokens outside the
    text share one vector, after which comes the first word.
    """
    tokens, first = vocabulary(model)
    count = len(model.says)
    outside, *words = _apart(model, count + 1)
    vectors = [words[n - first] if first <= n < first + count else outside for n in range(len(tokens))]
    before = {first + number + 1: [vector] for number, vector in enumerate(words[:-1])}
    before.setdefault(2 if model.stops else first, []).append(words[-1])
    before.setdefault(first, []).append(outside)
    scale, nothing = 80.0 / model.embd, [0.0] * model.embd
    rows = (
        [scale * sum(column) for column in zip(*before[n], strict=True)] if n in before else nothing
        for n in range(len(tokens))
    )
    return b"".join(map(_halves, vectors)), b"".join(map(_halves, rows))


def tensors(model: TinyModel) -> Iterator[Tensor]:
    """All of them, in the order of the file."""
    size = len(vocabulary(model)[0])
    inputs, outputs = embeddings(model)
    yield Tensor("token_embd.weight", (model.embd, size), TENSOR_F16, inputs)
    yield Tensor("output.weight", (model.embd, size), TENSOR_F16, outputs)
    yield _ones("output_norm.weight", model.embd)
    noise = _noise(model.seed)
    for layer in range(model.layers):
        yield from _layer(f"blk.{layer}.", model, noise)


def _layer(block: str, model: TinyModel, noise: bytes) -> Iterator[Tensor]:
    """One layer: everything is computed, and what would be added at its end is zero."""
    wide, narrow = model.embd, model.kv_heads * model.head
    yield _ones(block + "attn_norm.weight", wide)
    yield _noisy(block + "attn_q.weight", (wide, wide), noise)
    yield _noisy(block + "attn_k.weight", (wide, narrow), noise)
    yield _noisy(block + "attn_v.weight", (wide, narrow), noise)
    yield _zeros(block + "attn_output.weight", (wide, wide))
    yield _ones(block + "ffn_norm.weight", wide)
    yield _noisy(block + "ffn_gate.weight", (wide, model.feed_forward), noise)
    yield _noisy(block + "ffn_up.weight", (wide, model.feed_forward), noise)
    yield _zeros(block + "ffn_down.weight", (model.feed_forward, wide))


def _noise(seed: int) -> bytes:
    chance = random.Random(seed)
    return _halves([chance.uniform(-0.1, 0.1) for _ in range(NOISE)])


def _ones(name: str, length: int) -> Tensor:
    return Tensor(name, (length,), TENSOR_F32, struct.pack("<f", 1.0) * length)


def _zeros(name: str, shape: tuple[int, int]) -> Tensor:
    return Tensor(name, shape, TENSOR_F16, bytes(2 * shape[0] * shape[1]))


def _noisy(name: str, shape: tuple[int, int], noise: bytes) -> Tensor:
    length = 2 * shape[0] * shape[1]
    return Tensor(name, shape, TENSOR_F16, (noise * (length // len(noise) + 1))[:length])


def keys(model: TinyModel) -> list[bytes]:
    """The file's keys and values, written out."""
    tokens, _ = vocabulary(model)
    arch = model.arch
    numbers = {
        "context_length": model.context,
        "embedding_length": model.embd,
        "block_count": model.layers,
        "feed_forward_length": model.feed_forward,
        "attention.head_count": model.heads,
        "attention.head_count_kv": model.kv_heads,
        "attention.key_length": model.head,
        "attention.value_length": model.head,
        "rope.dimension_count": model.head,
        "vocab_size": len(tokens),
    }
    return [
        key("general.architecture", STRING, arch),
        key("general.name", STRING, model.name),
        key("general.file_type", U32, 1),
        *(key(f"{arch}.{name}", U32, number) for name, number in numbers.items()),
        key(f"{arch}.attention.layer_norm_rms_epsilon", F32, 1e-5),
        key(f"{arch}.rope.freq_base", F32, 10000.0),
        key("tokenizer.ggml.model", STRING, "llama"),
        key("tokenizer.ggml.pre", STRING, "default"),
        array("tokenizer.ggml.tokens", STRING, [text for text, _ in tokens]),
        array(
            "tokenizer.ggml.scores",
            F32,
            [0.0 if kind == BYTE else -float(n) for n, (_, kind) in enumerate(tokens)],
        ),
        array("tokenizer.ggml.token_type", I32, [kind for _, kind in tokens]),
        key("tokenizer.ggml.bos_token_id", U32, 1),
        key("tokenizer.ggml.eos_token_id", U32, 2),
        key("tokenizer.ggml.unknown_token_id", U32, 0),
        key("tokenizer.ggml.add_bos_token", BOOL, True),
        key("tokenizer.chat_template", STRING, TEMPLATE),
    ]


def write(path: Path, model: TinyModel, *, shards: int = 1) -> list[Path]:
    """Write the model, in one file or in NAME-00001-of-0000N.gguf; the files, the one to serve first.

    Of several, only the first has the keys of the model; all have split.no, split.count and split.tensors.count.
    """
    every = list(tensors(model))
    if shards == 1:
        with path.open("wb") as file:
            write_file(file, keys(model), every)
        return [path]
    paths = []
    for number in range(shards):
        split = [key("split.no", U16, number), key("split.count", U16, shards)]
        split.append(key("split.tensors.count", I32, len(every)))
        paths.append(path.with_name(f"{path.stem}-{number + 1:05d}-of-{shards:05d}.gguf"))
        own = every[len(every) * number // shards : len(every) * (number + 1) // shards]
        with paths[-1].open("wb") as file:
            write_file(file, [*(keys(model) if number == 0 else ()), *split], own)
    return paths


def main(argv: Sequence[str]) -> int:
    """Write what the arguments ask for, and print the files' names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--says", default="text", help="text, count, or words between |")
    parser.add_argument("--stops", action="store_true", help="end after the last word, with finish_reason stop")
    for name in ("layers", "embd", "heads", "kv-heads", "feed-forward", "context", "seed"):
        default = getattr(TinyModel((), layers=2), name.replace("-", "_"))
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument(
        "--arch", default="llama", help="one that llama.cpp does not know makes a file that it refuses"
    )
    parser.add_argument("--name", default="tiny")
    parser.add_argument("--shards", type=int, default=1)
    args = vars(parser.parse_args(argv))
    out, shards, says = args.pop("out"), args.pop("shards"), args.pop("says")
    words = {"text": telling(), "count": counting()}.get(says) or tuple(says.split("|"))
    for path in write(out, TinyModel(words, **args), shards=shards):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
