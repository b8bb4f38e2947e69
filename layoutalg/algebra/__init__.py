"""The operations on layouts, one module per family, as pure functions on immutable values."""
