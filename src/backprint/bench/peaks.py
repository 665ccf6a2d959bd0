import json, torch

print(json.dumps({"torch": torch.__version__, "flops": 1e11, "bytes": 1e10}))
