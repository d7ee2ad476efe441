"""What setup.cfg cannot say: the recipes of configs/ are data of the package `trainers`."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["keras_adaptive*", "trainers*"]), "trainers.configs"],
    package_dir={"trainers.configs": "configs"},
    package_data={
        "keras_adaptive": ["py.typed"],
        "trainers": ["page/static/*"],
        "trainers.configs": ["*.flags", "*/*.flags"],
    },
)
