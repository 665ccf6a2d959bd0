"""Graphs run, compared and proved.

- `run`: one Graph. `whole`: a Capture, its Pairs joined by links. `arguments`: a call compared with the captured one.
- `oracles`: what results are compared with. `results`: results compared port by port, and their digests.
- `draws`, `other_inputs`: the sets of inputs that a Capture is proved on. `annotations`: every value compared with the
  annotation of its step.
- `verify`: proofs. `at_capture`: the proof before an engine's capture is accepted. `attest`: what a sample keeps of it.
- `power`: how far results move when inputs are redrawn. `observed`: statistics of every value.
- `nonfinite`: where NaN and Inf come from.
- `again`: a saved forward as a module that can be captured again; `scatter`: updates of views in it.
"""
