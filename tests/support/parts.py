"""The public parts of the package."""

AT_ONCE = ["layers", "losses", "metrics", "models", "ops", "optimizers"]  # what `import keras_adaptive` imports
LATER = ["callbacks", "data", "distribution", "evaluation", "export", "fairseq", "hub", "text"]  # when they are used
PARTS = sorted([*AT_ONCE, *LATER])
