"""Write `digits.bin`: the 1,797 handwritten digits that scikit-learn ships, images first, then labels.

64 bytes per image (8 rows of 8 pixels, 0 to 16), then one byte per label (0 to 9), in scikit-learn's order. Source:
UCI Machine Learning Repository, "Optical Recognition of Handwritten Digits" (test set), CC BY 4.0.
"""

from pathlib import Path


def main() -> None:
    """Write the file beside this one."""
    # Only whoever makes the file anew needs scikit-learn; the tests import every module for its doctests.
    from sklearn.datasets import load_digits

    digits = load_digits()
    images, labels = digits.images.astype("u1"), digits.target.astype("u1")
    Path(__file__).with_name("digits.bin").write_bytes(images.tobytes() + labels.tobytes())


if __name__ == "__main__":
    main()
