#!/usr/bin/env python3
"""Writes tests/model/golden_gpt2.h: what PyTorch says about two tiny GPT models.

    python3 scripts/golden/make_golden.py > tests/model/golden_gpt2.h

PyTorch computes in float64, so the numbers are the truth to all digits written, and the bounds of
tests/model/test_golden.c are about this library alone. Weights, tokens and targets come from
integer formulas that the test repeats, so they need not be stored. Known to work with PyTorch 1.13.
"""
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)

STEPS, B = 5, 4
LR, BETA1, BETA2, EPS, DECAY, CLIP = 0.01, 0.9, 0.95, 1e-4, 0.1, 0.25


def hashed(p, e):
    """A number in [-0.5, 0.5) with 16 bits, exact in FP32, for element e of parameter p."""
    return (((p * 7919 + e * 104729 + 12345) * 2654435761 % 2**32) >> 16) / 65536.0 - 0.5


def token(V, step, b, t):
    return ((b * 31 + t * 7 + step * 5) * (t + 3) + b) % V


def target(V, step, b, t):
    """The next token; masked are a prefix of different length in every sequence, so that the
    sequences have unequal numbers of valid targets."""
    return -1 if t < b else token(V, step, b, t + 1)


class Tiny:
    """The model of include/tutti/model/model.h, straight from its formulas."""

    def __init__(self, V, T, C, H, G, L, Fw, tied):
        self.V, self.T, self.C, self.H, self.G, self.L = V, T, C, H, G, L
        D = C // H
        shapes = {"wte": (V, C), "wpe": (T, C)}
        for i in range(L):
            shapes |= {
                f"h.{i}.ln_1.weight": (C,), f"h.{i}.ln_1.bias": (C,),
                f"h.{i}.attn.qkv.weight": ((H + 2 * G) * D, C),
                f"h.{i}.attn.qkv.bias": ((H + 2 * G) * D,),
                f"h.{i}.attn.proj.weight": (C, C), f"h.{i}.attn.proj.bias": (C,),
                f"h.{i}.ln_2.weight": (C,), f"h.{i}.ln_2.bias": (C,),
                f"h.{i}.mlp.fc.weight": (Fw, C), f"h.{i}.mlp.fc.bias": (Fw,),
                f"h.{i}.mlp.proj.weight": (C, Fw), f"h.{i}.mlp.proj.bias": (C,),
            }
        shapes |= {"ln_f.weight": (C,), "ln_f.bias": (C,)}
        if not tied:
            shapes["head.weight"] = (V, C)
        self.p = {}
        for index, (name, shape) in enumerate(shapes.items()):
            count = 1
            for extent in shape:
                count *= extent
            one = 1.0 if "ln_" in name and name.endswith("weight") else 0.0
            values = [one + hashed(index, e) for e in range(count)]
            self.p[name] = torch.tensor(values).reshape(shape).requires_grad_()

    def loss(self, tokens, targets):
        p, C, H, G = self.p, self.C, self.H, self.G
        D, T = C // H, tokens.shape[1]
        x = p["wte"][tokens] + p["wpe"][:T]
        for i in range(self.L):
            h = f"h.{i}."
            n = F.layer_norm(x, (C,), p[h + "ln_1.weight"], p[h + "ln_1.bias"], 1e-5)
            qkv = F.linear(n, p[h + "attn.qkv.weight"], p[h + "attn.qkv.bias"])
            q, k, v = (s.reshape(s.shape[0], T, -1, D).transpose(1, 2)
                       for s in qkv.split([H * D, G * D, G * D], dim=2))
            k, v = (s.repeat_interleave(H // G, dim=1) for s in (k, v))
            scores = q @ k.transpose(2, 3) / D**0.5
            scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), float("-inf"))
            o = (scores.softmax(3) @ v).transpose(1, 2).reshape(x.shape)
            x = x + F.linear(o, p[h + "attn.proj.weight"], p[h + "attn.proj.bias"])
            n = F.layer_norm(x, (C,), p[h + "ln_2.weight"], p[h + "ln_2.bias"], 1e-5)
            f = F.linear(n, p[h + "mlp.fc.weight"], p[h + "mlp.fc.bias"])
            f = F.gelu(f, approximate="tanh")
            x = x + F.linear(f, p[h + "mlp.proj.weight"], p[h + "mlp.proj.bias"])
        x = F.layer_norm(x, (C,), p["ln_f.weight"], p["ln_f.bias"], 1e-5)
        logits = F.linear(x, p.get("head.weight", p["wte"]))
        return F.cross_entropy(logits.reshape(-1, self.V), targets.reshape(-1), ignore_index=-1)


