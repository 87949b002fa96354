"""The static site: the stored notebooks as pages that need no kernel and no network. ``python -m kvlib.website FOLDER``."""
