"""What a pod asks for and what its cluster allows: caps on GPU memory and compute, read from annotations and policy."""
