"""The CUDA side: kernels (device code), their compilation to cubins, and their launch. Nothing here chooses."""
