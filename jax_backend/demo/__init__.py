"""What `burn-xla demo` shows. Needs the extra `plots` (scikit-learn has the data, matplotlib draws), or `search`."""
