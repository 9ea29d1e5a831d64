"""Each top-level room is the package ``gristmill.<room>``: a static mapping would drop subpackages and YAML."""

from setuptools import find_packages, setup

ROOMS = ["kernels", "data", "train", "eval", "posttrain", "recipes"]
setup(
    packages=[f"gristmill.{room}" for room in ROOMS]
    + [f"gristmill.{room}.{sub}" for room in ROOMS for sub in find_packages(room)],
    package_dir={f"gristmill.{room}": room for room in ROOMS},
    package_data={"": ["*.yaml", "*.html", "*.css", "*.js", "py.typed"]},
)
