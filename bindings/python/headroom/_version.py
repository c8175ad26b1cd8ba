"""The version of this package, and of the library that it was built with."""

__version__ = "0.1.0"
