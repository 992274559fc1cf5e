"""Version v1alpha1 of the kubelet's Pods API: the interface text and the code generated from it.

`python -m podresources.generate` writes the generated files anew; they are checked in for the reason that
`podresources.v1` gives. `pod.proto` is a cut of Kubernetes' own description of a pod, which the API sends as bytes.
"""
