"""The checks of tools/check_docs.py, one file each."""
