"""The paper's two joint trainings of weights and architecture, many trials as one batch, with torch and NumPy only.

`networks` has the two networks with a leading dimension of trials, `kernels` the fused stack of the first one for a
GPU, `training` the loop and its settings, and `python -m reproduction.joint` runs it where nothing else is installed.
Pictures and the paper's claims are made from its CSV by `python -m reproduction layers` and
`activations`.
"""
