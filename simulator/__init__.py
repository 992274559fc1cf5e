"""A GPU node without a GPU: the product's code runs against it unchanged, in tests, demo and benchmark."""
