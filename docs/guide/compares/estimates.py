"""The estimate of accelerate for training GPT-2, beside what PyTorch allocates at its peak.

    python3 docs/guide/compares/estimates.py        # on a GPU, with accelerate and transformers

Prints a line of JSON. `accelerate estimate-memory` looks a model up on the Hugging Face Hub; here
its own two functions are called on the same model, made from its default configuration, so that
nothing is downloaded.
"""

import json

import accelerate
import torch
import transformers
from accelerate.commands.estimate import estimate_training_usage
from accelerate.utils import calculate_maximum_sizes


def gpt2():
    config = transformers.GPT2Config(use_cache=False)
    return transformers.GPT2LMHeadModel(config)


def estimate():
    with accelerate.init_empty_weights():
        size, _ = calculate_maximum_sizes(gpt2())
    return int(size), max(estimate_training_usage(size, "float32").values())


def measure(batch, tokens=1024):
    """The peak of three training steps in f32, without the workspaces that exist before."""
    model = gpt2().cuda().train()
    optimizer = torch.optim.AdamW(model.parameters())
    torch.cuda.reset_peak_memory_stats()
    for _ in range(3):
        ids = torch.randint(0, 50257, (batch, tokens), device="cuda")
        model(ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return torch.cuda.max_memory_allocated()


def main():
    size, training = estimate()
    print(json.dumps({
        "torch": torch.__version__, "accelerate": accelerate.__version__,
        "device": torch.cuda.get_device_name(), "weights": size, "estimate_adam_f32": training,
        "measured_f32": {batch: measure(batch) for batch in (1, 4, 16)}}))


if __name__ == "__main__":
    main()
