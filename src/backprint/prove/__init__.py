"""Graphs run, compared and proved.

A capture is a claim: "these two graphs are what the program computes". This room tests it. The reference is always the
program itself, untouched: its own module, its Parameters and the arguments of the call, run without any mode of ours.
Autograd of the captured forward is no reference, since it does not know of a custom backward or of a hook, and would
call a right capture wrong.

>>> import torch
>>> import backprint as bp
>>> x = torch.linspace(0, 1, 5, requires_grad=True)
>>> capture = bp.capture(lambda x: x.sin() * 2, x)
>>> [verdict] = capture.verify()
>>> verdict.verdict, [f"{port.role} {port.name}" for port in verdict.ports]
('bitwise', ['output output', 'gradient x'])

One comparison proves little, for a graph may return the right numbers by luck: zeros, or a result that was baked in. So
a Capture is run on several sets of inputs: the captured ones, those that its recipes make again, and new ones. *Power*
says of each port how far its result moves when inputs are redrawn. A port that does not move has proved nothing, and
the verdict says `vacuous` for it.

Verdicts are words with one meaning. `bitwise`: every bit. `close`: not every bit, but no farther than rounding
explains, with the error and the tolerance. `wrong`: farther. `failed`: it does not run, and why. `unproven`: not
compared, and why; never good. A verdict is the worst of its ports, and each port names what it was compared with.

A graph that runs on other sizes or dtypes than it was captured with is refused, with both; so is one whose Guard does
not hold for the new inputs. What the environment has to do with a result (threads, matmul precision) is set as it was
at the capture, and a difference that it explains is named.

- `run`: one Graph. `whole`: a Capture, its Pairs joined by links. `arguments`: a call compared with the captured one.
- `references`: what results are compared with. `results`: results compared port by port, and their digests.
- `draws`, `other_inputs`: the sets of inputs that a Capture is proved on. `annotations`: every value compared with the
  annotation of its step.
- `verify`: proofs. `at_capture`: the proof before an engine's capture is accepted. `attest`: what a sample keeps of it.
- `power`: how far results move when inputs are redrawn. `observed`: statistics of every value.
- `nonfinite`: where NaN and Inf come from.
- `again`: a saved forward as a module that can be captured again; `scatter`: updates of views in it.
- `capturing`: trace, prove, decide: what `bp.capture` does with a callable. It stands above `trace`, and joins it with
  the proofs. `stamped`: a stamped Capture compared with a trace in full.
"""
