"""Version v1 of the kubelet's PodResources API: the interface text and the code generated from it.

`python -m podresources.generate` writes the generated files anew. They are checked in so that an installation needs
no compiler, and a test compares them with what the compiler makes of the text.
"""
