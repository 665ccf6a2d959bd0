"""Where a script finds itself."""

import inspect
import pickle
import sys

seen = {name: value if value is None or isinstance(value, str) else type(value) for name, value in globals().items()}
print(seen, sorted(set(vars(sys.modules["__main__"])) ^ set(globals())))
print(sys.argv, sys.path[0], sys.path.count(sys.path[0]), __builtins__ is sys.modules["builtins"], __loader__.path)
print(
    "torch" in sys.modules,
    "numpy" in sys.modules,
    __name__,
    sys.flags,
    sys.getrecursionlimit(),
    len(inspect.stack()) > 0,
)
import torch  # noqa: E402
from shown import show  # noqa: E402


class Model(torch.nn.Linear):
    pass


torch.manual_seed(0)
model = pickle.loads(pickle.dumps(Model(3, 1)))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
print(Model.__module__, inspect.getsource(Model).strip(), inspect.getsourcefile(Model) == __file__)
print(torch.__spec__.loader is torch.__loader__, type(torch.__loader__), pickle.dumps(torch.autograd.backward))
print(inspect.signature(torch.autograd.backward), inspect.signature(torch.autograd.grad), torch.autograd.grad.__name__)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(5, 3)).square().mean().backward()
    optimizer.step()
show(model)
