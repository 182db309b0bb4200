"""Operations written as plain loops in float64: slow, obvious, independent of jax."""