def batch(V, T, step):
    rows = range(B)
    tokens = [[token(V, step, b, t) for t in range(T)] for b in rows]
    targets = [[target(V, step, b, t) for t in range(T)] for b in rows]
    return torch.tensor(tokens), torch.tensor(targets)


def flat(model, of):
    return [v for w in model.p.values() for v in of(w).detach().reshape(-1).tolist()]


def array(name, values):
    print(f"static const double {name}[{len(values)}] = {{")
    for i in range(0, len(values), 6):
        print("    " + " ".join(f"{v:.8g}," for v in values[i:i + 6]))
    print("};")


def case(name, whole, V, T, C, H, G, L, Fw, tied):
    model = Tiny(V, T, C, H, G, L, Fw, tied)
    decay = [w for w in model.p.values() if w.dim() == 2]
    plain = [w for w in model.p.values() if w.dim() != 2]
    adamw = torch.optim.AdamW([{"params": decay, "weight_decay": DECAY},
                               {"params": plain, "weight_decay": 0.0}],
                              lr=LR, betas=(BETA1, BETA2), eps=EPS)
    losses, norms = [], []
    for step in range(STEPS):
        adamw.zero_grad()
        loss = model.loss(*batch(V, T, step))
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            gradient = flat(model, lambda w: w.grad)
        norms.append(torch.nn.utils.clip_grad_norm_(list(model.p.values()), CLIP).item())
        assert norms[-1] > CLIP, "clipping must be active"
        adamw.step()
    losses.append(model.loss(*batch(V, T, STEPS)).item())
    print(f"\n/* {name}: V={V} T={T} C={C} H={H} G={G} L={L} F={Fw} */")
    print(f"static const tt_shape golden_{name}_shape = {{")
    print(f"    .L = {L}, .H = {H}, .G = {G}, .D = {C // H}, .C = {C}, .F = {Fw}, .T = {T},")
    print(f"    .V = {V}, .vocab_used = {V}, .tied = {'true' if tied else 'false'},")
    print("};")
    array(f"golden_{name}_loss", losses)
    array(f"golden_{name}_norm", norms)
    if whole:
        array(f"golden_{name}_gradient", gradient)
        array(f"golden_{name}_weights", flat(model, lambda w: w))


print("/* golden_gpt2.h: written by scripts/golden/make_golden.py; do not edit.")
print(" *")
print(" * Per model: the mean loss before each of 5 AdamW steps and after the last, the gradient")
print(" * norm of each step before clipping; and, for the first, the whole gradient of step 0 and")
print(" * the whole weights after the last step, in the order of the parameter table. */")
print("/* clang-format off */")
print("#ifndef GOLDEN_GPT2_H\n#define GOLDEN_GPT2_H\n")
print('#include "tutti/model/params.h"\n')
print(f"enum {{ GOLDEN_STEPS = {STEPS}, GOLDEN_B = {B} }};")
for key, value in dict(LR=LR, BETA1=BETA1, BETA2=BETA2, EPS=EPS, DECAY=DECAY, CLIP=CLIP).items():
    print(f"#define GOLDEN_{key} {value}")
case("tied", True, V=11, T=6, C=4, H=2, G=2, L=2, Fw=12, tied=True)
case("untied", False, V=13, T=7, C=8, H=4, G=2, L=2, Fw=20, tied=False)
print("\n#endif")
