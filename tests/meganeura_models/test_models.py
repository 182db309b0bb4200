"""The builders compute what transformers and torchvision compute on the same weights (`make_golden.py`)."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from ir.errors import ShapeError
from jax_backend.meganeura import Session
from jax_backend.models import (
    Generator,
    MissingWeights,
    Model,
    Weights,
    bert,
    decoder,
    load_weights,
    num_values,
    resnet,
    vit,
    whisper,
)
from tests.meganeura_ir.rust_graphs import rust_graph
from tests.meganeura_models.weights import token_ids, waves, weights

FILE = Path(__file__).with_name("golden.safetensors")
GOLDEN = load_file(FILE)
TOLERANCE = 1e-4
"""The golden outputs are float64 on the same weights; f32 stays within 2e-6 of them."""

LLAMA = decoder.DecoderConfig(61, 48, 80, 3, 6, 2, 8)
MISTRAL = decoder.DecoderConfig(61, 40, 72, 2, 4, 4, 10, 1e-6, 1e6, tie_word_embeddings=False, sliding_window=4)
WHISPER = whisper.WhisperConfig(48, 2, 3, 80, 2, 3, 80, 53, 8)
BERT = bert.BertConfig(67, 48, 2, 4, 80)


def given(case: str) -> dict[str, np.ndarray]:
    with safe_open(FILE, "np") as file:
        return weights(json.loads(file.metadata()[f"{case}.shapes"]))


def ran(model: Model, case: str, **inputs: Any) -> Session:
    session = Session(model.graph)
    load_weights(session, model, given(case))
    for name, data in inputs.items():
        session.set_input(name, data)
    session.step()
    return session


def assert_close(found: np.ndarray, case: str) -> None:
    wanted = GOLDEN[case].reshape(found.shape)
    np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE * np.abs(wanted).max())


@pytest.mark.parametrize(("case", "config", "count"), [("llama", LLAMA, 11), ("mistral", MISTRAL, 13)])
def test_decoder_has_the_logits_of_transformers(case: str, config: decoder.DecoderConfig, count: int) -> None:
    session = ran(decoder.build_graph(config, count), case, token_ids=token_ids(count, config.vocab_size))
    assert_close(session.read_output(), f"{case}.logits")


@pytest.mark.parametrize(("case", "config", "count"), [("llama", LLAMA, 11), ("mistral", MISTRAL, 13)])
def test_decoder_has_the_loss_and_gradients_of_torch(case: str, config: decoder.DecoderConfig, count: int) -> None:
    model = decoder.build_training_graph(config, count)
    session = Session(model.graph, gradients="jax")
    load_weights(session, model, given(case))
    tokens = token_ids(count, config.vocab_size)
    session.set_input("token_ids", tokens)
    session.set_input("labels", np.eye(config.vocab_size, dtype=np.float32)[np.roll(tokens, -1)])
    session.step()
    assert session.read_loss() == pytest.approx(float(GOLDEN[f"{case}.loss"][0]), rel=TOLERANCE)
    assert_close(session.read_param_grad("model.embed_tokens.weight"), f"{case}.grad.embed_tokens")
    assert_close(session.read_param_grad("model.layers.0.self_attn.q_proj.weight").T, f"{case}.grad.q_proj")


@pytest.mark.parametrize("bottleneck", [False, True], ids=["basic", "bottleneck"])
def test_resnet_has_the_logits_of_torchvision(bottleneck: bool) -> None:
    case = "resnet_bottleneck" if bottleneck else "resnet_basic"
    config = resnet.ResNetConfig((1, 1, 1, 1), bottleneck, num_classes=13, image_size=64)
    session = ran(resnet.build_graph(config, 2), case, image=waves((2, 3, 64, 64)))
    assert_close(session.read_output(), f"{case}.logits")


def test_whisper_has_the_states_and_logits_of_transformers() -> None:
    encoder = ran(whisper.build_encoder(WHISPER, 30), "whisper", mel=waves((8, 30)))
    assert_close(encoder.read_output(), "whisper.states")
    model = whisper.build_decoder(WHISPER, 9, 15)
    assert_close(
        ran(model, "whisper", token_ids=token_ids(9, 53), states=encoder.output()).read_output(), "whisper.logits"
    )


def test_bert_has_the_states_of_transformers_whatever_the_padding_holds() -> None:
    model = bert.build_embedder(BERT, 11)
    tokens = token_ids(7, 67)
    session = ran(model, "bert", token_ids=[*tokens, 3, 1, 4, 1], mask=[1] * 7 + [0] * 4)
    assert_close(session.read_output(0), "bert.embedding")
    assert_close(session.read_output(1)[:7], "bert.hidden")
    embedding = session.read_output(0)
    session.set_input("token_ids", [*tokens, 66, 65, 64, 63])
    session.step()
    np.testing.assert_array_equal(session.read_output(0), embedding)


def test_vit_has_the_states_and_logits_of_transformers() -> None:
    config = vit.ViTConfig(48, 2, 4, 80, image_size=20, patch_size=5, num_labels=7)
    session = ran(vit.build_graph(config), "vit", image=waves((3, 20, 20)))
    assert_close(session.read_output(0), "vit.logits")
    assert_close(session.read_output(1), "vit.states")


SMOLLM2 = replace(decoder.SMOLLM2_135M, rope_theta=1e4)
TINY = replace(whisper.WHISPER_TINY, activation_function="gelu_tanh")
WINDOW = decoder.DecoderConfig(64, 32, 64, 2, 2, 2, 16, tie_word_embeddings=False, sliding_window=8)


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("smollm2-135m", lambda: decoder.build_graph(SMOLLM2, 128)),
        ("smollm2-135m-loss", lambda: decoder.build_training_graph(SMOLLM2, 2)),
        ("smollm2-135m-prefill", lambda: decoder.build_prefill_graph(SMOLLM2, 128)),
        ("smollm2-135m-decode", lambda: decoder.build_decode_graph(SMOLLM2, 256)),
        ("mistral-small-test", lambda: decoder.build_graph(WINDOW, 11)),
        ("resnet18", lambda: resnet.build_graph(resnet.RESNET18, 1)),
        ("resnet50", lambda: resnet.build_graph(resnet.RESNET50, 4)),
        ("whisper-tiny", lambda: whisper.build_encoder(TINY, 3000)),
    ],
)
def test_graphs_are_those_that_meganeura_builds(name: str, build: Callable[[], Model]) -> None:
    assert str(build().graph) == str(rust_graph(name))


def test_parameters_are_as_many_as_the_models_have() -> None:
    assert num_values(decoder.build_graph(SMOLLM2, 8)) == 134_515_008
    assert num_values(resnet.build_graph(resnet.RESNET50, 1)) == 36_617_896
    assert num_values(resnet.build_training_graph(resnet.RESNET50, 4)) == 69_959_848
    assert num_values(whisper.build_training_graph(TINY, 3000)) == 9_935_616


def test_weights_are_read_from_files_of_halves_with_a_prefix(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"bert." + name: value.astype(np.float16) for name, value in given("bert").items()}, path)
    found = Weights(tmp_path, "bert.")
    assert set(found) == set(given("bert"))
    table = found["embeddings.word_embeddings.weight"]
    assert table.dtype == np.float32
    np.testing.assert_allclose(table, given("bert")["embeddings.word_embeddings.weight"], atol=1e-3)


def test_weights_of_several_files_are_found_by_their_index(tmp_path: Path) -> None:
    save_file({"a": np.arange(3, dtype=np.float32)}, tmp_path / "one.safetensors")
    save_file({"b": np.arange(5, dtype=np.float32)}, tmp_path / "two.safetensors")
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert {name: len(value) for name, value in Weights(tmp_path).items()} == {"a": 3, "b": 5}


def test_missing_weights_are_named() -> None:
    model = bert.build_embedder(BERT, 11)
    found = given("bert")
    del found["embeddings.LayerNorm.bias"]
    with pytest.raises(
        MissingWeights, match=r"expected embeddings\.LayerNorm\.bias; there are embeddings\.LayerNorm\.weight, "
    ):
        load_weights(Session(model.graph), model, found)


def test_more_positions_than_the_weights_have_are_refused() -> None:
    model = bert.build_embedder(BERT, 17)
    with pytest.raises(ShapeError, match=r"position_embeddings\.weight: expected at least 17 rows, got 16"):
        load_weights(Session(model.graph), model, given("bert"))


def test_a_configuration_is_read_as_hugging_face_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps(
            {
                "architectures": ["LlamaForCausalLM"],
                "vocab_size": 49152,
                "hidden_size": 576,
                "intermediate_size": 1536,
                "num_hidden_layers": 30,
                "num_attention_heads": 9,
                "num_key_value_heads": 3,
                "rms_norm_eps": 1e-5,
                "rope_theta": 100000,
                "tie_word_embeddings": True,
            }
        )
    )
    assert decoder.DecoderConfig.load(path) == decoder.SMOLLM2_135M


@pytest.mark.parametrize("prompt_len", [11, 16])
def test_generation_gives_the_tokens_of_transformers(prompt_len: int) -> None:
    made = Generator(LLAMA, given("llama"), prompt_len=prompt_len, max_seq=22)
    prompt = token_ids(11, LLAMA.vocab_size)
    assert made.generate(prompt, 12) == GOLDEN["llama.generated"].astype(int).tolist()
    spent = made.prefill.programs.compile_s + made.decode.programs.compile_s
    assert made.generate(prompt[:4], 3) != made.generate(prompt[:5], 3)
    assert made.generate(prompt, 1) == [int(GOLDEN["llama.generated"][0])]
    assert made.prefill.programs.compile_s + made.decode.programs.compile_s == spent


def test_a_prompt_without_room_is_refused() -> None:
    made = Generator(LLAMA, given("llama"), prompt_len=4, max_seq=6)
    for prompt, count in (([], 1), ([1] * 5, 1), ([1] * 4, 4)):
        with pytest.raises(ShapeError, match="prompt: expected 1 to 4 tokens and at most 6 with the continuation"):
            made.generate(prompt, count)


def test_decoding_a_batch_gives_what_each_sequence_gives_alone() -> None:
    model = decoder.build_decode_graph(LLAMA, 8)
    sequences = np.array([token_ids(3, 61), token_ids(6, 61)[3:]], np.uint32)
    found: list[np.ndarray] = []
    for batch in (None, 2):
        session = Session(model.graph, batch=batch, shared=["kv_pos"] if batch else [])
        load_weights(session, model, given("llama"))
        for rows in [sequences] if batch else sequences[:, None]:
            for position in range(3):
                session.set_input("token_ids", rows[:, position])
                session.set_input("kv_pos", [position])
                session.step()
            found.append(session.read_output().reshape(-1, 61))
    np.testing.assert_allclose(found[2], np.concatenate(found[:2]), rtol=1e-4, atol=1e-5)
