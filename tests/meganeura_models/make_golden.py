"""Writes `golden.safetensors`: what transformers and torchvision compute on the weights of `weights.py`.

    python -m venv torch && torch/bin/pip install torch==2.9.1 torchvision==0.24.1 transformers==5.24.0 safetensors
    torch/bin/python -m tests.meganeura_models.make_golden

Each model runs in float64 on weights that are exact in float32, with attention written out ("eager"), so that the file
holds the function itself. Its metadata has the versions and, per model, the configuration and the shape of each tensor.
"""

import json
from collections.abc import Callable, Mapping
from functools import reduce
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tests.meganeura_models.weights import token_ids, waves, weights

GOLDEN = Path(__file__).with_name("golden.safetensors")


def filled(model: Any, in_files: Mapping[str, str] | None = None) -> tuple[Any, dict[str, list[int]]]:
    """The model in float64 with our weights, and the shape of every tensor that it has of its own.

    `in_files` are parts of names as torch has them, and what stands there in published files.
    """
    import torch

    if hasattr(model, "tie_weights"):
        model.tie_weights()
    names: dict[str, str] = {}
    shapes: dict[str, list[int]] = {}
    seen: set[int] = set()
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point() and tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            names[name] = reduce(lambda n, part: n.replace(*part), (in_files or {}).items(), name)
            shapes[names[name]] = list(tensor.shape)
    made = weights(shapes)
    model.load_state_dict({name: torch.from_numpy(made[names[name]]) for name in names}, strict=False)
    return model.double().eval(), shapes


Case = tuple[dict[str, Any], dict[str, list[int]]]
"""Outputs by name, and the shape of each tensor that the model has."""


def decoder(config: Any, prompt: int, generated: int) -> Case:
    """Logits of a prompt, the loss and two gradients of predicting each next token, and greedy continuation."""
    import torch
    import transformers

    config._attn_implementation = "eager"
    model, shapes = filled(transformers.AutoModelForCausalLM.from_config(config))
    tokens = torch.tensor([token_ids(prompt, config.vocab_size)])
    logits = model(tokens).logits[0]
    labels = tokens[0].roll(-1)
    loss = torch.nn.functional.cross_entropy(logits, labels)
    loss.backward()
    named = dict(model.named_parameters())
    found = model.generate(tokens, max_new_tokens=generated, do_sample=False, pad_token_id=0)
    return {
        "logits": logits,
        "loss": loss.reshape(1),
        "grad.embed_tokens": named["model.embed_tokens.weight"].grad,
        "grad.q_proj": named["model.layers.0.self_attn.q_proj.weight"].grad,
        "generated": found[0, prompt:].to(torch.float64),
    }, shapes


def llama() -> Case:
    """The SmolLM2 family: grouped heads, tied embeddings."""
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=61, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=2, head_dim=8, rms_norm_eps=1e-5, rope_theta=1e4, tie_word_embeddings=True,
        max_position_embeddings=64, attention_bias=False, mlp_bias=False,
    )  # fmt: skip
    return decoder(config, 11, 12)


def mistral() -> Case:
    """A window of 4 positions, a head of its own."""
    import transformers

    config = transformers.MistralConfig(
        vocab_size=61, hidden_size=40, intermediate_size=72, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, head_dim=10, rms_norm_eps=1e-6, rope_theta=1e6, tie_word_embeddings=False,
        sliding_window=4, max_position_embeddings=64,
    )  # fmt: skip
    return decoder(config, 13, 2)


def resnet(block: str) -> Case:
    """One block per stage, two images of 64 x 64."""
    import torch
    from torchvision import models

    made = models.ResNet(getattr(models.resnet, block), [1, 1, 1, 1], num_classes=13)
    model, shapes = filled(made)
    return {"logits": model(torch.from_numpy(waves((2, 3, 64, 64))).double())}, shapes


def whisper() -> Case:
    """Encoder states of 30 frames, and logits of 9 tokens."""
    import torch
    import transformers

    config = transformers.WhisperConfig(
        vocab_size=53, num_mel_bins=8, d_model=48, encoder_layers=2, decoder_layers=2, encoder_attention_heads=3,
        decoder_attention_heads=3, encoder_ffn_dim=80, decoder_ffn_dim=80, max_source_positions=15,
        max_target_positions=16, activation_function="gelu", pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None, attn_implementation="eager",
    )  # fmt: skip
    model, shapes = filled(transformers.WhisperForConditionalGeneration(config))
    mel = torch.from_numpy(waves((1, 8, 30))).double()
    tokens = torch.tensor([token_ids(9, 53)])
    states = model.model.encoder(mel).last_hidden_state
    return {"states": states[0], "logits": model(mel, decoder_input_ids=tokens).logits[0]}, shapes


def bert() -> Case:
    """Hidden states of 7 tokens, padded to 11, and their mean, normalised."""
    import torch
    import transformers

    config = transformers.BertConfig(
        vocab_size=67, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=80,
        max_position_embeddings=16, hidden_act="gelu", layer_norm_eps=1e-12, attn_implementation="eager",
    )  # fmt: skip
    model, shapes = filled(transformers.BertModel(config, add_pooling_layer=False))
    tokens = torch.tensor([token_ids(7, 67) + [0] * 4])
    mask = torch.tensor([[1] * 7 + [0] * 4])
    hidden = model(tokens, attention_mask=mask).last_hidden_state[0, :7]
    return {"hidden": hidden, "embedding": torch.nn.functional.normalize(hidden.mean(0), dim=0)}, shapes


def vit() -> Case:
    """States and logits of an image of 4 x 4 patches."""
    import torch
    import transformers

    config = transformers.ViTConfig(
        hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=80, image_size=20, patch_size=5,
        num_labels=7, hidden_act="gelu", layer_norm_eps=1e-12, attn_implementation="eager",
    )  # fmt: skip
    in_files = {
        "vit.layers.": "vit.encoder.layer.",
        "attention.o_proj": "attention.output.dense",
        "attention.q_proj": "attention.attention.query",
        "attention.k_proj": "attention.attention.key",
        "attention.v_proj": "attention.attention.value",
        "mlp.fc1": "intermediate.dense",
        "mlp.fc2": "output.dense",
    }
    model, shapes = filled(transformers.ViTForImageClassification(config), in_files)
    image = torch.from_numpy(waves((1, 3, 20, 20))).double()
    return {"logits": model(image).logits, "states": model.vit(image).last_hidden_state[0]}, shapes


CASES: dict[str, Callable[[], Case]] = {
    "llama": llama,
    "mistral": mistral,
    "resnet_basic": lambda: resnet("BasicBlock"),
    "resnet_bottleneck": lambda: resnet("Bottleneck"),
    "whisper": whisper,
    "bert": bert,
    "vit": vit,
}


def main() -> None:
    """Run every model and write the file."""
    arrays: dict[str, np.ndarray] = {}
    facts = {name: version(name) for name in ("torch", "torchvision", "transformers")}
    for case, make in CASES.items():
        outputs, shapes = make()
        facts[f"{case}.shapes"] = json.dumps(shapes)
        for name, value in outputs.items():
            arrays[f"{case}.{name}"] = value.detach().numpy().astype(np.float32)
    save_file(arrays, GOLDEN, metadata=facts)


if __name__ == "__main__":
    main()
