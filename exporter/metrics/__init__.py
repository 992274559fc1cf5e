"""The page: which families exist, which samples a snapshot has, and how they are written and documented."""
