"""Programs for who works on podgpu. Nothing that runs in production imports them."""
