"""The processor: NumPy and a compiled helper, the default where no GPU API works."""
