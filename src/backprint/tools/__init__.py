"""What is done with Captures and samples: each room is a tool of its own.

The core (`graph`, `values`, `trace`, `prove`, `sample`, `derive`) imports none of them. ARCHITECTURE.md has their
floors: which may import which.

- What others stand on: `cost`, FLOPs, bytes and memory; `graphnet`, GraphNet's samples; `export`, Captures saved and
  written as one file; `named`, models of transformers, timm and torchvision by their names; `target`, what a verb
  works on.
- One Capture: `parts`, cut; `ranks`, of a distributed step; `record`, of a training script; `regions`, of eager blocks;
  `draw`, as a picture or page; `diff`, beside another; `kernel_graphs`, as torch.fx graphs; `torch_backend`, of
  `torch.compile`.
- Many steps: `watch`, of a training while it runs.
- Compilers and solutions: `lowering`, graphs as compilers take them; `kernels`, what compilers write; `bench`,
  compilers judged and timed; `tasks`, parts as problems; `swap`, solutions in the place of modules.
- Many samples: `jobs`, workers and a ledger; `corpus`, what is asked of a corpus.
"""
