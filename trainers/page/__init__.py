"""The web page of trainers.serve and its JSON API.

The page needs Starlette and uvicorn, which are optional. Import this package inside the function that serves.
"""

try:
    import starlette  # noqa: F401
    import uvicorn  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        'The page needs Starlette and uvicorn: pip install "keras_adaptive[serve]".', name=error.name
    ) from None
