import copy

import torch
from shown import show

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.GELU(), torch.nn.Dropout(0.2), torch.nn.Linear(8, 2))
ema = copy.deepcopy(model)
optimizer = torch.optim.AdamW(model.parameters(), 0.01)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10)
scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
for step in range(4):
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(model(torch.randn(6, 3)), torch.randint(0, 2, (6,)))
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()
    with torch.no_grad():
        for p, q in zip(ema.parameters(), model.parameters(), strict=True):
            p.lerp_(q, 0.1)
    print(step, loss.item(), norm.item(), scaler.get_scale(), scheduler.get_last_lr())
show(model, ema)
