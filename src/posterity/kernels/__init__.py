"""GPU kernels. Each has a plain twin in `models` or `planning`, and says in one line why it cannot be used."""
