"""Models as graphs of Meganeura's IR, with the names of Hugging Face and torchvision for their weights.

from jax_backend.meganeura import Session
from jax_backend.models import Weights, decoder, load_weights

model = decoder.build_graph(decoder.DecoderConfig.load("SmolLM2-135M/config.json"), seq_len=128)
session = Session(model.graph)
load_weights(session, model, Weights("SmolLM2-135M"))
"""

from jax_backend.models import bert, decoder, layers, resnet, vit, whisper
from jax_backend.models.generation import Generator
from jax_backend.models.parameters import MissingWeights, Model, Weights, load_weights, num_values

__all__ = [
    "Generator",
    "MissingWeights",
    "Model",
    "Weights",
    "bert",
    "decoder",
    "layers",
    "load_weights",
    "num_values",
    "resnet",
    "vit",
    "whisper",
]
