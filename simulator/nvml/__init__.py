"""A simulated NVML library, driven by a state file."""
