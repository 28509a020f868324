"""What backends have in common: how weights are packed, ops fused, inputs laid, and what of a step decides how it runs."""
