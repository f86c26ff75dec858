"""A person's own photographs: indexed from a folder, searched by example, duplicates found."""

from __future__ import annotations

from bitprint.photos.collection import Added, Photos, Synced, holds_pictures
from bitprint.photos.comparing import Compared, compare_pictures
from bitprint.photos.duplicates import Group, find_duplicates

__all__ = [
    "Added",
    "Compared",
    "Group",
    "Photos",
    "Synced",
    "compare_pictures",
    "find_duplicates",
    "holds_pictures",
]
