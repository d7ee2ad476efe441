"""Settings in the configs of files, to be replaced by wrong ones."""


def dicts(value):
    """Yields all dicts in the contents of a JSON file."""
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from dicts(part)


def put(config, /, **values):
    """Sets the first setting of each name in a config."""
    for name, value in values.items():
        next(part for part in dicts(config) if name in part)[name] = value
