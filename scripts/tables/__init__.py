"""Tables of figures of the documentation, made from the files in scripts/results: public functions of the modules."""

import functools
import inspect

from scripts.tables import adaptive, claims, gpu, hybrids, recurrent, sampled, small_models, without_logits
from scripts.tables.results import markdown

TABLES = {
    name: functools.partial(markdown, function)
    for module in (adaptive, claims, recurrent, sampled, hybrids, gpu, small_models, without_logits)
    for name, function in vars(module).items()
    if inspect.isfunction(function) and function.__module__ == module.__name__ and not name.startswith("_")
}
