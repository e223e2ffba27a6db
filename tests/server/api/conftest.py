"""A live server with a store of each model in turn."""

from served_places import shop

__all__ = ["shop"]
