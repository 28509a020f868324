"""Files → named tensors → device planes: readers, exact repacking, and the model store."""
