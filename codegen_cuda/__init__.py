"""Plans and kernels: CUDA that is generated from layouts, compiled, and handed to a checker that owes it nothing."""
