"""The table of docs/models.md, from the cards of the models."""

import json
from pathlib import Path

MODELS = Path(__file__).parents[2] / "docs" / "models"


def small_models():
    yield "name | what | parameters | size | valid | test | per | bits per byte, test | continues"
    for path in sorted(MODELS.glob("*/card.json")):
        card = json.loads(path.read_text(encoding="utf-8"))
        valid, test = card["evaluations"]["valid"], card["evaluations"]["test"]
        words = ", ".join(f"`{word.strip('Ġ')}`" for word in card["next"][:3])
        yield [
            f"`{card['name']}`",
            card["kind"],
            f"{card['parameters']:,}",
            f"{card['bytes'] / 1e6:.1f} MB",
            *(f"{part['perplexity']:.2f}" for part in (valid, test)),
            test["unit"],
            f"{test['bits_per_byte']:.3f}",
            f"*{card['prompt']}* {words}",
        ]
