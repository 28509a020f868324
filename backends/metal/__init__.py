"""Metal on Apple silicon, through MLX."""
