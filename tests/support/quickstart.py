"""The real quick-start recipe, shrunk to train in seconds."""

from pathlib import Path

SHRUNK = [
    f"--flagfile={Path(__file__).parents[2]}/configs/quickstart.flags",
    *("--dim=16", "--num_heads=2", "--ffn_dim=32", "--num_blocks=1", "--cutoffs=30"),
    *("--length=8", "--batch_size=4", "--updates=6", "--evaluate_every=3", "--log_every=2", "--warmup=0"),
    "--notensorboard",
]
