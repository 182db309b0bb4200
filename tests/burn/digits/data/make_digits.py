"""Write `digits.bin`: the 1,797 handwritten digits that scikit-learn ships, images first, then labels.

64 bytes per image (8 rows of 8 pixels, 0 to 16), then one byte per label (0 to 9), in scikit-learn's order. Source:
UCI Machine Learning Repository, "Optical Recognition of Handwritten Digits" (test set), CC BY 4.0.
"""

from pathlib import Path

from sklearn.datasets import load_digits

digits = load_digits()
Path(__file__).with_name("digits.bin").write_bytes(
    digits.images.astype("u1").tobytes() + digits.target.astype("u1").tobytes()
)
