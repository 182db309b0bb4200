"""Model builders against transformers and torchvision."""
