"""The files that an export for transformers copies into the folder of a model. The package imports none of them."""
